"""Hosts with three GPUs, through the real binding and a driver's library that fails on demand."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.daemon import Daemon, Stage, running
from tests.process import Host
from tests.serving import eventually

SETTINGS = """
state_dir = "{folder}/state"
[gpu]
interval = 0.2
timeout = 0.4
[host]
enabled = false
[probe]
enabled = false
"""
HW_SLOWDOWN = 0x8
RECOVERY_ACTION = 230  # the field; 2 asks for a reboot

Fault = Callable[[Host, Daemon], object]


def lost(host: Host, _: Daemon) -> None:
    """Let one fall off the bus."""
    host.say("error 1 15")


def unlisted(host: Host, _: Daemon) -> None:
    """Let NVML no longer list one."""
    host.say("gpus 2")


def hung(host: Host, _: Daemon) -> None:
    """Let no call about one return."""
    host.say("hang 1")


def throttled(host: Host, _: Daemon) -> None:
    """Let the hardware hold the clocks of one down."""
    host.say(f"reasons 1 {HW_SLOWDOWN}")


def recovery_wanted(host: Host, _: Daemon) -> None:
    """Let the driver ask for a reboot."""
    host.say(f"field 1 {RECOVERY_ACTION} 2")


def xid(host: Host, daemon: Daemon) -> None:
    """Report XIDs until one is counted: those of before the exporter listens are not."""

    def is_counted() -> bool:
        host.report_xid(1)
        page = daemon.page()
        return page is not None and page.xids(1) > 0

    assert eventually(is_counted)


def library_missing(host: Host, daemon: Daemon) -> None:
    """Start the exporter anew where the driver's library is gone, as after an upgrade that was left half done."""
    daemon.kill()
    daemon.environment = {name: value for name, value in daemon.environment.items() if name != "LD_LIBRARY_PATH"}
    daemon.start()


def exporter_killed(_: Host, daemon: Daemon) -> None:
    """Kill it for good."""
    daemon.kill()


@contextmanager
def gpus(fault: Fault, library: Path, folder: Path) -> Iterator[Stage]:
    """Run a host that is well until the fault."""
    host = Host(library, folder)
    with running(Daemon(folder, SETTINGS.format(folder=folder), host.environment())) as daemon:

        def is_ready() -> bool:
            page = daemon.page()
            return page is not None and page.gpus(0, 1, 2) == ["ok"] * 3 and page.source("gpu_events") == "ok"

        yield Stage(daemon.port, is_ready, lambda: fault(host, daemon))


@contextmanager
def clock_stepped(library: Path, folder: Path) -> Iterator[Stage]:
    """Run a host whose exporter, and nobody else, sees its clock step by an hour."""
    host = Host(library, folder)
    offset = folder / "offset"
    offset.write_text("+0\n")
    preload = f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketimeMT.so.1"
    environment = {
        "LD_PRELOAD": preload,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with running(Daemon(folder, SETTINGS.format(folder=folder), host.environment() | environment)) as daemon:

        def is_ready() -> bool:
            page = daemon.page()
            return page is not None and page.gpus(0, 1, 2) == ["ok"] * 3

        yield Stage(daemon.port, is_ready, lambda: offset.write_text("+3600\n"))
