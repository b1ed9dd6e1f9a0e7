"""The vocabulary of the trunk: a metric says what can be measured, a sample is one value of it.

Pure data that every source yields and the collector turns into an exposition; knows nothing of either.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate


class Kind(Enum):
    """How a metric behaves over time, in Prometheus' terms."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"

    @property
    def cumulative(self) -> bool:
        """Whether a value stays true while its source fails: totals do, a last-seen gauge does not."""
        return self is not Kind.GAUGE


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a histogram has seen: `counts[i]` observations were at most `bounds[i]`; `count` and `sum` of all."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    count: float
    sum: float

    def since(self, before: "Distribution") -> "Distribution | None":
        """Return what was observed after `before`; None where that is not an earlier state of the same histogram."""
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=False))
        count = self.count - before.count
        if self.bounds != before.bounds or min(*counts, count) < 0:
            return None
        return Distribution(self.bounds, counts, count, self.sum - before.sum)

    def quantile(self, share: float) -> float | None:
        """Return the value that a share of all (above 0) do not exceed; None where nothing was observed.

        Interpolated within its bucket as Prometheus' histogram_quantile() does: what lies above the last bound counts
        as that bound.
        """
        rank = share * self.count
        if rank <= 0 or not self.bounds:
            return None
        index = bisect_left(self.counts, rank)
        if index == len(self.bounds):
            return self.bounds[-1]
        low, below = (self.bounds[index - 1], self.counts[index - 1]) if index else (min(0.0, self.bounds[0]), 0.0)
        return low + (self.bounds[index] - low) * (rank - below) / (self.counts[index] - below)


@dataclass(frozen=True, slots=True, eq=False)  # each is made once; as a key it is looked up for every sample
class Metric:
    """One row of the metric reference; `help` names unit and origin, `labels` the label names in their order."""

    name: str
    help: str
    kind: Kind = Kind.GAUGE
    labels: tuple[str, ...] = ()

    def sample(self, value: "float | Distribution", *labels: str) -> "Sample":
        """Make one value of this metric."""
        return Sample(self, labels, value)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric under one set of label values.

    Raises ValueError when the label values do not fit the metric's label names.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.metric.labels):
            raise ValueError(f"{self.metric.name} takes labels {self.metric.labels}, got {self.labels}")


@dataclass(slots=True)
class Tally:
    """An accumulating histogram: kept by the source that sees the events, read as a Distribution."""

    bounds: tuple[float, ...]
    sum: float = 0.0
    _buckets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._buckets = [0] * (len(self.bounds) + 1)

    def observe(self, values: Sequence[float]) -> None:
        """Count each value into its bucket (`bounds` are inclusive, as Prometheus' `le`)."""
        for value in values:
            self._buckets[bisect_left(self.bounds, value)] += 1
            self.sum += value

    def distribution(self) -> Distribution:
        """Return what has been seen so far."""
        totals = tuple(accumulate(self._buckets))
        return Distribution(self.bounds, totals[:-1], totals[-1], self.sum)
