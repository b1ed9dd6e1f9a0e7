"""The real daemon in a process of its own, polling GPUs that do not exist as fast as it may, and what its page says."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from solpi_exporter.daemon import RESTART
from tests.http_client import request
from tests.nvml_stub import Stub
from tests.serving import eventually

SETTINGS = {"SOLPI_GPU_INTERVAL": "0.1", "SOLPI_GPU_TIMEOUT": "0.5", "SOLPI_HOST_ENABLED": "false"}
ARGUMENTS = ("run", "--listen", "127.0.0.1:0", "--no-probe", "--no-engine", "--log-format", "json")

ACTIVITIES = ("graphics_active", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
GPM = {f"solpi_gpu_{activity}_ratio" for activity in ACTIVITIES}
TRAFFIC = {f"solpi_gpu_{link}_{way}_bytes_total" for link in ("pcie", "nvlink") for way in ("transmit", "receive")}
LATER = GPM | {"solpi_gpu_process_memory_bytes"}  # seconds after a GPU's first reading

Series = tuple[str, frozenset[tuple[str, str]]]

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def uuid(gpu: int) -> str:
    """Return the UUID of a GPU by its physical number."""
    return f"GPU-00000000-0000-0000-0000-{gpu:012}"


class Host:
    """Three GPUs, and what is wrong with them at present."""

    def __init__(self, library: Path, folder: Path, *lines: str) -> None:
        self.library = library  # of daemons that start from now on
        folder.mkdir(exist_ok=True)
        self._control = folder / "control"
        self._generation = 0
        self._sequence = count(1)
        self.say(*lines)

    def environment(self) -> dict[str, str]:
        return Stub(self.library, self._control).environment()

    def say(self, *lines: str) -> None:
        """Let only this be wrong."""
        Stub(self.library, self._control).say("gpus 3", f"generation {self._generation}", *lines)

    def reset(self, *lines: str) -> None:
        """Make all handles void, and let only this be wrong."""
        self._generation += 1
        self.say(*lines)

    def report_xid(self, gpu: int, *lines: str) -> None:
        self.say(*lines, f"xid {gpu} 79 {next(self._sequence)}")


class Page:
    """One scrape, of which no label needs escapes."""

    def __init__(self, text: str) -> None:
        self._values: dict[Series, float] = {
            (name, frozenset(_LABEL.findall(labels))): float(value) for name, labels, value in _LINE.findall(text)
        }

    def series(self, **labels: str) -> set[Series]:
        """Return every series that has these labels."""
        return {one for one in self._values if one[1].issuperset(labels.items())}

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the one series of a name that has these labels; None where there is none."""
        found = [self._values[one] for one in self.series(**labels) if one[0] == name]
        assert len(found) <= 1, f"{name} {labels} are {len(found)} series"
        return found[0] if found else None

    def gpu_series(self, *gpus: int) -> set[Series]:
        """Return every series of these GPUs that is there with their first reading."""
        return {one for gpu in gpus for one in self.series(gpu=str(gpu)) if one[0] not in LATER}

    def names(self, gpu: int) -> set[str]:
        """Return the names of all series of a GPU."""
        return {name for name, _ in self.series(gpu=str(gpu))}

    def state(self, name: str, **labels: str) -> str:
        """Return the one state that something is in; empty where nothing is told of it."""
        found = [one for one in self.series(**labels) if one[0] == name and self._values[one] == 1.0]
        assert len(found) <= 1, f"{name} {labels} is in several states: {found}"
        return dict(found[0][1])["state"] if found else ""

    def source(self, name: str) -> str:
        """Return the state of a source."""
        return self.state("solpi_source_state", source=name)

    def gpus(self, *indices: int) -> list[str]:
        """Return the states of GPUs."""
        return [self.state("solpi_gpu_state", gpu=str(index)) for index in indices]

    def xids(self, gpu: int) -> float:
        """Return how often a GPU reported XID 79; -1 where nothing is told of that."""
        total = self.value("solpi_gpu_xid_errors_total", gpu=str(gpu), xid="79")
        return -1.0 if total is None else total

    def polls(self, source: str = "gpu", **outcome: str) -> float:
        """Return how often a source was polled, with any outcome unless one is named."""
        found = self.series(source=source, **outcome)
        return sum(self._values[one] for one in found if one[0] == "solpi_source_polls_total")


class DaemonProcess:
    """A daemon that listens on a free port; it is waited for by the first question."""

    def __init__(self, host: Host, log: Path, *flags: str, **settings: str) -> None:
        self.host = host
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "solpi_exporter", *ARGUMENTS, *flags],
                env={**host.environment(), **SETTINGS, **settings},
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    @cached_property
    def port(self) -> int:
        """The port that it listens on."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on port "), self.log()
        return int(line.split()[-1])

    def status(self, path: str) -> int:
        return request(self.port, path).status

    def page(self) -> Page:
        return Page(request(self.port, "/metrics").text)

    def shows(self, *gpus: str, **sources: str) -> bool:
        """Wait until the first GPUs, and sources by name, are in these states, at the same time."""

        def it_does() -> bool:
            page = self.page()
            told = {name: page.source(name) for name in sources}
            return page.gpus(*range(len(gpus))) == list(gpus) and told == sources

        return eventually(it_does)

    def pages(self, scrapes: int) -> Iterator[Page]:
        """Yield scrapes, of which each is as old as the last change; between two there is time for a poll."""
        pages: list[Page] = []

        def enough() -> bool:
            pages.append(self.page())
            return len(pages) == scrapes

        assert eventually(enough)
        yield from pages

    def counts_xids(self, gpu: int) -> bool:
        """Report XIDs until one is counted: those of before a registration are not."""
        before = self.page().xids(gpu)

        def one_more() -> bool:
            self.host.report_xid(gpu)
            return self.page().xids(gpu) > max(before, 0.0)

        return eventually(one_more)

    def log(self) -> str:
        return self._log.read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log's lines of one event."""
        lines = map(json.loads, self.log().splitlines())
        return [line for line in lines if line["event"] == name]

    def stops(self) -> bool:
        """Stop it; return whether that took two seconds at most and gave status 0."""
        self.process.terminate()
        return self.process.wait(2.0) == 0


class Launcher:
    """Starts daemons."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.launched: list[DaemonProcess] = []

    def __call__(self, host: Host, *flags: str, **settings: str) -> DaemonProcess:
        log = self._folder / f"{len(self.launched)}.log"
        self.launched.append(DaemonProcess(host, log, *flags, **settings))
        return self.launched[-1]

    def terminated(self) -> list[DaemonProcess]:
        """Tell every daemon to stop, and return them."""
        for one in self.launched:
            one.process.terminate()
        return self.launched

    def close(self) -> None:
        """Stop every daemon; each has to end as it should, whatever was done to it."""
        for one in self.terminated():
            one.process.communicate(timeout=10.0)
            assert one.process.returncode in (0, RESTART), one.log()
            assert "Traceback" not in one.log()
