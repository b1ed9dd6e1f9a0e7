"""The baseline that a daemon pins, cycle by cycle on a clock that is passed in."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from solpi_exporter import catalog
from solpi_exporter.kept import Kept
from solpi_exporter.metric import Metric
from solpi_exporter.probe import pinned_quantities as quantities
from solpi_exporter.probe.baseline import TOKEN, Baseline, Figure, Key, figures_of, fingerprint_of, over
from solpi_exporter.probe.pinned import (
    DAY_SECONDS,
    LEAST_CYCLES,
    MOST_SETUPS,
    MOST_VALUES,
    STATE,
    Gathered,
    PinnedBaseline,
    PinnedStates,
)
from solpi_exporter.probe.pinned_quantities import METRICS, BaselineReading
from solpi_exporter.probe.quantities import BatchReading, ConditionsReading
from solpi_exporter.probe.repin import RepinMarker
from solpi_exporter.probe.result import EAGER_SYNC, MEASURED, BatchResult, Costs, Identity, crossing_batch, verdict
from solpi_exporter.probe.surroundings import Surroundings
from solpi_exporter.statedir import StateDir
from tests.fakes import FakeClock, batch_result, capturing_log, values
from tests.probe.recorded import cycles

ONE = Identity("cuda:0", "GPU-1", "NVIDIA H200", "8b", 4, 512, "bfloat16", "2.13.0", 13.0)
CPU = "AMD EPYC 9654"
COSTS = Costs(wakeup=(60e-6, 110e-6), late_round_trips=0.0)
AROUND = Surroundings(driver="580.1", torch="2.13.0", kernel="6.8.0", ecc=True)
BEGIN = 1.8e9
FIVE_MINUTES = 300.0
DAY = int(DAY_SECONDS / FIVE_MINUTES)


@dataclass(slots=True)
class Shelf:
    """Keeps what is saved, and notes it; `works` says whether it can."""

    kept: list[PinnedStates] = field(default_factory=list)
    works: bool = True

    def save(self, state: PinnedStates) -> bool:
        if self.works:
            self.kept.append(state)
        return self.works


@dataclass(slots=True)
class Day:
    """Feeds cycles of batch 1, five minutes apart."""

    baseline: PinnedBaseline
    now: float = BEGIN
    identity: Identity = ONE
    around: Surroundings = AROUND

    def cycle(self, token: float = 10e-3, costs: Costs = COSTS, **other: Any) -> BaselineReading | None:
        result = replace(good(token), **other)
        self.now += FIVE_MINUTES
        return self.baseline.observe(self.identity, costs, [result], self.around, self.now)

    def whole(self) -> BaselineReading:
        for _ in range(DAY + 1):
            reading = self.cycle()
        assert reading is not None
        return reading


def good(token: float = 10e-3) -> BatchResult:
    result = batch_result(1, token=token)
    return replace(result, modes={EAGER_SYNC: replace(result.modes[EAGER_SYNC], off_cpu=0.0)})


def starved() -> dict[str, Any]:
    return {"modes": {EAGER_SYNC: replace(good().modes[EAGER_SYNC], off_cpu=5e-3)}}


def token_of(reading: BaselineReading | None) -> float | None:
    if reading is None:
        return None
    return next(one.value for one in reading.baseline.figures if one.name == TOKEN)


def given_of(identity: Identity = ONE) -> Baseline:
    return Baseline(fingerprint_of(identity, CPU), AROUND, 1.0, (Figure(TOKEN, 1, EAGER_SYNC, 5e-3),))


def test_it_is_pinned_after_a_day() -> None:
    """Not before; as the median of its cycles, and from then on it stays."""
    told: list[Baseline] = []
    day = Day(PinnedBaseline([1], CPU, report_pinned=told.append))
    shown = [token_of(day.cycle(10e-3 if number % 2 else 12e-3)) for number in range(DAY)]
    assert set(shown) == {None}
    assert told == []

    reading = day.cycle(12e-3)

    assert reading is not None
    assert reading.baseline.time == day.now
    assert reading.baseline.surroundings == AROUND
    assert told == [reading.baseline]
    assert day.cycle(30e-3) == reading


def test_a_day_of_few_good_cycles_goes_on() -> None:
    """Until there are twelve."""
    day = Day(PinnedBaseline([1], CPU))
    for _ in range(LEAST_CYCLES - 1):
        day.cycle()
    for _ in range(DAY):
        assert day.cycle(**starved()) is None

    assert token_of(day.cycle()) == 10e-3


def test_every_batch_size_needs_its_cycles() -> None:
    """Those that are measured in turn have them last."""
    baseline = PinnedBaseline([1, 8], CPU)
    shown = []
    for number in range(4 * DAY):
        results = [good(), replace(good(), batch=8)] if number % 50 == 0 else [good()]
        shown.append(baseline.observe(ONE, COSTS, results, AROUND, BEGIN + number * FIVE_MINUTES))

    first = next(reading for reading in shown if reading is not None)
    assert shown.index(first) == 50 * (LEAST_CYCLES - 1)
    assert {figure.batch for figure in first.baseline.figures} == {None, 1, 8}


def test_a_batch_size_that_is_measured_no_more_is_left_out() -> None:
    """The settings were changed on the way."""
    shelf = Shelf()
    first = PinnedBaseline([1, 8], CPU, save=shelf.save)
    for number in range(DAY):
        first.observe(ONE, COSTS, [good(), replace(good(), batch=8)], AROUND, BEGIN + number * FIVE_MINUTES)

    day = Day(PinnedBaseline([1], CPU, shelf.kept[-1]), BEGIN + DAY_SECONDS)
    reading = day.cycle()

    assert reading is not None
    assert {figure.batch for figure in reading.baseline.figures} == {None, 1}


@pytest.mark.parametrize(
    "cycle",
    [
        lambda day: day.cycle(1.0, **starved()),
        lambda day: day.cycle(1.0, replace(COSTS, late_round_trips=0.9)),
        lambda day: day.cycle(1.0, splits=(), noise="shared"),
    ],
    ids=["starved", "contended", "noisy"],
)
def test_a_cycle_that_is_not_quiet_does_not_count(cycle: Callable[[Day], object]) -> None:
    """A good day is what is wanted."""
    day = Day(PinnedBaseline([1], CPU))
    for _ in range(DAY):
        day.cycle()
        cycle(day)

    assert token_of(day.cycle()) == 10e-3


def test_a_cpu_can_have_a_good_day() -> None:
    """It cannot tell whether somebody else uses it, and need not."""
    on_cpu = replace(ONE, device="cpu", uuid="", model="CPU")
    day = Day(PinnedBaseline([1], CPU), identity=on_cpu)
    for _ in range(DAY):
        day.cycle(costs=Costs(wakeup=(60e-6, 110e-6)))

    assert token_of(day.cycle(costs=Costs(wakeup=(60e-6, 110e-6)))) == 10e-3


@pytest.mark.parametrize("change", [{"driver": "590.2"}, {"torch": "2.14.0"}, {"kernel": "6.9.0"}, {"ecc": False}])
def test_an_upgrade_does_not_move_a_pinned_baseline(change: dict[str, Any]) -> None:
    """It is what a regression must not hide behind; the setup of before stays beside it."""
    day = Day(PinnedBaseline([1], CPU))
    pinned = day.whole()
    day.around = replace(AROUND, **change)
    day.identity = replace(ONE, torch="2.14.0")

    reading = day.cycle(30e-3)

    assert reading is not None
    assert reading.baseline == pinned.baseline


def test_an_upgrade_within_the_day_begins_it_anew() -> None:
    """Half a day of each would be a baseline of neither."""
    day = Day(PinnedBaseline([1], CPU))
    for _ in range(DAY // 2):
        day.cycle(30e-3)
    day.around = replace(AROUND, driver="590.2")
    for _ in range(DAY):
        assert day.cycle() is None

    reading = day.cycle()

    assert reading is not None
    assert token_of(reading) == 10e-3
    assert reading.baseline.surroundings.driver == "590.2"


def test_a_setup_that_is_not_known_for_a_while_is_no_upgrade() -> None:
    """The GPUs' source may fail a poll, also the last one of the day."""
    day = Day(PinnedBaseline([1], CPU))
    for _ in range(DAY):
        day.cycle()
    day.around = replace(AROUND, driver=None)

    reading = day.cycle()

    assert reading is not None
    assert reading.baseline.surroundings == AROUND


