"""Hosts with a serving engine: the daemon follows its log and asks its endpoint."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from benchmarks.faults.daemon import Daemon, Stage, running
from benchmarks.faults.vllm import DEATH, Load, Vllm, answering

SETTINGS = """
state_dir = "{folder}/state"
[gpu]
enabled = false
[host]
enabled = false
[probe]
enabled = false
[engine]
read_from = "beginning"
endpoint_interval = 0.25
[[engine.server]]
name = "vllm"
log = "{log}"
metrics_url = "http://127.0.0.1:{port}/metrics"
"""

Fault = Callable[[Vllm, ThreadingHTTPServer], object]


def loaded(load: Load) -> Fault:
    """Return a fault by which an engine has another load."""

    def put_in(vllm: Vllm, _: ThreadingHTTPServer) -> None:
        vllm.load = load

    return put_in


def hung(vllm: Vllm, _: ThreadingHTTPServer) -> None:
    """Let it make no more progress, and say nothing of it; its endpoint answers with what was."""
    vllm.load = None


def idle(vllm: Vllm, _: ThreadingHTTPServer) -> None:
    """Let nobody ask any more."""
    vllm.idle()


def refusing(_: Vllm, endpoint: ThreadingHTTPServer) -> None:
    """Let nobody listen at its endpoint."""
    endpoint.shutdown()
    endpoint.server_close()


def dead(vllm: Vllm, endpoint: ThreadingHTTPServer) -> None:
    """Let the core die, and its server with it."""
    vllm.load = None
    vllm.say(DEATH)
    refusing(vllm, endpoint)


def rotated(vllm: Vllm, _: ThreadingHTTPServer) -> None:
    """Rotate the log while lines are written."""
    vllm.rotate()


@contextmanager
def engine(fault: Fault, _: Path, folder: Path) -> Iterator[Stage]:
    """Run an engine that serves, and the daemon beside it."""
    folder.mkdir()
    vllm = Vllm(folder / "vllm.log")
    vllm.report()
    with answering(vllm) as endpoint:
        settings = SETTINGS.format(folder=folder, log=vllm.log, port=endpoint.server_port)
        with running(Daemon(folder, settings, os.environ)) as daemon:

            def is_ready() -> bool:
                return daemon.shows("solpi_engine_steps_total") and daemon.shows(
                    "solpi_engine_last_report_timestamp_seconds"
                )

            yield Stage(daemon.port, is_ready, lambda: fault(vllm, endpoint))
