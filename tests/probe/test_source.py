"""The probe as a source, on a fake bench."""

import os
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from solpi_exporter.probe import source as module
from solpi_exporter.probe.guard import REASONS, Skip
from solpi_exporter.probe.plan import GENTLE, Opening, Used
from solpi_exporter.probe.quantities import METRICS, ProbeReading
from solpi_exporter.probe.result import (
    EAGER_SYNC,
    EXTRAPOLATED,
    GRAPH_SYNC,
    MEASURED,
    MODELLED,
    Bench,
    Costs,
    Cycle,
    Identity,
    ModeResult,
    SplitResult,
)
from solpi_exporter.probe.setback import SetbackKeeper, Setbacks
from solpi_exporter.probe.source import BOUNDS, ProbeSource, open_bench
from solpi_exporter.probe.split import Split
from solpi_exporter.source import NeedsRestart, SourceAbsent, SourceError
from tests.fakes import FakeBench, FakeClock, batch_result, values

ON = ("cuda:0", "GPU-1")


def source_of(bench: Bench, *batches: int, clock: FakeClock | None = None) -> ProbeSource:
    return ProbeSource(lambda: bench, batches or (1,), nullcontext(), clock or FakeClock(), 300.0)


def shown(source: ProbeSource) -> dict[str, dict[tuple[str, ...], Any]]:
    return values([sample for reading in source.poll() for sample in reading.samples()])


def test_the_published_phases_sum_to_the_published_token() -> None:
    """What a dashboard stacks is what the token took."""
    result = shown(source_of(FakeBench({1: batch_result(1)})))

    phases = result["solpi_probe_phase_seconds"]
    assert phases == {
        (*ON, "1", "compute", "measured"): 5e-3,
        (*ON, "1", "memory", "measured"): 1e-3,
        (*ON, "1", "scheduling", "measured"): 3e-3,
        (*ON, "1", "sync", "measured"): 1e-3,
    }
    assert sum(phases.values()) == pytest.approx(
        result["solpi_probe_token_seconds"][(*ON, "1", "eager_sync", "measured")]
    )
    assert result["solpi_probe_control_ratio"] == {(*ON, "1", "measured"): pytest.approx(0.4)}


def test_a_noisy_batch_has_raw_costs_and_no_split() -> None:
    """It is counted; its neighbour's split stands."""
    result = shown(source_of(FakeBench({1: batch_result(1, "contention"), 8: batch_result(8)}), 1, 8))

    assert {labels[2] for labels in result["solpi_probe_phase_seconds"]} == {"8"}
    assert {labels[2] for labels in result["solpi_probe_token_seconds"]} == {"8"}
    assert {labels[2] for labels in result["solpi_probe_enqueue_seconds"]} == {"1", "8"}
    assert result["solpi_probe_runs_total"] == {("success",): 1, ("noisy",): 1, ("contended",): 0}


def test_step_times_accumulate_over_runs() -> None:
    """The histogram is a total: two runs of three steps are six."""
    source = source_of(FakeBench({1: batch_result(1)}))
    source.poll()

    steps = shown(source)["solpi_probe_step_seconds"][(*ON, "1", "eager_sync")]

    assert steps.count == 6
    assert steps.sum == pytest.approx(0.06)


def test_last_success_is_when_a_split_was_made() -> None:
    """A noisy run does not move it."""
    clock, bench = FakeClock(), FakeBench({1: batch_result(1, "contention")})
    source = source_of(bench, clock=clock)
    assert "solpi_probe_last_success_timestamp_seconds" not in shown(source)

    bench.results[1] = batch_result(1)
    assert shown(source)["solpi_probe_last_success_timestamp_seconds"] == {(): clock.time()}


def test_the_bench_is_made_once_and_kept() -> None:
    """Its memory must not come and go beside a serving engine."""
    made: list[FakeBench] = []

    def make() -> FakeBench:
        made.append(FakeBench({1: batch_result(1)}))
        return made[-1]

    source = ProbeSource(make, (1,), nullcontext(), FakeClock(), 300.0)
    assert made == []

    source.poll()
    source.poll()

    assert len(made) == 1


def test_closing_closes_the_bench() -> None:
    """Where one was made."""
    bench = FakeBench({1: batch_result(1)})
    source = source_of(bench)
    source.close()
    assert not bench.closed

    source.poll()
    source.close()

    assert bench.closed


def test_a_bench_that_cannot_be_made_is_tried_again() -> None:
    """A GPU whose memory is full now may have room later."""
    tries = 0

    def make() -> FakeBench:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise SourceError("does not fit")
        return FakeBench({1: batch_result(1)})

    source = ProbeSource(make, (1,), nullcontext(), FakeClock(), 300.0)
    with pytest.raises(SourceError, match="does not fit"):
        source.poll()

    assert len(source.poll()) == 3


