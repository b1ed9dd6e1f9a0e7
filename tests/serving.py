"""The real daemon in this process, on a free port, for as long as a test wants it."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from solpi_exporter.config import Settings
from solpi_exporter.daemon import Daemon
from solpi_exporter.sources import World
from tests.fakes import capturing_log
from tests.http_client import Answer, request

CLOCK_BOUND = re.compile(
    r"^(solpi_source_poll_seconds|solpi_source_polls_total|solpi_\w+_timestamp_seconds)(\{.*\})? .*$", re.MULTILINE
)


@dataclass
class Serving:
    """A running daemon; `status` is its exit status once it has ended."""

    daemon: Daemon
    port: int
    stop: threading.Event
    thread: threading.Thread
    status: list[int]

    def get(self, path: str) -> Answer:
        return request(self.port, path)

    def metrics(self) -> str:
        return self.get("/metrics").text


def eventually(check: Callable[[], bool], timeout: float = 20.0) -> bool:
    """Ask a real thing again until it says yes; ten times a second, `timeout` seconds at most."""
    pause = threading.Event()
    return any(check() or pause.wait(0.1) for _ in range(int(timeout * 10)))


@contextmanager
def serving(settings: Settings, world: World | None = None, *, ready: bool = True) -> Iterator[Serving]:
    """Run the daemon until the block ends; with `ready`, begin once every source has been polled."""
    log, _ = capturing_log()
    daemon = Daemon(settings, log, world or World())
    stop = threading.Event()
    status: list[int] = []
    web = daemon.bind("127.0.0.1:0")
    thread = threading.Thread(target=lambda: status.append(daemon.serve(web, stop)))
    thread.start()
    running = Serving(daemon, web.port, stop, thread, status)
    try:
        assert not ready or eventually(lambda: running.get("/-/ready").status == 200)
        yield running
    finally:
        stop.set()
        thread.join(5.0)


def comparable(exposition: str) -> str:
    """Return an exposition without what differs from run to run: the process's figures, clocks, versions."""
    lines = [line for line in exposition.splitlines() if not re.match(r"(# (HELP|TYPE) )?process_", line)]
    text = CLOCK_BOUND.sub(r"\1\2 CLOCK", "\n".join(lines) + "\n")
    return re.sub(r'python="[^"]*",version="[^"]*"', 'python="PYTHON",version="VERSION"', text)
