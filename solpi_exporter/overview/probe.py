"""The probe on the page: the split of its last cycle by batch size, and on what and how it was measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from solpi_exporter.board import Entry, Snapshot, State
from solpi_exporter.metric import Distribution
from solpi_exporter.overview.split import TokenSplit, split_of
from solpi_exporter.probe.quantities import BatchReading, ConditionsReading, ProbeReading
from solpi_exporter.probe.result import EAGER_SYNC, BatchResult, Identity


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch size of the last cycle, without a split where that was noisy.

    P50 and P99 are of the `steps` that were timed one by one since the start: a gentle cycle times a few.
    """

    size: int
    basis: str | None
    split: TokenSplit | None
    steps: float | None
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Probe:
    """The probe's state and, where its last cycle was not left out, what that has measured and how long ago."""

    state: str
    age: float | None = None
    identity: Identity | None = None
    conditions: str | None = None
    batches: tuple[Batch, ...] = ()


def probe(snapshot: Snapshot, now: float) -> Probe:
    """Return what the probe has measured by `now` (Unix)."""
    return next((_probe(entry, now) for entry in snapshot.entries if entry.source == "probe"), Probe(State.OFF.value))


def _probe(entry: Entry, now: float) -> Probe:
    readings = [one for one in entry.readings if isinstance(one, BatchReading)]
    if entry.state is not State.OK or not readings or entry.success_time is None:
        return Probe(entry.state.value)
    totals = (one for one in entry.readings if isinstance(one, ProbeReading))
    steps = {batch: seen for one in totals for batch, mode, seen in one.steps if mode == EAGER_SYNC}
    conditions = (one.verdict.name for one in entry.readings if isinstance(one, ConditionsReading))
    batches = sorted((_batch(one.result, steps) for one in readings), key=lambda one: one.size)
    return Probe(
        entry.state.value, now - entry.success_time, readings[0].identity, next(conditions, None), tuple(batches)
    )


def _batch(result: BatchResult, steps: Mapping[str, Distribution]) -> Batch:
    seen = steps.get(str(result.batch))
    basis, split = None, None
    if result.splits:
        basis, taken = result.splits[0].basis, result.splits[0].split
        split = split_of(taken.token, taken.control_ratio, taken.phases)
    if seen is None:
        return Batch(result.batch, basis, split, None, None, None)
    return Batch(result.batch, basis, split, seen.count, seen.quantile(0.5), seen.quantile(0.99))
