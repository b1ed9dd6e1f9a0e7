"""A GPU at the probe's narrow seam: it takes the times of an H200, can be shared with a neighbour, and can fail."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from solpi_exporter.probe.result import Identity
from solpi_exporter.probe.rig import PIPELINE_FILL, Copy, Replay, Variant
from solpi_exporter.probe.rounds import Step
from tests.fakes import FakeBench

ONCE, LAYER = 86e-6, 167e-6  # device seconds of the 8b shape at batch 1, measured on an H200
WITHOUT_KV = 10e-6  # less, with attention cut to one block
LAUNCH = 350e-6  # host seconds for a layer
SLICE = 2.4e-3


@dataclass
class FakeRig:
    """`calls` are what was asked for, with the device seconds that each took; `rest` is one of them."""

    identity: Identity = field(default_factory=lambda: FakeBench({}).identity)
    is_busy: Callable[[], bool] = lambda: False
    slow: float = 1.0
    error: Exception | None = None
    span: Callable[[float], float] = lambda seconds: seconds
    calls: list[tuple[str, float]] = field(default_factory=list)

    def rest(self, seconds: float) -> None:
        self.calls.append(("rest", seconds))

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def rows(self) -> Iterator[float]:
        """Yield device seconds of what ran between two rests."""
        row = 0.0
        for name, seconds in self.calls:
            if name == "rest":
                yield row
                row = 0.0
            else:
                row += seconds
        yield row

    @contextmanager
    def session(self) -> Iterator[None]:
        if self.error is not None:
            raise self.error
        yield

    def seconds(self, variant: Variant) -> float:
        return (ONCE + variant.layers * LAYER) * self.slow

    def launched(self, variant: Variant, count: int) -> list[Step]:
        self.calls.append(("launched", count * self.seconds(variant)))
        return count * [self._step(50e-6 + variant.layers * LAUNCH, variant)]

    def replayed(self, variant: Variant, count: int) -> list[Step]:
        self.calls.append(("replayed", count * self.seconds(variant)))
        return count * [self._step(30e-6, variant)]

    def pipelined(self, variant: Variant, count: int) -> list[Step]:
        self.calls.append(("pipelined", (count + PIPELINE_FILL) * self.seconds(variant)))
        return count * [self._step(20e-6, variant)]

    def chain(self, replays: Sequence[Replay]) -> list[float]:
        times = [self.seconds(one.variant) - (0.0 if one.with_kv else WITHOUT_KV) for one in replays]
        self.calls.append(("chain", sum(times)))
        return times[1:]

    def round_trip(self) -> float:
        self.calls.append(("round_trip", 2e-6))
        return SLICE if self.is_busy() else 20e-6

    def launch(self, times: int) -> float:
        self.calls.append(("launch", times * 2e-6))
        return 8e-6

    def graph_launch(self, variant: Variant) -> float:
        self.calls.append(("graph_launch", self.seconds(variant)))
        return 15e-6

    def nodes(self, count: int) -> float:
        self.calls.append(("nodes", 2 * count * 1e-6))
        return count * 1e-6

    def copy(self) -> Copy | None:
        self.calls.append(("copy", 2 * 60e-6))
        return Copy(60e-6, 240_000_000)

    def clock(self) -> float | None:
        return 1.98e9

    def _step(self, enqueue: float, variant: Variant) -> Step:
        wall = max(enqueue, self.seconds(variant)) + 40e-6
        return Step(wall, wall, enqueue, enqueue, self.span(wall - 30e-6), void=False, head=60e-6)
