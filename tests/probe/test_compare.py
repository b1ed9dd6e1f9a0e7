"""Two baselines held against each other: hand-made ones, and the cycles that were recorded on an H200."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from statistics import median

import pytest

from solpi_exporter.probe.baseline import (
    COPY,
    LAUNCH,
    OFF_CPU,
    PHASE,
    RUNS,
    TOKEN,
    Baseline,
    Figure,
    Fingerprint,
    Key,
    figures_of,
    fingerprint_of,
    over,
)
from solpi_exporter.probe.compare import (
    BETTER,
    NOT_COMPARABLE,
    RULES,
    SAME,
    WORSE,
    Comparison,
    Incomparable,
    compare,
)
from solpi_exporter.probe.result import EAGER_SYNC
from solpi_exporter.probe.surroundings import Surroundings
from tests.probe.recorded import RecordedCycle, cycles

CONDITIONS = list(cycles("conditions"))
FAULTS = list(cycles("faults"))
QUIET = ("quiet", "quiet again", "quiet at the end")
UNTOUCHED = ("item in each layer", "late read-back", "sleep on the GPU", "8x context", "slow dispatch", "loaded host",
             "busy neighbour")  # fmt: skip
PRINT = Fingerprint("cuda", "NVIDIA H200", "AMD EPYC 9654", "8b", 4, 512, "bfloat16")


def holding(*figures: Figure, fingerprint: Fingerprint = PRINT, driver: str | None = None) -> Baseline:
    return Baseline(fingerprint, Surroundings(driver=driver), 1.8e9, figures)


def judged(before: Figure, now: Figure, fingerprint: Fingerprint = PRINT) -> str:
    (row,) = compare(holding(before, fingerprint=fingerprint), holding(now, fingerprint=fingerprint)).rows
    return row.verdict


def made_of(recorded: Sequence[RecordedCycle]) -> Baseline:
    figures = over([figures_of(one.costs, one.results) for one in recorded])
    return Baseline(fingerprint_of(recorded[0].identity, PRINT.cpu), Surroundings(), 1.8e9, figures)


def under(condition: str) -> list[RecordedCycle]:
    return [one for one in CONDITIONS if one.tags["condition"] == condition]


def touched(fault: str) -> list[RecordedCycle]:
    return [one for one in FAULTS if one.tags["fault"] == fault and one.tags["has_fault"]]


def untouched(fault: str) -> list[RecordedCycle]:
    return [one for one in FAULTS if one.tags["fault"] == fault and not one.tags["has_fault"]]


def against_untouched(fault: str) -> Comparison:
    return compare(made_of(untouched(fault)[:RUNS]), made_of(touched(fault)[:RUNS]))


def names(result: Comparison, verdict: str) -> set[str]:
    return {row.rule.words for row in result.those(verdict)}


@pytest.mark.parametrize(
    ("now", "verdict"), [(10e-6, SAME), (11.9e-6, SAME), (8.1e-6, SAME), (12.1e-6, WORSE), (7.9e-6, BETTER)]
)
def test_nothing_is_called_a_change_below_the_floor(now: float, verdict: str) -> None:
    """A fifth, of what the host takes."""
    assert judged(Figure(LAUNCH, None, None, 10e-6), Figure(LAUNCH, None, None, now)) == verdict


def test_the_gpus_own_times_have_a_narrow_floor() -> None:
    """Three per cent."""
    before = Figure(PHASE, 1, "compute", 1e-3)

    assert judged(before, replace(before, value=1.02e-3)) == SAME
    assert judged(before, replace(before, value=1.04e-3)) == WORSE


def test_a_cpu_has_no_narrow_floor() -> None:
    """There the host computes."""
    before = Figure(PHASE, 1, "compute", 1e-3)
    on_cpu = replace(PRINT, device="cpu", model="CPU")

    assert judged(before, replace(before, value=1.15e-3), on_cpu) == SAME
    assert judged(before, replace(before, value=1.25e-3), on_cpu) == WORSE


def test_shares_have_a_floor_in_points() -> None:
    """Five, however small the share is."""
    before = Figure(OFF_CPU, 1, None, 0.0)

    assert judged(before, replace(before, value=0.04)) == SAME
    assert judged(before, replace(before, value=0.06)) == WORSE


@pytest.mark.parametrize("fingerprint", [PRINT, replace(PRINT, device="cpu", model="CPU")], ids=["GPU", "CPU"])
def test_a_phase_that_was_0_has_a_floor(fingerprint: Fingerprint) -> None:
    """It came out negative, by up to a twentieth of the token: less than that is not worse."""
    before = holding(Figure(TOKEN, 1, EAGER_SYNC, 1e-3), Figure(PHASE, 1, "memory", 0.0), fingerprint=fingerprint)

    def after(memory: float) -> str:
        now = holding(Figure(PHASE, 1, "memory", memory), fingerprint=fingerprint)
        return next(row.verdict for row in compare(before, now).rows if row.key.name == PHASE)

    assert [after(0.0), after(1e-9), after(0.049e-3), after(0.051e-3)] == [SAME, SAME, SAME, WORSE]


def test_less_bandwidth_is_worse() -> None:
    """Of all other figures, more is."""
    before = Figure(COPY, None, None, 4.0e12)

    assert judged(before, replace(before, value=3.8e12)) == WORSE
    assert judged(before, replace(before, value=4.2e12)) == BETTER
    assert [key for key, rule in RULES.items() if rule.lower_is_worse] == [(COPY, None)]


def test_three_standard_errors_of_the_difference_widen_the_band() -> None:
    """Of both sides, where they are known."""
    before = Figure(PHASE, 1, "memory", 10e-6, error=0.3e-6)

    assert judged(before, Figure(PHASE, 1, "memory", 11.4e-6, error=0.4e-6)) == SAME
    assert judged(before, Figure(PHASE, 1, "memory", 11.6e-6, error=0.4e-6)) == WORSE
    assert judged(before, Figure(PHASE, 1, "memory", 11.4e-6)) == WORSE


def test_all_of_the_baselines_spread_widens_the_band() -> None:
    """The host wanders more slowly than cycles follow each other."""
    before = Figure(TOKEN, 1, EAGER_SYNC, 2e-3, spread=0.5e-3, runs=5)

    assert judged(before, replace(before, value=3.4e-3, spread=0.0)) == SAME
    assert judged(before, replace(before, value=3.6e-3, spread=0.0)) == WORSE


def test_a_regression_does_not_hide_behind_its_own_spread() -> None:
    """Of what figures wander now, a median of several runs is told to 1/sqrt(runs)."""
    before = Figure(TOKEN, 1, EAGER_SYNC, 2e-3, spread=0.0, runs=5)

    assert judged(before, Figure(TOKEN, 1, EAGER_SYNC, 3.4e-3, spread=1e-3, runs=4)) == SAME
    assert judged(before, Figure(TOKEN, 1, EAGER_SYNC, 3.6e-3, spread=1e-3, runs=4)) == WORSE


def test_what_is_absent_on_a_side_is_not_comparable() -> None:
    """Either side; what both lack has no row."""
    one, other = Figure(TOKEN, 1, EAGER_SYNC, 2e-3), Figure(TOKEN, 64, EAGER_SYNC, 3e-3)

    rows = compare(holding(one), holding(other)).rows

    assert [(row.key.batch, row.verdict, row.change) for row in rows] == [
        (1, NOT_COMPARABLE, None),
        (64, NOT_COMPARABLE, None),
    ]


def test_a_figure_of_a_later_program_is_passed_over() -> None:
    """Its direction is not known here."""
    assert compare(holding(Figure("later", 1, None, 1.0)), holding(Figure("later", 1, None, 9.0))).rows == ()


def test_another_machine_or_method_is_refused() -> None:
    """In one line that names what differs."""
    other = replace(PRINT, model="NVIDIA H100", context=1024)

    with pytest.raises(Incomparable) as error:
        compare(holding(), holding(fingerprint=other))

    assert str(error.value) == (
        "not comparable: GPU model NVIDIA H200 -> NVIDIA H100, context 512 -> 1024: "
        "measure with the same flags, or save a new baseline"
    )


def test_another_driver_is_compared_and_told() -> None:
    """It is what a regression after an upgrade must not hide behind."""
    result = compare(holding(driver="580.1"), holding(driver="590.2"))

    assert [str(one) for one in result.surroundings] == ["driver 580.1 -> 590.2"]


@pytest.mark.parametrize("before", QUIET)
@pytest.mark.parametrize("now", QUIET)
def test_a_quiet_machine_is_the_same(before: str, now: str) -> None:
    """Recorded at three times, three cycles each: none of 34 figures is worse."""
    result = compare(made_of(under(before)), made_of(under(now)))

    assert names(result, WORSE) == set()
    assert len(result.rows) == 34


@pytest.mark.parametrize(("runs", "alarms"), [(3, 20), (RUNS, 11), (7, 10)])
def test_false_alarms_are_counted(runs: int, alarms: int) -> None:
    """Quiet cycles against others in 90 pairs, where median tokens lie from 1.6 to 2.7 ms: five are worth taking."""
    groups = [made_of(under(one)) for one in QUIET] + [made_of(untouched(one)[:runs]) for one in UNTOUCHED]

    assert sum(bool(compare(*pair).those(WORSE)) for pair in permutations(groups, 2)) == alarms


def test_false_alarms_are_of_a_host_that_got_slower() -> None:
    """All hold a stretch of slow tokens against one of quick ones: none comes of nothing."""
    groups = [made_of(under(one)) for one in QUIET] + [made_of(untouched(one)[:RUNS]) for one in UNTOUCHED]
    tokens = [
        next(figure.value for figure in each.figures if figure.key == Key(TOKEN, 1, EAGER_SYNC))
        for pair in permutations(groups, 2)
        if compare(*pair).those(WORSE)
        for each in pair
    ]

    assert max(tokens[::2]) < 1.8e-3
    assert min(tokens[1::2]) > 2.2e-3


def test_a_wandering_host_has_wide_bands() -> None:
    """Five sixths of its token in the median; of an .item() in each layer one figure of 34 tells, at one batch size."""
    groups = [made_of(under(one)) for one in QUIET] + [made_of(untouched(one)[:RUNS]) for one in UNTOUCHED]
    bands = [
        row.band / row.before.value
        for pair in permutations(groups, 2)
        for row in compare(*pair).rows
        if row.key == Key(TOKEN, 1, EAGER_SYNC) and row.band is not None and row.before is not None
    ]

    assert median(bands) == pytest.approx(0.84, abs=0.02)
    worse = against_untouched("item in each layer").those(WORSE)
    assert [(row.rule.words, row.key.batch) for row in worse] == [("reclaimable as a graph", 8)]


def test_slow_dispatch_is_found() -> None:
    """In what launches, and in what waits for it; the GPU itself is the same."""
    result = against_untouched("slow dispatch")

    assert {"launch", "enqueue", "scheduling", "token"} <= names(result, WORSE)
    assert {"compute", "memory", "copy"} <= names(result, SAME)


def test_a_loaded_host_is_found() -> None:
    """By the time off the CPU before all, and by what that costs."""
    result = against_untouched("loaded host")

    assert {"off the CPU", "sync", "token", "control ratio"} <= names(result, WORSE)
    assert {"compute", "memory", "copy"} <= names(result, SAME)


@pytest.mark.parametrize("quiet", QUIET)
def test_a_loaded_host_is_found_by_three_cycles(quiet: str) -> None:
    """Whichever quiet ones it is held against."""
    assert "off the CPU" in names(compare(made_of(under(quiet)), made_of(under("host loaded"))), WORSE)


@pytest.mark.parametrize(
    ("fault", "worse", "same"),
    [
        ("late read-back", "sync", "compute"),
        ("sleep on the GPU", "compute", "sync"),
    ],
)
def test_what_was_touched_is_worse(fault: str, worse: str, same: str) -> None:
    """And what was not is the same."""
    result = against_untouched(fault)

    assert worse in names(result, WORSE)
    assert same not in names(result, WORSE)


def test_another_context_is_refused() -> None:
    """Recorded as a fault: it reads eight times the cache."""
    with pytest.raises(Incomparable, match="context 512 -> 4096"):
        against_untouched("8x context")


def test_nothing_is_said_beside_a_busy_neighbour() -> None:
    """No cycle there counts."""
    result = against_untouched("busy neighbour")

    assert {row.verdict for row in result.rows} == {NOT_COMPARABLE}


def test_a_share_falls_as_its_whole_grows() -> None:
    """A GPU that got slower has a better control ratio, beside the token that is worse."""
    result = against_untouched("sleep on the GPU")

    assert "control ratio" in names(result, BETTER)
    assert "token" in names(result, WORSE)
