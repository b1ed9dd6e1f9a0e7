"""One clock over the recorded runs."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from solpi_exporter.demo.recording import RUNS, RecordedMetrics, Run, load_run
from solpi_exporter.demo.timeline import Timeline
from solpi_exporter.gpu.driver import Device
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


class Stage:
    """The shipped runs' GPU on a clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timeline = Timeline([load_run(name) for name in RUNS], self.clock)
        now = self.timeline.now
        self.driver = ReplayDriver(self.timeline.recording(), lambda: now().elapsed, lambda: now().round)

    def steps(self, seconds: float, rounds: float) -> Iterator[None]:
        """Move the clock on, over so many rounds."""
        while self.clock.now < 1000.0 + rounds * self.timeline.seconds:
            yield
            self.clock.now += seconds


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_round_is_timed_from_its_beginning(stage: Stage) -> None:
    """What holds throughout is there at once, samples follow second by second, and none is of a run's start-up."""
    recording = stage.timeline.recording()
    power, name = (recording.tracks[f"0 nvmlDeviceGet{what}"] for what in ("PowerUsage", "Name"))

    assert (recording.start, name.times) == (0.0, (0.0,))
    assert stage.timeline.seconds - 1.5 < recording.end <= stage.timeline.seconds
    assert all(0.0 < after - before < 1.5 for before, after in pairwise((0.0, *power.times)))
    assert len(power.times) == sum(
        run.start <= sample["t"] <= run.end for _, run in stage.timeline.chapters() for sample in run.samples
    )


def test_the_recording_says_what_the_run_measured(stage: Stage) -> None:
    """At any second, the sample that was taken last."""
    for _ in stage.steps(7.0, 1.0):
        now = stage.timeline.now()
        last = [sample for sample in now.run.samples if now.run.start <= sample["t"] <= now.time]
        if last:
            assert stage.driver.ask(Device(0), "nvmlDeviceGetPowerUsage") == last[-1]["power_mw"]


def test_the_sample_buffer_goes_on_over_cuts_and_rounds(stage: Stage) -> None:
    """Stamps ascend, never further apart than a sample may stand for, so that busy seconds have no gap."""
    stamps = [0]
    for _ in stage.steps(5.0, 2.5):
        stamps += [stamp for stamp, _ in stage.driver.samples(Device(0), 1, stamps[-1])]

    assert all(0 < after - before < 2_000_000 for before, after in pairwise(stamps))
    assert stamps[-1] == pytest.approx((stage.clock.now - 1005.0) * 1e6, abs=5e6)


def test_clocks_event_time_goes_on_over_cuts_and_rounds(stage: Stage) -> None:
    """A total that fell would look like a driver that was loaded anew."""
    held = [stage.driver.fields(Device(0), [(74, 0)])[74, 0] for _ in stage.steps(5.0, 2.5)]

    assert held == sorted(held)


def test_energy_goes_on_over_cuts_and_rounds(stage: Stage) -> None:
    """What was used while nothing is shown costs nothing, and a new round adds to the one before: power stays true."""
    call = "nvmlDeviceGetTotalEnergyConsumption"
    readings = [stage.driver.ask(Device(0), call) / 1e3 for _ in stage.steps(5.0, 2.5)]

    watts = [(after - before) / 5.0 for before, after in pairwise(readings)]
    assert min(watts) >= 0
    assert max(watts) < 750  # the card's limit is 700 W; a reading may be a second old


def test_chapters_say_when_each_run_begins(timeline: Timeline) -> None:
    """In seconds of a round."""
    assert [(start, run.name) for start, run in timeline.chapters()] == [(0.0, "a"), (10.0, "b")]
    assert timeline.seconds == 30.0
