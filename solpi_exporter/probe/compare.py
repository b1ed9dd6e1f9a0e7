"""Two baselines held against each other: which figures got worse, by more than is noise.

The band of a figure is the widest of three: a floor, which is in the table; three standard errors of the difference,
where those are known; and three standard deviations from cycle to cycle, all of the baseline's and, since a median is
compared, 1/sqrt(runs) of those now. All of the baseline's: the host wanders more slowly than cycles follow each other,
so that many of them tell no better where it will stand on another day. Only that much of today's: a regression that
makes the figures wander must not hide behind it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import hypot, sqrt
from types import MappingProxyType

from solpi_exporter.probe.baseline import (
    COPY,
    ENQUEUE,
    GRAPH_LAUNCH,
    GRAPH_NODE,
    LAUNCH,
    OFF_CPU,
    P50,
    PHASE,
    RECLAIMABLE,
    ROUND_TRIP,
    TOKEN,
    WAKEUP,
    Baseline,
    Figure,
    Fingerprint,
    Key,
)
from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_ASYNC, GRAPH_SYNC
from solpi_exporter.probe.rounds import CONTROL_RATIO
from solpi_exporter.probe.split import MAX_RESIDUE
from solpi_exporter.probe.surroundings import Difference, differences

BETTER, SAME, WORSE, NOT_COMPARABLE = "better", "same", "worse", "not comparable"

# What is noise on one machine: tests/probe/test_compare.py holds recorded cycles against each other.
DEVICE = 0.03  # the GPU's own times repeat within 0.5 %
REPLAY = 0.10  # a replayed step and its read-back, within 6 %
NODE = 0.25  # one and the same empty node took 0.95 us in one process and 1.13 in another
HOST = 0.20  # wanders by tens of per cent on a virtual machine
GRAPH = 1.50  # what the host does for a graph, on the same machine by a factor of 2.4
SHARE = 0.05  # points
SIGMAS = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """How a figure is judged: what it is called, below which band nothing is called a change, in which direction worse.

    `floor` is relative to the baseline; that of a share, which has `points`, is absolute.
    """

    words: str
    floor: float
    points: bool = False
    lower_is_worse: bool = False


# What could be reclaimed has been lost, so more of it is worse.
RULES: Mapping[tuple[str, str | None], Rule] = MappingProxyType(
    {
        (TOKEN, EAGER_SYNC): Rule("token", HOST),
        (TOKEN, GRAPH_SYNC): Rule("token as a graph", REPLAY),
        (TOKEN, GRAPH_ASYNC): Rule("token read one step behind", REPLAY),
        (PHASE, "compute"): Rule("compute", DEVICE),
        (PHASE, "memory"): Rule("memory", DEVICE),
        (PHASE, "scheduling"): Rule("scheduling", HOST),
        (PHASE, "sync"): Rule("sync", HOST),
        (CONTROL_RATIO, None): Rule("control ratio", SHARE, points=True),
        (OFF_CPU, None): Rule("off the CPU", SHARE, points=True),
        (RECLAIMABLE, GRAPH_SYNC): Rule("reclaimable as a graph", SHARE, points=True),
        (RECLAIMABLE, GRAPH_ASYNC): Rule("reclaimable one step behind", SHARE, points=True),
        (ENQUEUE, EAGER_SYNC): Rule("enqueue", HOST),
        (ENQUEUE, GRAPH_SYNC): Rule("enqueue as a graph", GRAPH),
        (ENQUEUE, GRAPH_ASYNC): Rule("enqueue one step behind", GRAPH),
        (LAUNCH, None): Rule("launch", HOST),
        (GRAPH_LAUNCH, None): Rule("graph launch", GRAPH),
        (GRAPH_NODE, None): Rule("graph node", NODE),
        (ROUND_TRIP, P50): Rule("round trip", HOST),
        (WAKEUP, P50): Rule("wake-up late by", HOST),
        (COPY, None): Rule("copy", DEVICE, lower_is_worse=True),
    }
)


class Incomparable(Exception):
    """The figures are of other things; the message is one line and says of which."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both sides; None where it is absent. `band` is in the figure's unit."""

    key: Key
    rule: Rule
    verdict: str
    before: Figure | None
    now: Figure | None
    band: float | None = None

    @property
    def change(self) -> float | None:
        """By how much it has grown."""
        return None if self.before is None or self.now is None else self.now.value - self.before.value


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every figure of either side with its verdict, and what is another one around them."""

    rows: tuple[Row, ...]
    surroundings: tuple[Difference, ...]

    def those(self, verdict: str) -> list[Row]:
        """Return the rows of one verdict."""
        return [row for row in self.rows if row.verdict == verdict]


def check_comparable(before: Fingerprint, now: Fingerprint) -> None:
    """Raise Incomparable where machine or method are others."""
    other = before.differences(now)
    if other:
        raise Incomparable(f"not comparable: {', '.join(other)}: measure with the same flags, or save a new baseline")


def compare(before: Baseline, now: Baseline) -> Comparison:
    """Judge every figure; raise Incomparable where machine or method are others."""
    check_comparable(before.fingerprint, now.fingerprint)
    return Comparison(tuple(_rows(before, now)), tuple(differences(before.surroundings, now.surroundings)))


def _rows(before: Baseline, now: Baseline) -> Iterator[Row]:
    """Yield the rows by batch size, the raw costs first, in the order of the table."""
    old, new = ({figure.key: figure for figure in one.figures} for one in (before, now))
    host_is_device = before.fingerprint.device == "cpu"
    for batch in sorted({key.batch for key in (*old, *new)}, key=lambda batch: batch or 0):
        token = old.get(Key(TOKEN, batch, EAGER_SYNC))
        for (name, part), rule in RULES.items():
            key = Key(name, batch, part)
            if key in old or key in new:
                yield _row(key, rule, old.get(key), new.get(key), token, host_is_device=host_is_device)


def _row(
    key: Key, rule: Rule, before: Figure | None, now: Figure | None, token: Figure | None, *, host_is_device: bool
) -> Row:
    if before is None or now is None:
        return Row(key, rule, NOT_COMPARABLE, before, now)
    band = max(_floor(rule, before, token, host_is_device=host_is_device), _noise(before, now))
    change = now.value - before.value
    if abs(change) <= band:
        return Row(key, rule, SAME, before, now, band)
    return Row(key, rule, WORSE if (change < 0) is rule.lower_is_worse else BETTER, before, now, band)


def _floor(rule: Rule, before: Figure, token: Figure | None, *, host_is_device: bool) -> float:
    """Return below what nothing is called a change, in the figure's unit; `token` is the baseline's.

    A phase that is 0 came out negative, by as much of the token as a split may, and was set to that: where it really
    is, nobody knows better.
    """
    if rule.points:
        return rule.floor
    if before.name == PHASE and not before.value:
        return 0.0 if token is None else MAX_RESIDUE * token.value
    return max(rule.floor, HOST * host_is_device) * abs(before.value)


def _noise(before: Figure, now: Figure) -> float:
    """Return what the two sides themselves say of their noise."""
    within = hypot(before.error or 0.0, now.error or 0.0)
    between = hypot(before.spread or 0.0, (now.spread or 0.0) / sqrt(now.runs))
    return SIGMAS * max(within, between)
