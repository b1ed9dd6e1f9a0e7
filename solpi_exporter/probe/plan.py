"""How much of a cycle is run and how it is spread: in one go for somebody who waits, or gently beside a server."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Plan:
    """What a cycle runs on a GPU.

    `rounds` of each batch size, `modelled_rounds` where others keep the GPU busy, the graph modes in the first
    `graph_rounds` of them. `steps` and `replays` are timed in a row, raw costs `repeats` times. Between such rows lie
    random `pauses` of seconds. `warm_up` is for how long at least and at most clocks are warmed up, in seconds of the
    device; a cycle stops after `stop` of them, warm-up left out.
    """

    rounds: int
    modelled_rounds: int
    graph_rounds: int
    steps: int
    replays: int
    repeats: int
    warm_up: tuple[float, float]
    pauses: tuple[float, float] | None = None
    stop: float = inf

    @property
    def chain(self) -> int:
        """How many replays are queued back to back at most: those of two depths behind one that leads."""
        return 1 + 2 * self.replays


THOROUGH = Plan(
    rounds=6, modelled_rounds=6, graph_rounds=6, steps=6, replays=7, repeats=8, warm_up=(0.05, 0.3)
)  # fmt: skip
# A default time slice of the GPU is about a millisecond: a row that is no longer makes a neighbour's token late by one.
GENTLE = Plan(
    rounds=2,
    modelled_rounds=3,
    graph_rounds=1,
    steps=1,
    replays=1,
    repeats=2,
    warm_up=(0.02, 0.1),
    pauses=(0.02, 0.05),
    stop=0.25,
)


@dataclass(frozen=True, slots=True)
class Opening:
    """Which bench is wanted: on `device` ("auto", "cpu", "cuda", "cuda:N" or a UUID) with `shape`, which may be "auto".

    `context` and `layers` replace those of the shape.
    """

    device: str
    shape: str
    batches: tuple[int, ...]
    plan: Plan
    context: int | None = None
    layers: int | None = None


MAX_SHARE = 0.0002  # of the GPU's time that cycles may take: a dearer one makes the next wait longer


@dataclass(frozen=True, slots=True)
class Used:
    """Device seconds: `total` since the start, and those of the last `cycle`, its warm-up left out."""

    total: float = 0.0
    cycle: float = 0.0

    def begin(self) -> "Used":
        """Return what it is at the begin of a cycle."""
        return Used(self.total)

    def more(self, seconds: float) -> "Used":
        """Return what it is after so much more."""
        return Used(self.total + seconds, self.cycle + seconds)

    def warmer(self, seconds: float) -> "Used":
        """Return what it is after a warm-up, which only an idle GPU is given."""
        return Used(self.total + seconds, self.cycle)
