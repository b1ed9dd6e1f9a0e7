"""What was recorded on an H200, under conditions and with faults: what moves is what was touched.

The rows are those of `python -m benchmarks.probe_conditions --out FILE` and `... probe_faults --out FILE`.
"""

from collections.abc import Callable
from contextlib import nullcontext
from statistics import median

import pytest

from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_ASYNC, GRAPH_SYNC, MODELLED, BatchResult, verdict
from solpi_exporter.probe.source import ProbeSource
from tests.fakes import FakeBench, FakeClock, values
from tests.probe.recorded import RecordedCycle, cycles

CONDITIONS = list(cycles("conditions"))
FAULTS = list(cycles("faults"))
PHASES = ("compute", "memory", "scheduling", "sync")


def phase(name: str) -> Callable[[BatchResult], float]:
    def read(one: BatchResult) -> float:
        assert one.split is not None
        return float(getattr(one.split, name))

    return read


def off_cpu(one: BatchResult) -> float:
    return one.modes[EAGER_SYNC].off_cpu


def results(fault: str, batch: int, *, faulty: bool) -> list[BatchResult]:
    cycles = [one for one in FAULTS if one.tags["fault"] == fault and one.tags["has_fault"] is faulty]
    return [result for one in cycles for result in one.results if result.batch == batch]


def rise(fault: str, batch: int, figure: Callable[[BatchResult], float]) -> float:
    """Return the median difference that a fault makes, in seconds, pair by pair."""
    pairs = zip(results(fault, batch, faulty=False), results(fault, batch, faulty=True), strict=True)
    return float(median(figure(after) - figure(before) for before, after in pairs))


@pytest.mark.parametrize("cycle", CONDITIONS, ids=lambda one: one.tags["condition"])
def test_the_verdict_is_that_of_the_condition(cycle: RecordedCycle) -> None:
    """Quiet, host starved, GPU contended, both."""
    assert verdict(cycle.costs, cycle.results).name == cycle.tags["expected"]


@pytest.mark.parametrize("cycle", [*CONDITIONS, *FAULTS], ids=lambda one: "-".join(map(str, one.tags.values())))
def test_every_recorded_split_sums_to_its_token(cycle: RecordedCycle) -> None:
    """On whatever basis; the figures were rounded to a tenth of a nanosecond."""
    splits = [one.split for result in cycle.results for one in result.splits]

    assert splits
    for split in splits:
        assert sum(split.phases.values()) == pytest.approx(split.token, abs=1e-9)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(
    ("fault", "touched", "least", "most"),
    [
        ("item in each layer", "scheduling", 70e-6, 1e-3),
        ("late read-back", "sync", 1.9e-3, 2.1e-3),
        ("sleep on the GPU", "compute", 1.95e-3, 2.1e-3),
        ("8x context", "memory", 100e-6, 200e-6),
        ("slow dispatch", "scheduling", 1.75e-3, 3.5e-3),
    ],
)
def test_what_moves_is_what_was_touched(fault: str, touched: str, least: float, most: float, batch: int) -> None:
    """The phase that was touched rises by what was injected, and no other one rises by two thirds as much."""
    rises = {name: rise(fault, batch, phase(name)) for name in PHASES}

    assert least < rises[touched] < most
    assert all(rises[name] < 0.6 * rises[touched] for name in PHASES if name != touched), rises


@pytest.mark.parametrize("batch", [1, 8])
def test_a_loaded_host_loses_its_cpu(batch: int) -> None:
    """Off-CPU time tells most, then sync; scheduling leaves its slow steps out, and the GPU's part does not move."""
    assert rise("loaded host", batch, off_cpu) > 1e-3
    assert rise("loaded host", batch, phase("sync")) > 1e-3
    assert rise("loaded host", batch, phase("scheduling")) > 0.1e-3
    assert abs(rise("loaded host", batch, phase("compute"))) < 5e-6


@pytest.mark.parametrize("mode", [GRAPH_SYNC, GRAPH_ASYNC])
def test_eager_instead_of_graph_is_reclaimable(mode: str) -> None:
    """A step that is launched as a graph has little to give back; launched call by call it has half and more."""
    assert rise("eager instead of graph", 1, lambda one: one.reclaimable(mode) or 0.0) > 0.4


@pytest.mark.parametrize("faulty", [False, True])
def test_a_busy_neighbour_leaves_only_modelled_series(faulty: bool) -> None:
    """Through the probe's own source: no series on another basis beside it, none of that basis without it."""
    beside = [one for one in FAULTS if one.tags["fault"] == "busy neighbour" and one.tags["has_fault"] is faulty]
    assert len(beside) == 7
    for cycle in beside:
        bench = FakeBench({one.batch: one for one in cycle.results}, cycle.identity, cycle.costs)
        source = ProbeSource(lambda bench=bench: bench, (1, 8), nullcontext(), FakeClock(), 300.0)  # type: ignore[misc]

        shown = values([sample for reading in source.poll() for sample in reading.samples()])

        bases = {labels[-1] for labels in shown["solpi_probe_phase_seconds"]}
        assert (bases == {MODELLED}) is faulty
        assert shown["solpi_probe_gpu_contended"] == {("cuda:0", "GPU-0"): float(faulty)}


def test_a_modelled_gpu_is_the_measured_one() -> None:
    """Replays beside a busy neighbour tell the device's part of a token within 1 % of what it is without one."""
    for batch in (1, 8):
        modelled = rise("busy neighbour", batch, phase("compute")) + rise("busy neighbour", batch, phase("memory"))
        alone = results("busy neighbour", batch, faulty=False)
        graph = median(phase("compute")(one) + phase("memory")(one) for one in alone)

        assert abs(modelled) < 0.01 * graph
