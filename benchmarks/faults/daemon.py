"""A host of the fault matrix: the real daemon, with the settings and the environment of its case."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import free_port
from tests.http_client import request
from tests.process import Page

STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A host that Prometheus scrapes at `port`: whether it is well by now, and what breaks it."""

    port: int
    is_ready: Callable[[], bool]
    inject: Callable[[], object]


@dataclass(slots=True)
class Daemon:
    """`before` goes in front of its command line."""

    folder: Path
    settings: str
    environment: Mapping[str, str]
    before: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, on the port that it has had before."""
        config = self.folder / "config.toml"
        config.write_text(self.settings)
        command = [sys.executable, "-m", "solpi_exporter", "run", "--config", str(config)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.before, *command, "--listen", f"127.0.0.1:{self.port}"],
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def page(self) -> Page | None:
        """Return what it shows; None while it does not answer."""
        try:
            return Page(request(self.port, "/metrics").text)
        except OSError:
            return None

    def shows(self, name: str, **labels: str) -> bool:
        """Whether it shows some series."""
        page = self.page()
        return page is not None and any(one == name for one, _ in page.series(**labels))

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)


@contextmanager
def running(daemon: Daemon) -> Iterator[Daemon]:
    """Run a daemon until the block ends."""
    daemon.folder.mkdir(exist_ok=True)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()