@pytest.mark.parametrize("change", [{"model": "NVIDIA H100"}, {"shape": "1b"}, {"layers": 8}, {"context": 1024}])
def test_another_machine_or_preset_begins_anew(change: dict[str, Any]) -> None:
    """Its figures say nothing of those of before, which are shown no more."""
    day = Day(PinnedBaseline([1], CPU))
    day.whole()
    day.identity = replace(ONE, **change)

    assert day.cycle(20e-3) is None
    for _ in range(DAY):
        reading = day.cycle(20e-3)
    assert token_of(reading) == 20e-3


def test_another_gpu_of_the_same_model_is_compared() -> None:
    """Under its own UUID, as the live series are."""
    day = Day(PinnedBaseline([1], CPU))
    pinned = day.whole()
    day.identity = replace(ONE, uuid="GPU-2")

    assert day.cycle() == BaselineReading(day.identity, pinned.baseline)


def test_a_new_day_begins_on_command(tmp_path: Path) -> None:
    """Once for each time that it is asked for."""
    marker = RepinMarker(tmp_path)
    day = Day(PinnedBaseline([1], CPU, is_asked=marker.take))
    day.whole()
    marker.ask()

    assert day.cycle(20e-3) is None
    for _ in range(DAY):
        reading = day.cycle(20e-3)
    assert token_of(reading) == 20e-3


