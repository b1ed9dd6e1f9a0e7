"""Faults in real daemons, through a real Prometheus and Alertmanager to a pager: each raises its own page, no other.

All at once, each on a host of its own, with every duration of the rules and the routing divided by thirty.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.http_client import request
from tests.paging import Pager, paging
from tests.process import DaemonProcess, Host, Launcher
from tests.serving import eventually

REPORT = (
    "INFO {now} [loggers.py:123] Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 640.0 "
    "tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 41.0%, Prefix cache hit rate: 0.0%\n"
)
DEATH = "ERROR {now} [core.py:710] EngineCore encountered a fatal error.\n"
OK = ("ok", "ok", "ok")

# What is to be paged for on each host; nothing else may.
EXPECTED = {
    "well": set[str](),
    "lost": {"SolpiGpuLost"},
    "hung": {"SolpiGpuHung"},
    "xid": {"SolpiGpuXidCritical"},
    "broken": {"SolpiGpuRecoveryNeeded"},
    "gone": {"SolpiGpuLost"},  # from NVML's list; that the host has too few is silenced by it
    "killed": {"SolpiExporterDown"},
    "serving": set[str](),
    "rotated": set[str](),
    "idle": set[str](),
    "stuck": {"SolpiEngineStuck"},
    "dead": {"SolpiEngineDead"},
}
GPU_HOSTS = ("well", "lost", "hung", "xid", "broken", "gone", "killed")
ENGINE_HOSTS = ("serving", "rotated", "idle", "stuck", "dead")


class Engine:
    """A vLLM that logs, and a daemon that follows it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "vllm.log"
        self.report(7)
        flags = ("--listen", "127.0.0.1:0", "--no-probe", "--no-gpu", "--log-file", str(self._log))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "solpi_exporter", "run", *flags],
            env={**os.environ, "SOLPI_ENGINE_READ_FROM": "beginning"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split()[-1])

    def say(self, line: str, **values: object) -> None:
        """Append a line, with the time as vLLM writes it."""
        with self._log.open("a") as file:
            file.write(line.format(now=time.strftime("%m-%d %H:%M:%S"), **values))

    def report(self, running: int) -> None:
        """Report as vLLM does each ten seconds, here each two."""
        self.say(REPORT, running=running)

    def rotate(self) -> None:
        """Move the log away; the next line makes another."""
        self._log.rename(self._log.with_suffix(".log.1"))

    def is_followed(self) -> bool:
        """Whether the daemon has read the report."""
        return "solpi_engine_requests{" in request(self.port, "/metrics").text


def trouble(gpus: dict[str, tuple[DaemonProcess, Host]], engines: dict[str, Engine]) -> None:
    """Put every fault in."""
    gpus["lost"][1].say("error 1 15")
    gpus["hung"][1].say("hang 1")
    gpus["broken"][1].say("field 1 230 2")  # the driver asks for a reboot
    gpus["gone"][1].say("gpus 2")
    assert gpus["xid"][0].counts_xids(0)
    gpus["killed"][0].process.kill()
    engines["dead"].say(DEATH)
    engines["idle"].report(0)
    engines["rotated"].rotate()


@contextmanager
def serving(*engines: Engine) -> Iterator[None]:
    """Let engines go on reporting."""
    stop = Event()

    def report() -> None:
        while not stop.wait(2.0):
            for engine in engines:
                engine.report(7)

    thread = Thread(target=report)
    thread.start()
    try:
        yield
    finally:  # a thread that goes on keeps the whole run from ending
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def pager(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pager]:
    """Yield what was delivered once every fault was told, or forty seconds have passed, and five heartbeats later."""
    folder = tmp_path_factory.mktemp("faults")
    launcher = Launcher(folder)
    hosts = {name: Host(library, folder / name) for name in GPU_HOSTS}
    gpus = {name: (launcher(host), host) for name, host in hosts.items()}
    engines = {name: Engine(folder / name) for name in ENGINE_HOSTS}
    ports = {name: daemon.port for name, (daemon, _) in gpus.items()} | {
        name: one.port for name, one in engines.items()
    }
    with ExitStack() as stack:
        for process in (*(one.process for one in engines.values()), *(one.process for one in launcher.launched)):
            stack.enter_context(process)  # waits for it, and closes what it is read by
            stack.callback(process.kill)
        assert all(daemon.shows(*OK) for daemon, _ in gpus.values())
        assert all(eventually(engine.is_followed) for engine in engines.values())
        stack.enter_context(serving(engines["serving"], engines["rotated"]))
        one = stack.enter_context(paging(folder, ports))
        assert eventually(lambda: one.heard["alive"] > 0, 40.0)  # the watchdog: rules, routing and pager work
        trouble(gpus, engines)
        eventually(lambda: all(one.pages(host) >= expected for host, expected in EXPECTED.items()), 40.0)
        beats = one.heard["alive"] + 5  # one each two or three seconds: what follows from a fault would come meanwhile
        assert eventually(lambda: one.heard["alive"] >= beats, 60.0)
        yield one


@pytest.mark.parametrize("host", EXPECTED)
def test_a_fault_raises_its_own_page_and_no_other(host: str, pager: Pager) -> None:
    """A host that is well, an engine that serves, one whose log is rotated, and one that idles raise none."""
    assert pager.pages(host) == EXPECTED[host]
