"""What every source said last, and how it fares."""

from solpi_exporter.board import Board, Entry, Outcome, State
from solpi_exporter.source import OriginGone, SourceAbsent, SourceError
from tests.fakes import FakeReading, values


def board_with(source: str = "a", timeout: float = 10.0) -> Board:
    board = Board()
    board.add(source, timeout)
    return board


def entry(board: Board) -> Entry:
    return board.snapshot().entries[0]


def test_a_source_is_pending_until_its_first_poll_ends() -> None:
    """Nothing is claimed of a source that has not been heard."""
    board = board_with()
    board.begin("a", 0.0)

    assert entry(board).state is State.PENDING
    assert list(entry(board).samples()) == []


def test_success_replaces_all_readings() -> None:
    """What a later poll leaves out is gone, as a GPU that has vanished must be."""
    board = board_with()
    board.succeed("a", [FakeReading("x", 1.0), FakeReading("y", 2.0)], now=1.0, wall=100.0)

    board.succeed("a", [FakeReading("y", 3.0)], now=2.0, wall=101.0)

    assert values(list(entry(board).samples()))["solpi_test_value"] == {("y",): 3.0}
    assert entry(board).success_time == 101.0


def test_failure_withdraws_gauges_and_keeps_totals() -> None:
    """A failed poll must not show the last good gauges; a counter stays true."""
    board = board_with()
    board.succeed("a", [FakeReading("x", 1.0, events=7.0)], now=1.0, wall=100.0)

    board.fail("a", SourceError("gone"), now=2.0)

    assert values(list(entry(board).samples())) == {"solpi_test_events_total": {("x",): 7.0}}
    assert entry(board).state is State.DOWN
    assert entry(board).success_time == 100.0


def test_a_failure_can_tell_something_itself() -> None:
    """Readings that come with the error are shown, until the next success replaces them."""
    board = board_with()
    board.fail("a", SourceError("no answer", [FakeReading("up", 0.0)]), now=1.0)
    assert values(list(entry(board).samples()))["solpi_test_value"] == {("up",): 0.0}

    board.succeed("a", [FakeReading("up", 1.0)], now=2.0, wall=100.0)

    assert values(list(entry(board).samples()))["solpi_test_value"] == {("up",): 1.0}


def test_absent_only_while_it_has_never_been_there() -> None:
    """No driver from the start is absence; a driver that was there and is gone is an outage."""
    board = board_with()
    board.fail("a", SourceAbsent("no driver"), now=1.0)
    assert entry(board).state is State.ABSENT

    board.succeed("a", [], now=2.0, wall=100.0)
    board.fail("a", SourceAbsent("no driver"), now=3.0)

    assert entry(board).state is State.DOWN


def test_a_poll_in_flight_past_its_timeout_is_hung() -> None:
    """It counts as a timeout once, its gauges go, and its name is returned so that it can be logged."""
    board = board_with(timeout=10.0)
    board.succeed("a", [FakeReading("x", 1.0)], now=0.0, wall=100.0)
    board.begin("a", 5.0)

    assert board.expire(15.0) == []
    assert board.expire(15.1) == ["a"]
    assert board.expire(99.0) == []
    assert entry(board).state is State.DOWN
    assert entry(board).polls[Outcome.TIMEOUT] == 1
    assert "solpi_test_value" not in values(list(entry(board).samples()))


def test_a_hung_poll_that_returns_brings_its_source_back() -> None:
    """The late answer is as good as any; how long it took is not claimed, since that was already told."""
    board = board_with(timeout=10.0)
    board.begin("a", 0.0)
    board.expire(11.0)

    board.succeed("a", [FakeReading("x", 1.0)], now=12.0, wall=100.0)

    assert entry(board).state is State.OK
    assert entry(board).seconds is None


def test_a_late_end_is_not_counted_again() -> None:
    """The poll was counted when it timed out; the next one counts as itself."""
    board = board_with(timeout=10.0)
    board.begin("a", 0.0)
    board.expire(11.0)
    board.fail("a", SourceError("too late"), now=12.0)
    assert sum(entry(board).polls.values()) == 1

    board.begin("a", 15.0)
    board.succeed("a", [], now=16.0, wall=100.0)

    assert entry(board).polls[Outcome.SUCCESS] == 1
    assert entry(board).polls[Outcome.FAILURE] == 0


def test_version_changes_with_what_is_shown_and_not_otherwise() -> None:
    """A poll that finds nothing new, ten times a second, must not make every scrape render anew."""
    board = board_with()
    board.succeed("a", [FakeReading("x", 1.0)], now=1.0, wall=100.0)
    first = board.snapshot().version

    board.begin("a", 1.5)
    board.succeed("a", [FakeReading("x", 1.0)], now=2.0, wall=101.0)
    assert board.snapshot().version == first

    board.fail("a", SourceError("gone"), now=3.0)
    assert board.snapshot().version > first


def test_duration_of_a_poll_is_kept() -> None:
    """From its beginning to its end, for a failed one too."""
    board = board_with()
    board.begin("a", 1.0)
    board.fail("a", SourceError("gone"), now=3.5)

    assert entry(board).seconds == 2.5


def test_a_snapshot_does_not_change() -> None:
    """What a scrape reads is not moved under it by the next poll."""
    board = board_with()
    board.succeed("a", [FakeReading("x", 1.0)], now=1.0, wall=100.0)
    before = board.snapshot()

    board.succeed("a", [FakeReading("x", 2.0)], now=2.0, wall=101.0)

    assert values(list(before.entries[0].samples()))["solpi_test_value"] == {("x",): 1.0}


def test_what_is_set_aside_may_show_what_is_known() -> None:
    """A source that was let go of is no outage, and keeps what was remembered of it."""
    board = Board()
    board.set_aside("a", State.QUIESCED, [FakeReading("x", 1.0, events=7.0)])

    assert entry(board).state is State.QUIESCED
    assert values(list(entry(board).samples())) == {
        "solpi_test_value": {("x",): 1.0},
        "solpi_test_events_total": {("x",): 7.0},
    }


def test_totals_of_another_process_go_with_it() -> None:
    """What it counted until now is not known while it does not answer; from another origin they would fall."""
    board = board_with()
    board.succeed("a", [FakeReading("x", 1.0, events=7.0)], now=1.0, wall=100.0)

    board.fail("a", OriginGone("no answer", [FakeReading("up", 0.0)]), now=2.0)

    assert values(list(entry(board).samples()))["solpi_test_value"] == {("up",): 0.0}
    assert ("x",) not in values(list(entry(board).samples())).get("solpi_test_events_total", {})