def test_everything_it_yields_is_in_its_table_of_metrics() -> None:
    """The reference is complete."""
    readings = source_of(FakeBench({1: batch_result(1)})).poll()

    assert {sample.metric for reading in readings for sample in reading.samples()} <= set(METRICS)


def test_without_torch_the_probe_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says how to get it."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)

    with pytest.raises(SourceAbsent, match=r"pip install 'torch>=2.4'"):
        open_bench(Opening("auto", "auto", (1,), GENTLE))


def test_a_device_that_is_not_there_is_named() -> None:
    """With what torch sees instead."""
    with pytest.raises(SourceError, match=r"probe.device cuda:7 is not there: torch .* sees \d CUDA device"):
        open_bench(Opening("cuda:7", "auto", (1,), GENTLE))


def test_auto_takes_what_there_is() -> None:
    """Some device, with real torch."""
    identity = open_bench(Opening("auto", "auto", (1,), GENTLE)).identity

    assert (identity.device, identity.shape) in (("cpu", "small"), ("cuda:0", "1b"), ("cuda:0", "8b"))


def test_gpus_are_counted_as_nvml_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's own order is by speed; the variable must be there before CUDA starts, unless somebody has set it."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    open_bench(Opening("cpu", "small", (1,), GENTLE))
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"

    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    open_bench(Opening("cpu", "small", (1,), GENTLE))
    assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_errors_are_published_where_they_are_known() -> None:
    """One series a phase."""
    result = batch_result(1)
    split = replace(result.splits[0], errors={"compute": 1e-5, "control_ratio": 0.01})
    result = replace(result, splits=(split,))

    assert shown(source_of(FakeBench({1: result})))["solpi_probe_phase_standard_error_seconds"] == {
        (*ON, "1", "compute", "measured"): 1e-5
    }


def test_bounds_ascend_from_a_tenth_of_a_millisecond_to_a_second() -> None:
    """Fine enough for a P99 of a token, few enough to store."""
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert (BOUNDS[0], BOUNDS[-1]) == (1e-4, 1.0)
    assert max(high / low for low, high in pairwise(BOUNDS)) <= 1.7


def test_each_cycle_takes_one_more_batch_size_in_turn() -> None:
    """All are seen in as many cycles, and none is shown that was not measured now."""
    bench = FakeBench({batch: batch_result(batch) for batch in (1, 2, 4)})
    source = ProbeSource(lambda: bench, (1,), nullcontext(), FakeClock(), 300.0, rotation=(2, 4))

    batches = [{labels[2] for labels in shown(source)["solpi_probe_control_ratio"]} for _ in range(3)]

    assert batches == [{"1", "2"}, {"1", "4"}, {"1", "2"}]


def test_beside_a_busy_gpu_only_modelled_series_are_shown() -> None:
    """With the host's raw costs; the walls of steps that took turns with others are told nowhere."""
    one = batch_result(1)
    split = SplitResult(MODELLED, Split(6.5e-3, 4e-3, 1e-3, 1e-3, 0.5e-3), {"sync": 1e-5})
    modes = {**one.modes, GRAPH_SYNC: one.modes[EAGER_SYNC]}
    costs = Costs(wakeup=(60e-6, 110e-6), late_round_trips=0.9)
    source = source_of(FakeBench({1: replace(one, modes=modes, splits=(split,))}, raw=costs))

    result = shown(source)

    based = ("phase_seconds", "phase_standard_error_seconds", "token_seconds", "control_ratio")
    assert {labels[-1] for name in based for labels in result[f"solpi_probe_{name}"]} == {"modelled"}
    assert result["solpi_probe_token_seconds"] == {(*ON, "1", "eager_sync", "modelled"): 6.5e-3}
    assert not {"solpi_probe_reclaimable_ratio", "solpi_probe_step_seconds"} & set(result)
    assert result["solpi_probe_runs_total"][("contended",)] == 1
    assert "solpi_probe_last_success_timestamp_seconds" not in result