def test_a_new_day_is_not_asked_for_beside_a_file(tmp_path: Path) -> None:
    """The marker is taken away, and means nothing later."""
    marker = RepinMarker(tmp_path)
    day = Day(PinnedBaseline([1], CPU, given=given_of(), is_asked=marker.take))
    marker.ask()

    assert token_of(day.cycle()) == 5e-3
    assert not marker.take()


def test_a_restart_moves_nothing(tmp_path: Path) -> None:
    """On a real state directory, in the middle of the day and behind it."""
    state = StateDir(tmp_path)
    log, _ = capturing_log()

    def restarted() -> PinnedBaseline:
        kept = Kept(state, log, FakeClock())
        return PinnedBaseline([1], CPU, kept.read(STATE, PinnedStates), lambda one: kept.write(STATE, one, often=True))

    first = Day(restarted())
    for _ in range(DAY // 2):
        first.cycle()
    second = Day(restarted(), first.now)
    for _ in range(DAY // 2 + 1):
        pinned = second.cycle(10e-3)
    third = Day(restarted(), second.now).cycle(30e-3)
    state.close()

    assert pinned is not None
    assert third == pinned


def test_it_is_saved_before_it_is_shown() -> None:
    """What Prometheus has seen is there after a kill."""
    shelf = Shelf()
    reading = Day(PinnedBaseline([1], CPU, save=shelf.save)).whole()

    assert shelf.kept[-1].states[0].baseline == reading.baseline
    assert len(shelf.kept) == DAY + 1


def test_a_stand_in_does_not_drop_the_baseline() -> None:
    """A GPU that was away for one start, so that the CPU was measured, finds its own again, after a restart too."""
    shelf = Shelf()
    baseline = PinnedBaseline([1], CPU, save=shelf.save)
    day = Day(baseline)
    reading = day.whole()
    stand_in = replace(ONE, device="cpu", uuid="", model="CPU", shape="small")

    away = baseline.observe(stand_in, COSTS, [good()], AROUND, day.now)
    again = PinnedBaseline([1], CPU, shelf.kept[-1]).observe(ONE, COSTS, [good()], AROUND, day.now)

    assert away is None
    assert again == reading


def test_the_setup_that_was_measured_longest_ago_is_forgotten() -> None:
    """The state does not grow for ever."""
    states = PinnedStates()
    for number in range(MOST_SETUPS + 1):
        one = fingerprint_of(replace(ONE, context=16 * (number + 1)), CPU)
        states = states.updated(states.of(one))

    assert len(states.states) == MOST_SETUPS
    assert states.states[0].fingerprint == fingerprint_of(replace(ONE, context=16 * (MOST_SETUPS + 1)), CPU)


def test_what_does_not_change_is_not_saved_again() -> None:
    """Unless it could not be saved."""
    shelf = Shelf()
    day = Day(PinnedBaseline([1], CPU, save=shelf.save))
    day.whole()
    saved = len(shelf.kept)
    day.cycle()
    assert len(shelf.kept) == saved

    shelf.works = False
    day = Day(PinnedBaseline([1], CPU, save=shelf.save))
    day.whole()
    shelf.works = True
    day.cycle()
    day.cycle()
    assert len(shelf.kept) == saved + 1


def test_a_clock_that_is_set_back_does_not_hold_it_up() -> None:
    """The day begins when the earlier of its cycles was."""
    day = Day(PinnedBaseline([1], CPU))
    day.cycle()
    day.now -= 10 * DAY_SECONDS

    assert day.whole()


def test_a_file_of_another_host_is_shown_at_once() -> None:
    """And nothing is gathered or saved beside it."""
    shelf = Shelf()
    day = Day(PinnedBaseline([1], CPU, save=shelf.save, given=given_of()))

    assert token_of(day.cycle()) == 5e-3
    assert shelf.kept == []


def test_a_file_that_does_not_fit_is_told_once() -> None:
    """And this host's own day is gathered instead."""
    told: list[str] = []
    given = given_of(replace(ONE, model="NVIDIA H100"))
    day = Day(PinnedBaseline([1], CPU, given=given, report_unfit=told.append))

    assert token_of(day.whole()) == 10e-3
    assert told == ["GPU model NVIDIA H100 -> NVIDIA H200"]


def test_what_is_kept_of_a_figure_is_bounded_and_spans_all_of_it() -> None:
    """Evenly, from the first cycle on."""
    one = Gathered(*("token", 1, EAGER_SYNC))
    for number in range(DAY):
        one = one.taken(float(number))

    assert one.count == DAY
    assert MOST_VALUES // 2 <= len(one.values) <= MOST_VALUES
    assert one.values == tuple(float(number) for number in range(0, DAY, one.stride))
    assert one.key == Key("token", 1, EAGER_SYNC)


def test_it_stands_beside_the_live_series() -> None:
    """Every series has a live one of the same labels, but for the basis, and the same unit; on a recorded cycle."""
    cycle = next(cycles("conditions"))
    crossing, found = crossing_batch(cycle.results), verdict(cycle.costs, cycle.results)
    live = [ConditionsReading(cycle.identity, cycle.costs, found, crossing)]
    lived = values([one for reading in live for one in reading.samples()])
    for result in cycle.results:
        for name, series in values(list(BatchReading(cycle.identity, result).samples())).items():
            lived.setdefault(name, {}).update(series)
    figures = over([figures_of(cycle.costs, cycle.results)])
    baseline = Baseline(fingerprint_of(cycle.identity, CPU), AROUND, BEGIN, figures)

    shown = values(list(BaselineReading(cycle.identity, baseline).samples()))

    assert set(shown) == {metric.name for metric in METRICS}
    for name, series in shown.items():
        if name in (quantities.INFO.name, quantities.TIMESTAMP.name):
            continue
        of_one = lived[name.replace("_baseline", "")]
        for labels, value in series.items():
            assert value == of_one.get(labels, of_one.get((*labels, MEASURED))), name


def test_the_setup_is_told_as_labels() -> None:
    """What is not known is an empty value, which the exposition leaves out."""
    shown = values(list(BaselineReading(ONE, given_of()).samples()))

    assert shown["solpi_probe_baseline_info"] == {
        ("cuda:0", "GPU-1", "580.1", "", "2.13.0", "6.8.0", "", "on", ""): 1.0,
    }
    assert shown["solpi_probe_baseline_timestamp_seconds"] == {("cuda:0", "GPU-1"): 1.0}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    """As those of the catalogue do: a prefix, a known unit, a sentence."""
    assert re.fullmatch(r"solpi_probe_baseline_[a-z_]+[a-z]", metric.name)
    assert metric.help.endswith(".")
    assert catalog.unit_of(metric) or metric.name.endswith("_per_second")
