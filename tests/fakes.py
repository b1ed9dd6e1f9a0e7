"""Doubles at our own seams: a clock, a source, a driver, a watcher, a bench."""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from solpi_exporter.gpu.driver import NOT_SUPPORTED, Device, Unavailable, XidEvent
from solpi_exporter.metric import Kind, Metric, Sample
from solpi_exporter.probe.plan import Used
from solpi_exporter.probe.result import EAGER_SYNC, MEASURED, BatchResult, Costs, Identity, ModeResult, SplitResult
from solpi_exporter.probe.split import Split
from solpi_exporter.source import Reading

RECORDINGS = Path(__file__).parent / "recordings"
SHIPPED = Path(__file__).parent.parent / "solpi_exporter" / "recordings"


@dataclass(slots=True)
class FakeClock:
    """Time that moves when told to; a wait passes at once and takes its whole duration."""

    now: float = 1000.0
    wall: float = 1_800_000_000.0

    def time(self) -> float:
        return self.wall + self.now

    def monotonic(self) -> float:
        return self.now

    def real(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.now += seconds
        return stop.is_set()


GAUGE = Metric("solpi_test_value", "A gauge.", labels=("key",))
COUNTER = Metric("solpi_test_events_total", "A counter.", Kind.COUNTER, ("key",))


@dataclass(frozen=True, slots=True)
class FakeReading:
    """A gauge and a counter under one key."""

    key: str
    value: float
    events: float = 0.0

    def samples(self) -> Iterator[Sample]:
        yield GAUGE.sample(self.value, self.key)
        yield COUNTER.sample(self.events, self.key)


@dataclass(slots=True)
class FakeSource:
    """Answers each poll with the next of `answers`: readings, or an error to raise; the last one stays."""

    answers: list[Sequence[Reading] | Exception]
    name: str = "fake"
    interval: float = 5.0
    timeout: float = 10.0
    polls: int = 0
    closed: bool = False
    on_poll: Callable[[], None] = lambda: None

    def poll(self) -> Sequence[Reading]:
        answer = self.answers[min(self.polls, len(self.answers) - 1)]
        self.polls += 1
        self.on_poll()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


Answer = Any


@dataclass(slots=True)
class FakeDriver:
    """GPUs as dicts from a call, `field ID SCOPE`, `gpm ID` or `samples KIND` to its answer.

    An exception as an answer is raised, a callable is called. `instances` holds a GPU's MIG instances by its index.
    """

    gpus: list[dict[str, Answer]]
    system: dict[str, Answer] = field(default_factory=dict)
    connects: list[Exception | None] = field(default_factory=list)
    instances: dict[int, list[dict[str, Answer]]] = field(default_factory=dict)
    events: list[XidEvent | Exception | None] = field(default_factory=list)
    calls: list[tuple[int, str]] = field(default_factory=list)
    epoch: int = 1
    closed: bool = False
    _seen: set[Device] = field(default_factory=set)

    def connect(self) -> None:
        error = self.connects.pop(0) if self.connects else None
        if error is not None:
            raise error

    def query(self, call: str, *args: int) -> Answer:
        return _answer({"nvmlDeviceGetCount": len(self.gpus), **self.system}, call)

    def ask(self, device: Device, call: str, *args: int) -> Answer:
        self.calls.append((device.gpu, call))
        answers = self._answers(device)
        exact = " ".join([call, *map(str, args)])
        return _answer(answers, exact if exact in answers else call)

    def fields(self, device: Device, wanted: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], float]:
        self.calls.append((device.gpu, "nvmlDeviceGetFieldValues"))
        answers = self._answers(device)
        known = {one: f"field {one[0]} {one[1]}" for one in wanted}
        return {one: _answer(answers, key) for one, key in known.items() if key in answers}

    def activity(self, device: Device, wanted: Sequence[int]) -> Mapping[int, float]:
        self.calls.append((device.gpu, "gpm"))
        answers = self._answers(device)
        known = {one: _answer(answers, f"gpm {one}") for one in wanted if f"gpm {one}" in answers}
        if not known:
            raise Unavailable("GPM: not on this GPU", NOT_SUPPORTED)
        first = device not in self._seen
        self._seen.add(device)
        return {} if first else known

    def samples(self, device: Device, kind: int, since: int) -> list[tuple[int, int]]:
        self.calls.append((device.gpu, "nvmlDeviceGetSamples"))
        return [one for one in _answer(self._answers(device), f"samples {kind}") if one[0] > since]

    def wait_xid(self, seconds: float) -> XidEvent | None:
        event = self.events.pop(0) if self.events else None
        if isinstance(event, Exception):
            raise event
        return event

    def close(self) -> None:
        self.closed = True

    def _answers(self, device: Device) -> dict[str, Answer]:
        if device.instance is None:
            return self.gpus[device.gpu]
        listed = self.instances.get(device.gpu, [])
        return listed[device.instance] if device.instance < len(listed) else {}


def _answer(answers: Mapping[str, Answer], call: str) -> Answer:
    if call not in answers:
        raise Unavailable(call)
    answer = answers[call]() if callable(answers[call]) else answers[call]
    if isinstance(answer, Exception):
        raise answer
    return answer


@dataclass(slots=True)
class FakeWatcher:
    """A watcher that says what it is told to say; `directories` is what was last asked for."""

    hint: bool = False
    directories: set[str] = field(default_factory=set)
    closed: bool = False
    active: bool = True
    overflows: int = 0

    def watch(self, directories: set[str]) -> None:
        self.directories = directories

    def changed(self) -> bool:
        hint, self.hint = self.hint, False
        return hint

    def close(self) -> None:
        self.closed = True


@dataclass(slots=True)
class FakeBench:
    """A bench that hands out prepared results by batch size."""

    results: dict[int, BatchResult]
    identity: Identity = Identity("cuda:0", "GPU-1", "NVIDIA H200", "8b", 4, 512, "bfloat16", "2.13.0")
    raw: Costs = Costs(wakeup=(60e-6, 110e-6))
    used: Used | None = None
    is_open: bool = True
    closed: bool = False

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        with quiet:
            return self.raw

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        with quiet:
            return self.results[batch]

    def close(self) -> None:
        self.closed = True


def batch_result(batch: int, noise: str | None = None, token: float = 10e-3) -> BatchResult:
    """Return a result whose token is 5 ms compute, 1 memory, 3 scheduling, 1 sync; or a noisy one."""
    modes = {EAGER_SYNC: ModeResult(token, 6e-3, 5e-3, 1e-3, (9e-3, 10e-3, 11e-3))}
    split = SplitResult(MEASURED, Split(token, 5e-3, 1e-3, 3e-3, 1e-3, 0.0), {})
    return BatchResult(batch, modes, () if noise else (split,), noise)


def capturing_log() -> tuple[FilteringBoundLogger, LogCapture]:
    """Return a logger and what it has been told, as dicts."""
    capture = LogCapture()
    logger = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG)
    )
    return logger, capture


def values(samples: Iterator[Sample] | Sequence[Sample]) -> dict[str, dict[tuple[str, ...], Any]]:
    """Return samples as {metric name: {label values: value}}."""
    result: dict[str, dict[tuple[str, ...], Any]] = {}
    for sample in samples:
        result.setdefault(sample.metric.name, {})[sample.labels] = sample.value
    return result


def load_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text())
