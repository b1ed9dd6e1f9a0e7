"""The probe on the page."""

import pytest

from solpi_exporter.board import Board, State
from solpi_exporter.metric import Distribution
from solpi_exporter.overview.probe import Batch, Probe, probe
from solpi_exporter.probe.quantities import BatchReading, ConditionsReading, ProbeReading
from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_SYNC, crossing_batch, verdict
from solpi_exporter.source import Reading, SourceError
from tests.fakes import FakeBench, batch_result
from tests.probe.recorded import cycles

NOW = 1_800_000_000.0
IDENTITY = FakeBench({}).identity
STEPS = Distribution((0.01, 0.02), (50, 100), 100, 1.0)
TOTALS = ProbeReading(IDENTITY, (), (("1", GRAPH_SYNC, Distribution((), (), 5, 1)), ("1", EAGER_SYNC, STEPS)), None)


def board(*readings: Reading) -> Board:
    one = Board()
    one.add("probe", 120.0)
    one.succeed("probe", readings, 1.0, NOW - 30)
    return one


def test_a_cycle_shows_its_split_by_batch() -> None:
    """In the order of size, with the quantiles of single launched steps."""
    one = board(BatchReading(IDENTITY, batch_result(8)), BatchReading(IDENTITY, batch_result(1)), TOTALS)

    shown = probe(one.snapshot(), NOW)

    assert (shown.state, shown.age, shown.identity) == ("ok", 30.0, IDENTITY)
    assert [batch.size for batch in shown.batches] == [1, 8]
    first = shown.batches[0]
    assert (first.steps, first.p50) == (100, 0.01)
    assert first.p99 == pytest.approx(0.0198)
    assert (shown.batches[1].steps, shown.batches[1].p50, shown.batches[1].p99) == (None, None, None)
    split = first.split
    assert split is not None
    assert split.token == 0.010
    assert split.control == pytest.approx(0.4)
    assert [part.name for part in split.parts] == ["compute", "memory", "scheduling", "sync"]


def test_a_noisy_batch_has_no_split() -> None:
    """It is listed, and nothing of it is 0."""
    shown = probe(board(BatchReading(IDENTITY, batch_result(1, noise="too noisy"))).snapshot(), NOW)

    assert shown.batches == (Batch(1, None, None, None, None, None),)


def test_a_cycle_that_was_left_out_shows_nothing() -> None:
    """The figures of the one before are not those of now."""
    assert probe(board(TOTALS).snapshot(), NOW) == Probe("ok")


def test_a_probe_that_fails_or_does_not_run_says_its_state() -> None:
    """Without figures, those of before included."""
    one = board(BatchReading(IDENTITY, batch_result(1)), TOTALS)
    one.fail("probe", SourceError("no memory"), 2.0)
    assert probe(one.snapshot(), NOW) == Probe("down")

    one.set_aside("probe", State.QUIESCED)
    assert probe(one.snapshot(), NOW) == Probe("quiesced")
    assert probe(Board().snapshot(), NOW) == Probe("off")


def test_a_recorded_cycle_says_under_which_conditions() -> None:
    """Each cycle that was recorded on an H200 shows the verdict, and of each batch the split that comes first."""
    for cycle in cycles("conditions"):
        found = verdict(cycle.costs, cycle.results)
        conditions = ConditionsReading(cycle.identity, cycle.costs, found, crossing_batch(cycle.results))
        one = board(*(BatchReading(cycle.identity, result) for result in cycle.results), conditions)

        shown = probe(one.snapshot(), NOW)

        assert shown.conditions == found.name
        splits = {result.batch: result.split for result in cycle.results}
        for batch in shown.batches:
            split = splits[batch.size]
            assert (batch.split is None) == (split is None)
            if batch.split is not None and split is not None:
                assert batch.split.token == split.token
                assert sum(part.seconds for part in batch.split.parts) == pytest.approx(split.token)
