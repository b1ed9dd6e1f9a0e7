"""XIDs counted apart from sampling: zeros, floods, failures, and the way back."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from solpi_exporter.board import Board, State
from solpi_exporter.collector import BoardCollector
from solpi_exporter.gpu.driver import (
    NO_PERMISSION,
    NOT_SUPPORTED,
    Driver,
    DriverAbsent,
    DriverFailed,
    GpuLost,
    Unavailable,
    XidEvent,
)
from solpi_exporter.gpu.events import ERRORS, LAST, MEETING_SECONDS, METRICS, MOST_EVENTS, WAIT_SECONDS, XidSource
from solpi_exporter.gpu.xid import CRITICAL, INFO, Class, Xid
from solpi_exporter.metric import Distribution
from solpi_exporter.runner import Runner
from solpi_exporter.source import Reading, SourceAbsent, SourceError
from tests.fakes import FakeClock, capturing_log, values

FALLEN = XidEvent(0, "GPU-a", 79)
FAULT = XidEvent(0, "GPU-a", 13)
FAILED = DriverFailed("the driver answers nothing", 999)

Happening = XidEvent | Exception | None


@dataclass(slots=True)
class FakeEvents:
    """Waits that end with the next of `happenings`, then with `after`; a wait without an event takes its time."""

    clock: FakeClock
    happenings: list[Happening] = field(default_factory=list)
    after: Happening = None
    epoch: int = 0
    waits: list[float] = field(default_factory=list)

    def wait_xid(self, seconds: float) -> XidEvent | None:
        self.waits.append(seconds)
        happening = self.happenings.pop(0) if self.happenings else self.after
        if isinstance(happening, Exception):
            raise happening
        if happening is None:
            self.clock.now += seconds
        return happening


@dataclass(slots=True)
class Rig:
    """A source on a fake driver, the GPUs it is told of, and what it reported as (uuid, code, class, count)."""

    clock: FakeClock = field(default_factory=FakeClock)
    gpus: list[tuple[int, str]] = field(default_factory=lambda: [(0, "GPU-a")])
    reports: list[tuple[str, int, Class, int]] = field(default_factory=list)
    driver: FakeEvents = field(init=False)
    source: XidSource = field(init=False)

    def __post_init__(self) -> None:
        self.driver = FakeEvents(self.clock)
        self.source = XidSource(cast(Driver, self.driver), self.clock, lambda: self.gpus, self.report)

    def report(self, event: XidEvent, row: Xid, count: int) -> None:
        self.reports.append((event.uuid, event.xid, row.kind, count))

    def poll(self, *happenings: Happening) -> dict[str, dict[tuple[str, ...], Any]]:
        self.driver.happenings = list(happenings)
        return shown(self.source.poll())

    def fail(self, error: Exception) -> SourceError:
        self.driver.happenings = [error]
        with pytest.raises(SourceError) as caught:
            self.source.poll()
        return caught.value


def shown(readings: tuple[Reading, ...]) -> dict[str, dict[tuple[str, ...], Any]]:
    return values([sample for reading in readings for sample in reading.samples()])


def key(event: XidEvent) -> tuple[str, ...]:
    return (str(event.gpu), event.uuid, "", str(event.xid))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_critical_codes_start_at_zero(rig: Rig) -> None:
    """A counter that is there before the first event lets increase() see that event."""
    assert rig.poll()[ERRORS.name] == {("0", "GPU-a", "", str(code)): 0 for code in CRITICAL}


def test_a_gpu_that_appears_later_gets_its_zeros(rig: Rig) -> None:
    """Zeros are made at a GPU's first sight, whenever that is."""
    rig.poll()
    rig.gpus.append((1, "GPU-b"))
    rig.clock.now += MEETING_SECONDS

    errors = rig.poll(FALLEN)[ERRORS.name]

    assert errors["1", "GPU-b", "", "79"] == 0
    assert errors[key(FALLEN)] == 1


def test_xids_carry_a_gpus_labels() -> None:
    """XIDs are those of the whole GPU, and join with its other series."""
    assert ERRORS.labels == LAST.labels == ("gpu", "uuid", "gpu_instance", "xid")


def test_every_event_is_counted(rig: Rig) -> None:
    """What waits behind the first event is counted in the same poll, by GPU and code."""
    other = XidEvent(1, "GPU-b", 79)

    errors = rig.poll(FALLEN, other, FAULT, FALLEN)[ERRORS.name]

    assert [errors[key(event)] for event in (FALLEN, other, FAULT)] == [2, 1, 1]


