"""What a baseline is made of, by hand-made and recorded cycles."""

from dataclasses import replace

import pytest

from solpi_exporter.probe.baseline import (
    ENQUEUE,
    OFF_CPU,
    PHASE,
    PROBE_VERSION,
    RECLAIMABLE,
    TOKEN,
    WAKEUP,
    Figure,
    Fingerprint,
    Key,
    Measured,
    conditions,
    figures_of,
    fingerprint_of,
    over,
)
from solpi_exporter.probe.compare import RULES
from solpi_exporter.probe.result import (
    EAGER_SYNC,
    EXTRAPOLATED,
    GRAPH_SYNC,
    MODELLED,
    BatchResult,
    Costs,
    Identity,
    ModeResult,
    SplitResult,
)
from solpi_exporter.probe.rounds import CONTROL_RATIO
from solpi_exporter.probe.split import Split
from tests.fakes import batch_result
from tests.probe.recorded import cycles

ONE = Identity("cuda:0", "GPU-1", "NVIDIA H200", "8b", 4, 512, "bfloat16", "2.13.0", 13.0)
COSTS = Costs(wakeup=(60e-6, 110e-6))
PRINT = Fingerprint("cuda", "NVIDIA H200", "AMD EPYC 9654", "8b", 4, 512, "bfloat16", PROBE_VERSION)


def test_a_fingerprint_is_what_makes_figures_incomparable() -> None:
    """Models, preset and method; neither the single GPU nor torch."""
    assert fingerprint_of(ONE, "AMD EPYC 9654") == PRINT
    assert fingerprint_of(replace(ONE, device="cuda:1", uuid="GPU-2", torch="2.14.0", cuda=13.1), PRINT.cpu) == PRINT


def test_fingerprints_tell_what_differs() -> None:
    """In words, from one to the other."""
    other = replace(PRINT, model="NVIDIA H100", cpu=None, context=1024, probe_version=PROBE_VERSION + 1)

    assert PRINT.differences(PRINT) == ()
    assert PRINT.differences(other) == (
        "GPU model NVIDIA H200 -> NVIDIA H100",
        "CPU model AMD EPYC 9654 -> None",
        "context 512 -> 1024",
        f"probe version {PROBE_VERSION} -> {PROBE_VERSION + 1}",
    )


def test_a_cycle_has_its_costs_and_each_batchs_split() -> None:
    """With a standard error where one is known."""
    split = SplitResult("measured", Split(10e-3, 5e-3, 1e-3, 3e-3, 1e-3), {"sync": 2e-6, CONTROL_RATIO: 0.01})
    modes = {
        EAGER_SYNC: ModeResult(10e-3, 6e-3, 5e-3, 1e-3, (9e-3, 11e-3)),
        GRAPH_SYNC: ModeResult(7e-3, 1e-3, 1e-3, 0.0, (7e-3,)),
    }

    found = figures_of(COSTS, [BatchResult(8, modes, (split,))])

    assert found == {
        Key(WAKEUP, part="50"): (60e-6, None),
        Key(PHASE, 8, "compute"): (5e-3, None),
        Key(PHASE, 8, "memory"): (1e-3, None),
        Key(PHASE, 8, "scheduling"): (3e-3, None),
        Key(PHASE, 8, "sync"): (1e-3, 2e-6),
        Key(CONTROL_RATIO, 8): (pytest.approx(0.4), 0.01),
        Key(TOKEN, 8, EAGER_SYNC): (10e-3, None),
        Key(TOKEN, 8, GRAPH_SYNC): (7e-3, None),
        Key(ENQUEUE, 8, EAGER_SYNC): (6e-3, None),
        Key(ENQUEUE, 8, GRAPH_SYNC): (1e-3, None),
        Key(OFF_CPU, 8): (pytest.approx(0.1), None),
        Key(RECLAIMABLE, 8, GRAPH_SYNC): (pytest.approx(0.3), None),
    }


def test_a_batch_without_a_measured_split_has_no_figures() -> None:
    """Neither a noisy one, nor one that was modelled."""
    quiet = batch_result(1)
    modelled = replace(quiet, splits=(replace(quiet.splits[0], basis=MODELLED),))

    assert figures_of(COSTS, [batch_result(1, "shared"), modelled]).keys() == {Key(WAKEUP, part="50")}


def test_the_whole_model_is_no_figure() -> None:
    """It follows from two depths with 9.3 times the error."""
    quiet = batch_result(1)
    whole = SplitResult(EXTRAPOLATED, Split(80e-3, 40e-3, 8e-3, 24e-3, 8e-3), {})

    assert figures_of(COSTS, [replace(quiet, splits=(*quiet.splits, whole))]) == figures_of(COSTS, [quiet])


def test_a_cycle_beside_a_busy_neighbour_does_not_count() -> None:
    """Not even its launches: they take turns with somebody else's work, too."""
    assert figures_of(replace(COSTS, late_round_trips=0.9), [batch_result(1)]) == {}


def test_a_figure_is_the_median_of_its_cycles() -> None:
    """With how they spread, and the median of their errors; of the cycles that have it."""
    key, other = Key(TOKEN, 1, EAGER_SYNC), Key(WAKEUP, part="50")
    runs: list[dict[Key, Measured]] = [{key: (1.0, 0.1)}, {key: (5.0, 0.3), other: (60e-6, None)}, {key: (3.0, 0.2)}]

    assert over(runs) == (
        Figure(TOKEN, 1, EAGER_SYNC, 3.0, 0.2, 2.0, 3),
        Figure(WAKEUP, None, "50", 60e-6, None, None, 1),
    )


@pytest.mark.parametrize("wrong", [{"runs": 0}, {"error": -1e-6}, {"spread": -1e-6}])
def test_a_figure_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    """A file may hold anything."""
    with pytest.raises(ValueError, match="figure token has no runs, or an error or spread below zero"):
        Figure(TOKEN, 1, EAGER_SYNC, 1e-3, **wrong)  # type: ignore[arg-type]


def test_conditions_are_those_of_most_cycles() -> None:
    """Not known where a cycle cannot tell, as on a CPU."""
    quiet, starved = batch_result(1), batch_result(1)
    starved = replace(starved, modes={EAGER_SYNC: replace(starved.modes[EAGER_SYNC], off_cpu=5e-3)})
    costs = replace(COSTS, late_round_trips=0.0)

    assert conditions([(costs, [quiet]), (costs, [starved]), (costs, [starved])]) == "host starved"
    assert conditions([(COSTS, [quiet])]) is None


@pytest.mark.parametrize("name", ["conditions", "faults"])
def test_every_figure_of_a_recorded_cycle_has_a_rule(name: str) -> None:
    """What is stored can be judged, and everything that can be judged occurs."""
    found = {(key.name, key.part) for one in cycles(name) for key in figures_of(one.costs, one.results)}

    assert found == RULES.keys()
