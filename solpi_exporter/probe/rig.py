"""The narrow seam to a GPU: what has to touch it. Everything that is decided lies above, in bench.py and costs.py."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from solpi_exporter.probe.result import Identity
from solpi_exporter.probe.rounds import Step


@dataclass(frozen=True, slots=True)
class Variant:
    """A step of one batch size and depth."""

    batch: int
    layers: int


@dataclass(frozen=True, slots=True)
class Replay:
    """A step as a graph, with all of the KV cache or with one block of it."""

    variant: Variant
    with_kv: bool = True


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy within the GPU's memory: how long it took there, and how many bytes were read and written."""

    seconds: float
    moved: int


class Rig(Protocol):
    """Weights, graphs and events on one GPU. Times are in seconds; every call returns when the GPU is done."""

    @property
    def identity(self) -> Identity:
        """On what it measures."""
        ...

    def session(self) -> AbstractContextManager[None]:
        """Hold what the calls below need; raise SourceError where one fails, NeedsRestart where no more will work."""
        ...

    def launched(self, variant: Variant, count: int) -> list[Step]:
        """Time steps that are launched call by call, the tokens of each read back before the next."""
        ...

    def replayed(self, variant: Variant, count: int) -> list[Step]:
        """Time the same steps as a CUDA graph."""
        ...

    def pipelined(self, variant: Variant, count: int) -> list[Step]:
        """Time graphs whose tokens are read back one step behind; PIPELINE_FILL more are run before."""
        ...

    def chain(self, replays: Sequence[Replay]) -> list[float]:
        """Return the device's times of replays queued back to back, without the first, behind which launching hides."""
        ...

    def round_trip(self) -> float:
        """Launch one small kernel, and wait for it."""
        ...

    def launch(self, times: int) -> float:
        """Return the host's time for one small kernel, of so many launched in a row."""
        ...

    def graph_launch(self, variant: Variant) -> float:
        """Return the host's time to launch a step's graph."""
        ...

    def nodes(self, count: int) -> float:
        """Return the device's time for a graph of empty nodes, run behind another; `count` is one of NODES."""
        ...

    def copy(self) -> Copy | None:
        """Copy behind another copy; None where the L2 would hold what is copied."""
        ...

    def clock(self) -> float | None:
        """Return the clock of the SMs in hertz, None where it is not told."""
        ...


PIPELINE_FILL = 2  # steps in which the device has nothing to do yet
NODES = (50, 150)