def test_a_code_that_comes_again_shows(rig: Rig) -> None:
    """The same XID twice is 2, not an unchanged last value."""
    assert rig.poll(FAULT)[ERRORS.name][key(FAULT)] == 1
    assert rig.poll(FAULT)[ERRORS.name][key(FAULT)] == 2


def test_the_last_time_is_known_of_codes_that_were_seen(rig: Rig) -> None:
    """The wall clock of the last event; a code that never came has no time."""
    rig.poll(FAULT)
    rig.clock.now += 100.0

    last = rig.poll(FAULT)[LAST.name]

    assert last == {key(FAULT): rig.clock.time()}


def test_a_code_without_a_row_is_counted_too(rig: Rig) -> None:
    """An unknown code is reported as such; nothing is dropped."""
    new = XidEvent(0, "GPU-a", 4711)

    assert rig.poll(new)[ERRORS.name][key(new)] == 1
    assert rig.reports == [("GPU-a", 4711, Class.UNKNOWN, 1)]


def test_a_gpu_keeps_its_totals_under_a_new_index(rig: Rig) -> None:
    """A GPU is its UUID; the index is that of today."""
    rig.poll(FALLEN)
    rig.gpus[:] = [(3, "GPU-a")]
    rig.clock.now += MEETING_SECONDS

    assert rig.poll()[ERRORS.name]["3", "GPU-a", "", "79"] == 1


def test_a_code_of_no_catalogue_has_an_info_series_of_its_own(rig: Rig) -> None:
    """Else a rule that joins the class would drop it; what is in the catalogue is told with that."""
    assert rig.poll(XidEvent(0, "GPU-a", 4711), FALLEN)[INFO.name] == {("4711", "unknown", "look_up"): 1.0}


def test_every_metric_is_listed(rig: Rig) -> None:
    """The reference is written from METRICS."""
    assert set(rig.poll(XidEvent(0, "GPU-a", 4711))) == {metric.name for metric in METRICS}


def test_a_quiet_poll_changes_nothing(rig: Rig) -> None:
    """Equal readings leave the board's version alone, so nothing is rendered anew each second."""
    assert rig.source.poll() == rig.source.poll()


def test_a_poll_waits_once_and_then_only_drains(rig: Rig) -> None:
    """Events that are there already are taken without waiting."""
    rig.poll(FALLEN, FAULT)

    assert rig.driver.waits == [WAIT_SECONDS, 0.0, 0.0]


def test_a_flood_does_not_hold_a_poll(rig: Rig) -> None:
    """A poll ends while events still come; the next one goes on."""
    rig.driver.after = XidEvent(0, "GPU-a", 45)

    rig.poll()

    assert len(rig.driver.waits) == MOST_EVENTS
    assert rig.poll()[ERRORS.name]["0", "GPU-a", "", "45"] == 2 * MOST_EVENTS


def test_a_flood_is_reported_once_a_minute(rig: Rig) -> None:
    """One report at once, the next after a minute, with the number of events since."""
    rig.driver.after = XidEvent(0, "GPU-a", 45)
    for _ in range(61):
        rig.poll()
        rig.clock.now += 1.0

    application = ("GPU-a", 45, Class.APPLICATION)
    assert rig.reports == [(*application, MOST_EVENTS), (*application, 60 * MOST_EVENTS)]


def test_the_end_of_a_flood_is_reported(rig: Rig) -> None:
    """What was held back is told when its minute is over, even if nothing follows."""
    rig.poll(FAULT)
    rig.poll(FAULT)
    rig.clock.now += 60.0
    rig.poll()

    assert [count for *_, count in rig.reports] == [1, 1]


def test_reports_of_other_codes_are_not_held_back(rig: Rig) -> None:
    """The limit is one of each code of each GPU."""
    rig.poll(FAULT, FALLEN, XidEvent(1, "GPU-b", 13))

    assert {(uuid, code) for uuid, code, _, _ in rig.reports} == {("GPU-a", 13), ("GPU-a", 79), ("GPU-b", 13)}


def test_a_wait_that_returns_at_once_is_no_busy_loop(rig: Rig) -> None:
    """A driver that never blocks is asked ten times a second, not as fast as it answers."""
    assert rig.source.interval == pytest.approx(0.1)