def test_a_whole_models_figures_are_labelled_extrapolated() -> None:
    """Token, phases, control and what a graph gives back, beside the measured ones."""
    one = batch_result(1)
    launched = replace(one.modes[EAGER_SYNC], full_depth=50e-3)
    modes = {EAGER_SYNC: launched, GRAPH_SYNC: ModeResult(8e-3, 1e-3, 1e-3, 0.0, (8e-3,), full_depth=40e-3)}
    whole = SplitResult(EXTRAPOLATED, Split(50e-3, 30e-3, 5e-3, 14e-3, 1e-3), {})
    result = shown(source_of(FakeBench({1: replace(one, modes=modes, splits=(*one.splits, whole))})))

    assert result["solpi_probe_token_seconds"] == {
        (*ON, "1", "eager_sync", "measured"): 10e-3,
        (*ON, "1", "graph_sync", "measured"): 8e-3,
        (*ON, "1", "eager_sync", "extrapolated"): 50e-3,
        (*ON, "1", "graph_sync", "extrapolated"): 40e-3,
    }
    assert result["solpi_probe_reclaimable_ratio"] == {
        (*ON, "1", "graph_sync", "measured"): pytest.approx(0.2),
        (*ON, "1", "graph_sync", "extrapolated"): pytest.approx(0.2),
    }
    assert result["solpi_probe_control_ratio"][(*ON, "1", "extrapolated")] == pytest.approx(0.3)


def test_raw_costs_are_shown_where_they_are_known() -> None:
    """Quantiles as such, conditions as 0 and 1, and the share of what memory would allow."""
    costs = Costs(
        wakeup=(60e-6, 110e-6),
        round_trip=(22e-6, 70e-6),
        late_round_trips=0.5,
        launch=10e-6,
        graph_launch=20e-6,
        graph_node=1e-6,
        copy_bandwidth=4e12,
        clock=1.98e9,
    )
    result = shown(source_of(FakeBench({1: replace(batch_result(1), head=2e-4, floor=1e-3)}, raw=costs)))

    on = (*ON, "1")
    raw = ("launch", "graph_launch", "graph_node", "round_trip", "wakeup_overshoot", "head")
    assert {name: result[f"solpi_probe_{name}_seconds"] for name in raw} == {
        "launch": {ON: 10e-6},
        "graph_launch": {ON: 20e-6},
        "graph_node": {ON: 1e-6},
        "round_trip": {(*ON, "50"): 22e-6, (*ON, "99"): 70e-6},
        "wakeup_overshoot": {(*ON, "50"): 60e-6, (*ON, "99"): 110e-6},
        "head": {on: 2e-4},
    }
    assert result["solpi_probe_copy_bytes_per_second"] == {ON: 4e12}
    assert result["solpi_probe_sm_clock_hertz"] == {ON: 1.98e9}
    assert result["solpi_probe_gpu_contended"] == {ON: 1.0}
    assert result["solpi_probe_host_starved"] == {ON: 0.0}
    assert result["solpi_probe_speed_of_light_ratio"] == {(*on, "eager_sync"): pytest.approx(0.1)}
    assert result["solpi_probe_residue_seconds"] == {on: 0.0}


def test_the_crossing_batch_is_that_of_the_cycle() -> None:
    """The host needs 6 ms; the GPU 4 at batch 1 and 8 at batch 4: both as long at 2."""
    small = replace(batch_result(1), splits=(SplitResult(MEASURED, Split(10e-3, 3e-3, 1e-3, 5e-3, 1e-3), {}),))
    large = replace(batch_result(4), splits=(SplitResult(MEASURED, Split(10e-3, 7e-3, 1e-3, 1e-3, 1e-3), {}),))

    assert shown(source_of(FakeBench({1: small, 4: large}), 1, 4))["solpi_probe_crossing_batch"] == {
        ON: pytest.approx(2.0)
    }


def test_noise_beside_a_busy_gpu_is_in_no_histogram() -> None:
    """Its steps took turns with somebody else's work as well."""
    costs = Costs(wakeup=(60e-6, 110e-6), late_round_trips=0.9)
    result = shown(source_of(FakeBench({1: batch_result(1, "no quiet round trip yet")}, raw=costs)))

    assert "solpi_probe_step_seconds" not in result
    assert result["solpi_probe_runs_total"][("noisy",)] == 1


def guarded(skip: Skip | None, bench: FakeBench, asked: list[Identity | None]) -> ProbeSource:
    def guard(identity: Identity | None) -> Skip | None:
        asked.append(identity)
        return skip

    return ProbeSource(lambda: bench, (1,), nullcontext(), FakeClock(), 300.0, guard=guard)


def test_a_cycle_that_is_skipped_is_counted_and_leaves_no_gauges() -> None:
    """The bench is not even made; it is tried again soon, since most reasons pass."""
    source = guarded(Skip("memory", "too little"), FakeBench({}), [])

    result = shown(source)

    assert result["solpi_probe_skipped_total"][("memory",)] == 1
    assert sum(result["solpi_probe_skipped_total"].values()) == 1
    assert "solpi_probe_phase_seconds" not in result
    assert "solpi_probe_info" not in result
    assert source.interval == 15.0


