"""What is decided above the rig: what a cycle runs, how it is spread, what it may cost, and when it is modelled."""

import math
from contextlib import nullcontext

import pytest

from solpi_exporter.probe.bench import CHECK_TRIPS, GpuBench
from solpi_exporter.probe.metered import SMALL_SECONDS
from solpi_exporter.probe.plan import GENTLE, THOROUGH, Plan
from solpi_exporter.probe.result import (
    EAGER_SYNC,
    EXTRAPOLATED,
    GRAPH_ASYNC,
    GRAPH_SYNC,
    MEASURED,
    MODELLED,
    BatchResult,
    verdict,
)
from solpi_exporter.probe.shape import shape_of
from solpi_exporter.source import SourceError
from tests.probe.fake_rig import LAUNCH, LAYER, ONCE, FakeRig

BATCHES = (1, 8, 32, 64)


def bench_on(rig: FakeRig, plan: Plan = GENTLE, shape: str = "8b") -> GpuBench:
    return GpuBench(rig, shape_of(shape), BATCHES, plan, rig.rest)


def cycle(bench: GpuBench) -> list[BatchResult]:
    bench.costs(nullcontext())
    return [bench.measure(batch, nullcontext()) for batch in BATCHES]


@pytest.mark.parametrize("plan", [GENTLE, THOROUGH], ids=["gentle", "thorough"])
def test_a_quiet_gpu_is_measured_at_two_depths(plan: Plan) -> None:
    """The split is that of the times that the rig takes, and 32 layers are what their parts come to."""
    result = cycle(bench_on(FakeRig(), plan))[0]

    assert [one.basis for one in result.splits] == [MEASURED, EXTRAPOLATED]
    measured, whole = (one.split for one in result.splits)
    assert measured.compute + measured.memory == pytest.approx(ONCE + 4 * LAYER)
    assert measured.scheduling == pytest.approx(50e-6 + 4 * LAUNCH + 10e-6 - ONCE - 4 * LAYER)
    assert sum(measured.phases.values()) == pytest.approx(measured.token)
    assert whole.compute + whole.memory == pytest.approx(ONCE + 32 * LAYER)
    assert result.modes.keys() == {EAGER_SYNC, GRAPH_SYNC, GRAPH_ASYNC}


def test_a_gentle_cycle_stays_within_its_budget() -> None:
    """0.02 % of 300 s is 60 ms, once the clocks are up; what the rig ran is what is told."""
    rig = FakeRig()
    bench = bench_on(rig)
    cycle(bench)
    rig.calls.clear()

    cycle(bench)

    ran = sum(seconds for name, seconds in rig.calls if name != "rest")
    assert bench.used.cycle == pytest.approx(ran, rel=0.01)
    assert bench.used.cycle <= 0.06


def test_rows_lie_apart() -> None:
    """Between two of them 20 to 50 ms, at random; none is longer than three steps, such as those read one behind."""
    rig = FakeRig()
    bench = bench_on(rig)
    cycle(bench)
    rig.calls.clear()

    cycle(bench)

    rests = [seconds for name, seconds in rig.calls if name == "rest"]
    assert all(0.02 <= seconds <= 0.05 for seconds in rests)
    assert len(set(rests)) == len(rests)
    steps, check = 3 * (ONCE + 4 * LAYER), CHECK_TRIPS * SMALL_SECONDS
    assert steps <= max(rig.rows()) <= 1.0001 * (steps + check)


def test_somebody_who_waits_is_not_kept_waiting() -> None:
    """The thorough plan rests between bursts of round trips only."""
    rig = FakeRig()

    cycle(bench_on(rig, THOROUGH))

    assert {seconds for name, seconds in rig.calls if name == "rest"} == {5e-3}


def test_beside_a_busy_gpu_the_split_is_modelled() -> None:
    """From launched steps and single replays: no other mode, no second depth, no warm-up."""
    rig = FakeRig()
    bench = bench_on(rig)
    cycle(bench)  # once the round trip was a quiet one
    rig.is_busy = lambda: True
    rig.calls.clear()
    before = bench.used.total

    results = cycle(bench)

    assert [[one.basis for one in result.splits] for result in results] == [[MODELLED]] * len(BATCHES)
    assert {"replayed", "pipelined"}.isdisjoint(rig.names())
    assert bench.used.total == pytest.approx(before + bench.used.cycle)
    assert bench.used.cycle <= 0.06