@pytest.mark.parametrize("error", [FAILED, GpuLost("GPU 0 is lost"), Unavailable("denied", NO_PERMISSION)])
def test_a_failing_wait_is_an_outage(rig: Rig, error: Exception) -> None:
    """Whatever may pass is down, not absent."""
    failure = rig.fail(error)

    assert not isinstance(failure, SourceAbsent)
    assert str(error) in str(failure)


def test_failures_are_further_and_further_apart(rig: Rig) -> None:
    """From a second to a quarter of a minute; a good wait makes an end of it."""
    intervals = []
    for _ in range(8):
        rig.fail(FAILED)
        intervals.append(rig.source.interval)
    rig.poll()

    assert intervals == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0]
    assert rig.source.interval < 1.0


def test_a_wait_that_fails_for_ever_costs_four_polls_a_minute(rig: Rig) -> None:
    """HAMi#2321: an event wait that returned an error at once took a whole CPU."""
    rig.driver.after = FAILED
    hour = 3600.0

    polls = run(rig, lambda: rig.clock.now < 1000.0 + hour)

    assert polls <= 7 + hour / 15


def run(rig: Rig, on: Callable[[], bool]) -> int:
    """Run a runner as long as `on`, and return how often it polled."""
    board = Board()
    board.add(rig.source.name, rig.source.timeout)
    stop = StopWhen(lambda: not on())
    Runner(rig.source, board, rig.clock, capturing_log()[0]).run(stop)
    return len(rig.driver.waits)


class StopWhen(threading.Event):
    """An event that sets itself."""

    def __init__(self, over: Callable[[], bool]) -> None:
        super().__init__()
        self._over = over

    def is_set(self) -> bool:
        return self._over()


def test_a_lost_gpu_comes_back(rig: Rig) -> None:
    """The driver registers anew; the source goes on counting where it was."""
    rig.poll(FALLEN)
    rig.fail(GpuLost("GPU 0 is lost"))
    rig.driver.epoch += 1

    assert rig.poll(FALLEN)[ERRORS.name][key(FALLEN)] == 2


def test_an_unsupported_wait_is_absence(rig: Rig) -> None:
    """WSL and vGPU have no events: not an outage, and no zeros that would claim there were none."""
    failure = rig.fail(Unavailable("nvmlEventSetCreate", NOT_SUPPORTED))

    assert isinstance(failure, SourceAbsent)
    assert failure.readings == ()
    assert "kernel log" in str(failure)
    assert "\n" not in str(failure)


def test_a_driver_that_comes_later_is_found(rig: Rig) -> None:
    """Absent at first, then counted; no restart."""
    assert isinstance(rig.fail(DriverAbsent("no NVIDIA driver")), SourceAbsent)

    assert rig.poll(FALLEN)[ERRORS.name][key(FALLEN)] == 1


@pytest.mark.parametrize("error", [FAILED, DriverAbsent("unloaded"), GpuLost("lost"), Unavailable("gone")])
def test_counts_and_times_survive_a_failure(rig: Rig, error: Exception) -> None:
    """The error carries all that is known."""
    before = rig.poll(FALLEN, FAULT)

    assert shown(rig.fail(error).readings) == before


def test_a_failure_while_draining_loses_nothing(rig: Rig) -> None:
    """The poll ends well with what it counted; the next one says what is wrong."""
    assert rig.poll(FALLEN, FAILED)[ERRORS.name][key(FALLEN)] == 1

    assert shown(rig.fail(FAILED).readings)[ERRORS.name][key(FALLEN)] == 1


def exposed(board: Board) -> Iterator[tuple[str, str, str, float]]:
    """Yield (name, uuid, xid, value) of what a scrape would show of XIDs."""
    for metric, series in BoardCollector(board.snapshot).collect().items():
        for labels, value in series.items():
            named = dict(zip(metric.labels, labels, strict=True))
            if "uuid" in named and not isinstance(value, Distribution):
                yield metric.name, named["uuid"], named["xid"], value


def test_a_scrape_shows_each_series_once_and_current_while_the_wait_fails(rig: Rig) -> None:
    """The board's last good totals and the failure's own agree."""
    board = Board()
    board.add(rig.source.name, rig.source.timeout)
    runner = Runner(rig.source, board, rig.clock, capturing_log()[0])
    rig.driver.happenings = [None, FALLEN, FALLEN, FAILED, FAILED]
    runner.poll()
    runner.poll()
    well = sorted(exposed(board))
    runner.poll()

    assert board.snapshot().entries[0].state is State.DOWN
    assert sorted(exposed(board)) == well
    assert (ERRORS.name, "GPU-a", "79", 2.0) in well