def test_every_reason_is_there_before_it_occurs() -> None:
    """A counter that begins with its first count would hide it from `increase`."""
    skipped = shown(source_of(FakeBench({1: batch_result(1)})))["solpi_probe_skipped_total"]

    assert set(skipped) == {("held_back",), *((reason,) for reason in REASONS)}


def test_the_guard_is_told_the_gpu_once_it_is_known() -> None:
    """Before, the bench would have to be made to know it."""
    asked: list[Identity | None] = []
    bench = FakeBench({1: batch_result(1)})
    source = guarded(None, bench, asked)

    source.poll()
    source.poll()

    assert asked == [None, bench.identity]


def test_what_was_used_of_the_gpu_is_told() -> None:
    """As a total; a bench without a GPU has none."""
    bench = FakeBench({1: batch_result(1)}, used=Used(1.5, 0.05))

    assert shown(source_of(bench))["solpi_probe_gpu_seconds_total"] == {(): 1.5}
    assert "solpi_probe_gpu_seconds_total" not in shown(source_of(FakeBench({1: batch_result(1)})))


class SpoiltBench(FakeBench):
    """A bench whose CUDA is spoilt."""

    def costs(self, quiet: object) -> Costs:
        raise NeedsRestart("CUDA failed on cuda:0 (an illegal memory access): see the kernel log for an XID")


def test_a_spoilt_process_holds_the_probe_back_in_the_next() -> None:
    """The setback is saved before anything else happens; what was held back is counted, and CUDA is left alone."""
    clock, saved = FakeClock(), list[Setbacks]()

    def save(setbacks: Setbacks) -> bool:
        saved.append(setbacks)
        return True

    keeper = SetbackKeeper(Setbacks(), save)
    source = ProbeSource(lambda: SpoiltBench({}), (1,), nullcontext(), clock, 300.0, keeper=keeper)
    with pytest.raises(NeedsRestart):
        source.poll()

    keeper = SetbackKeeper(saved[-1], save)
    bench = FakeBench({1: batch_result(1)})
    source = ProbeSource(lambda: bench, (1,), nullcontext(), clock, 300.0, keeper=keeper)
    held_back = shown(source)
    clock.now += 60.0

    assert held_back["solpi_probe_skipped_total"][("held_back",)] == 1
    assert "solpi_probe_phase_seconds" not in held_back
    assert "solpi_probe_phase_seconds" in shown(source)
    assert saved == [Setbacks(1, saved[0].until), Setbacks()]


def test_without_a_place_for_setbacks_the_process_goes_on() -> None:
    """Another one would not know of them, and fail alike, over and over; the probe is held back in this one."""
    source = ProbeSource(lambda: SpoiltBench({}), (1,), nullcontext(), FakeClock(), 300.0)

    with pytest.raises(SourceError, match="restart the exporter") as told:
        source.poll()

    assert not isinstance(told.value, NeedsRestart)
    assert shown(source)["solpi_probe_skipped_total"][("held_back",)] == 1


def test_a_failure_after_a_skip_is_not_tried_again_at_once() -> None:
    """A bench that cannot be opened would be opened each second."""
    skips: list[Skip | None] = [Skip("starting", "not read yet"), None]

    def fail() -> Bench:
        raise SourceError("does not fit")

    source = ProbeSource(fail, (1,), nullcontext(), FakeClock(), 300.0, guard=lambda _: skips.pop(0))
    source.poll()
    with pytest.raises(SourceError):
        source.poll()

    assert source.interval == 300.0


def test_another_device_begins_its_own_histogram() -> None:
    """A worker may come back on another one; its steps are not the former's."""
    bench = FakeBench({1: batch_result(1)})
    source = source_of(bench)
    source.poll()
    bench.identity = replace(bench.identity, device="cpu", uuid="")

    steps = shown(source)["solpi_probe_step_seconds"]

    assert {labels[:2]: value.count for labels, value in steps.items()} == {("cpu", ""): 3}


def test_the_baseline_stands_beside_the_cycle() -> None:
    """What the comparison returns is told, and nothing where there is none yet."""
    cycles: list[Cycle] = []
    bench = FakeBench({1: batch_result(1)})
    beside = ProbeReading(None, (("pinned", 1),), (), None)

    def compare(cycle: Cycle) -> ProbeReading | None:
        cycles.append(cycle)
        return beside if len(cycles) > 1 else None

    source = ProbeSource(lambda: bench, (1,), nullcontext(), FakeClock(), 300.0, compare=compare)

    assert beside not in source.poll()
    assert beside in source.poll()
    assert cycles[0] == Cycle(bench.identity, bench.raw, [batch_result(1)])
