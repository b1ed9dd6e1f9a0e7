"""One clock over the recorded runs."""

from itertools import pairwise

import pytest

from solpi_exporter.demo.recording import RUNS, RecordedMetrics, Run, load_run
from solpi_exporter.demo.timeline import Timeline
from solpi_exporter.gpu.replay import ReplayDriver
from tests.fakes import FakeClock


def run(name: str, start: float, end: float, *lines: tuple[float, str]) -> Run:
    return Run(name, start, end, lines, (), RecordedMetrics("", [], start, end))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now=50.0)


@pytest.fixture
def timeline(clock: FakeClock) -> Timeline:
    first = run("a", 1000.0, 1010.0, (990.0, "start-up"), (1004.0, "report"))
    second = run("b", 2000.0, 2020.0, (1990.0, "start-up b"), (2030.0, "after the end"))
    return Timeline([first, second], clock)


@pytest.mark.parametrize(
    ("elapsed", "round_", "name", "time"),
    [(0, 0, "a", 1000.0), (9, 0, "a", 1009.0), (10, 0, "b", 2000.0), (29, 0, "b", 2019.0), (35, 1, "a", 1005.0)],
)
def test_runs_follow_one_another_and_begin_again(
    timeline: Timeline, clock: FakeClock, elapsed: float, round_: int, name: str, time: float
) -> None:
    """The time between two recorded runs is cut out."""
    clock.now += elapsed
    now = timeline.now()

    assert (now.round, now.run.name, now.time) == (round_, name, time)


def test_start_up_is_told_at_once_and_nothing_is_left_out(timeline: Timeline) -> None:
    """What was written before a run's beginning is due at it, what came after its end at the end."""
    assert timeline.lines() == [(0.0, "start-up"), (4.0, "report"), (10.0, "start-up b"), (30.0, "after the end")]


def test_energy_goes_on_over_cuts_and_rounds() -> None:
    """What was used while nothing is shown costs nothing, and a new round adds to the one before: power stays true."""
    clock = FakeClock()
    timeline = Timeline([load_run(name) for name in RUNS], clock)
    driver = ReplayDriver({}, timeline.samples(), lambda: timeline.now().time, lambda: timeline.now().round)
    readings = []
    while clock.now < 1000.0 + 2.5 * timeline.seconds:
        readings.append(driver.query_gpu(0, "nvmlDeviceGetTotalEnergyConsumption") / 1e3)
        clock.now += 5.0

    watts = [(after - before) / 5.0 for before, after in pairwise(readings)]
    assert min(watts) >= 0
    assert max(watts) < 750  # the card's limit is 700 W; a reading may be a second old


def test_chapters_say_when_each_run_begins(timeline: Timeline) -> None:
    """In seconds of a round."""
    assert [(start, run.name) for start, run in timeline.chapters()] == [(0.0, "a"), (10.0, "b")]
    assert timeline.seconds == 30.0