def test_a_gpu_that_never_was_quiet_still_yields_a_split() -> None:
    """Its sync is the part of a round trip that needs no GPU: launching."""
    result = cycle(bench_on(FakeRig(is_busy=lambda: True)))[0]

    (modelled,) = result.splits
    assert modelled.basis == MODELLED
    assert modelled.split.sync == 8e-6
    assert modelled.split.compute + modelled.split.memory == pytest.approx(ONCE + 4 * LAYER)
    assert modelled.split.token == pytest.approx(50e-6 + 4 * LAUNCH + 8e-6)


def test_a_neighbour_that_comes_in_between_is_noticed() -> None:
    """Its batch is modelled, and so the cycle's verdict is that others were there."""
    rig = FakeRig()
    bench = bench_on(rig)
    costs = bench.costs(nullcontext())
    before = bench.measure(1, nullcontext())
    rig.is_busy = lambda: True

    after = bench.measure(8, nullcontext())

    assert not costs.is_contended
    assert before.splits[0].basis == MEASURED
    assert [one.basis for one in after.splits] == [MODELLED]
    assert verdict(costs, [before, after]).gpu_contended


def test_a_cycle_that_takes_too_much_is_stopped() -> None:
    """On a GPU twenty times as slow: the batch that would come next is not run."""
    bench = bench_on(FakeRig(slow=20.0))

    results = cycle(bench)

    assert results[0].noise is None
    assert str(results[-1].noise).startswith("stopped after 0.")
    assert GENTLE.stop <= bench.used.cycle < 2 * GENTLE.stop


def test_what_a_stop_leaves_of_a_batch_is_noisy() -> None:
    """One round is no result: of a single one no error can be told. The batch is counted, and nothing of it shown."""
    rig = FakeRig(slow=30.0)
    bench = bench_on(rig)
    bench.costs(nullcontext())
    rig.calls.clear()

    result = bench.measure(1, nullcontext())

    assert rig.names().count("pipelined") == GENTLE.graph_rounds * 2
    assert rig.names().count("launched") == 3 + 1  # a row of two depths, and what goes before graphs
    assert (result.modes, result.splits) == ({}, ())
    assert str(result.noise).startswith("stopped after 0.3")


def test_clocks_are_warmed_up_once() -> None:
    """What that took is in the total and in no cycle; a later cycle finds them up."""
    bench = bench_on(FakeRig())

    cycle(bench)
    first = bench.used
    cycle(bench)

    assert first.total - first.cycle >= GENTLE.warm_up[0]
    assert bench.used.total == pytest.approx(first.total + bench.used.cycle)


def test_clocks_that_fell_are_warmed_up_again() -> None:
    """An idle GPU's may."""
    rig = FakeRig()
    bench = bench_on(rig)
    cycle(bench)
    first = bench.used
    rig.slow = 3.0

    bench.costs(nullcontext())

    assert bench.used.total - bench.used.cycle - first.total >= GENTLE.warm_up[0]


def test_a_clock_that_runs_backwards_makes_no_split() -> None:
    """A span that is not positive is no measurement."""
    result = cycle(bench_on(FakeRig(span=lambda seconds: -seconds)))[0]

    assert result.splits == ()
    assert result.noise is not None


def test_a_failure_of_the_gpu_is_told() -> None:
    """As the rig says it."""
    bench = bench_on(FakeRig(error=SourceError("CUDA failed on cuda:0")))

    with pytest.raises(SourceError, match="CUDA failed"):
        bench.costs(nullcontext())


def test_bytes_are_the_floor_up_to_some_batch_size() -> None:
    """Above it arithmetic may take longer."""
    rig = FakeRig()
    bench = GpuBench(rig, shape_of("8b"), (128, 129), GENTLE, rig.rest)
    bench.costs(nullcontext())

    floors = [bench.measure(batch, nullcontext()).floor for batch in (128, 129)]

    assert floors == [pytest.approx(2 * shape_of("8b").moved_elements(128) / 4e12), None]


def test_a_shape_of_one_depth_leads_itself() -> None:
    """Without a model to extrapolate to there is one depth."""
    result = cycle(bench_on(FakeRig(), GENTLE, "small"))[0]

    assert [one.basis for one in result.splits] == [MEASURED]
    assert math.isclose(sum(result.splits[0].split.phases.values()), result.splits[0].split.token)
