"""When a worker may be started: on processes that end, or do not, as a test says."""

from collections.abc import Sequence

import pytest

from solpi_exporter.probe.child import Child
from solpi_exporter.probe.keeper import BACK_OFF, Keeper
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock
from tests.probe.workers import FakeProcess, child_of

DEAD = 0


class Kept:
    """A keeper, and the processes that it has started; the next has the next status, the last of which stays."""

    def __init__(self, statuses: Sequence[int | None] = (DEAD,)) -> None:
        self.clock = FakeClock()
        self.started: list[FakeProcess] = []
        self._statuses = statuses
        self.keeper = Keeper(self.start, self.clock)

    def start(self) -> Child:
        self.started.append(FakeProcess(self._statuses[min(len(self.started), len(self._statuses) - 1)]))
        return child_of(self.started[-1])

    def refusal(self) -> str:
        with pytest.raises(SourceError) as error:
            self.keeper.child()
        return str(error.value)

    def lose(self) -> float:
        """Lose a worker; return the seconds until there is another one."""
        self.keeper.child()
        self.keeper.lose("it died")
        begun, before = self.clock.now, len(self.started)
        while len(self.started) == before:
            try:
                self.keeper.child()
            except SourceError:
                self.clock.now += 1.0
        return self.clock.now - begun


def test_a_worker_is_kept() -> None:
    """It holds memory that must not come and go."""
    kept = Kept()

    assert kept.keeper.child() is kept.keeper.child()
    assert len(kept.started) == 1
    kept.keeper.close()


def test_each_loss_makes_the_next_start_wait_longer() -> None:
    """A minute, 5, 15, and an hour from then on."""
    kept = Kept()

    assert [kept.lose() for _ in range(5)] == [*BACK_OFF, BACK_OFF[-1]] == [60.0, 300.0, 900.0, 3600.0, 3600.0]
    kept.keeper.close()


def test_a_worker_that_does_its_work_begins_anew() -> None:
    """What was lost long ago makes nobody wait."""
    kept = Kept()
    waits = [kept.lose(), kept.lose()]

    kept.keeper.trust()

    assert [*waits, kept.lose()] == [60.0, 300.0, 60.0]
    kept.keeper.close()


def test_until_then_the_same_words_say_when() -> None:
    """So they are logged once, however often it is asked."""
    kept = Kept()
    kept.keeper.child()

    said = str(kept.keeper.lose("the probe's worker gave no sign of life for 10 s"))

    assert said == "the probe's worker gave no sign of life for 10 s; tried again at 2027-01-15 08:17:40 UTC"
    kept.clock.now += 59.0
    assert kept.refusal() == said
    assert len(kept.started) == 1


def test_no_worker_is_started_beside_one_that_cannot_be_killed() -> None:
    """Its process is named, with the remedy, for as long as it lives; then a new one is started."""
    kept = Kept([None, DEAD])
    kept.keeper.child()

    said = str(kept.keeper.lose("it was silent"))

    assert said == (
        "it was silent; process 4711 cannot be killed, and none is started beside it: it hangs in the driver, see "
        "dmesg; where it stays, only a reboot frees its GPU"
    )
    kept.clock.now += 86400.0
    assert kept.refusal() == said
    kept.started[0].status = -9
    kept.keeper.child()
    assert len(kept.started) == 2
    kept.keeper.close()


def test_what_was_stuck_and_has_died_still_had_to_wait() -> None:
    """It is a loss like any other, and is not called stuck any more."""
    kept = Kept([None, DEAD])
    kept.keeper.child()
    kept.keeper.lose("it was silent")
    kept.started[0].status = -9

    assert kept.refusal() == "it was silent; tried again at 2027-01-15 08:17:40 UTC"


def test_closing_ends_the_worker() -> None:
    """And one that cannot be ended holds nobody up."""
    kept = Kept([None])
    kept.keeper.child()

    kept.keeper.close()

    assert kept.started[0].signals == ["TERM", "KILL"]


def test_a_worker_that_cannot_be_started_is_no_loss() -> None:
    """A setting that is wrong may be put right at once."""
    clock = FakeClock()

    def fail() -> Child:
        raise SourceError("probe.python cannot be run")

    keeper = Keeper(fail, clock)
    for _ in range(2):
        with pytest.raises(SourceError, match="cannot be run"):
            keeper.child()
