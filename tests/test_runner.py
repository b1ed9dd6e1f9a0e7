"""The one wrapper around every poll."""

import threading

from structlog.testing import LogCapture

from solpi_exporter.board import Board, Outcome, State
from solpi_exporter.runner import Runner
from solpi_exporter.source import NeedsRestart, SourceAbsent, SourceError
from tests.fakes import FakeClock, FakeReading, FakeSource, capturing_log


def runner_of(source: FakeSource, clock: FakeClock | None = None) -> tuple[Runner, Board, LogCapture]:
    board = Board()
    board.add(source.name, source.timeout)
    log, captured = capturing_log()
    return Runner(source, board, clock or FakeClock(), log), board, captured


def test_any_exception_of_a_source_is_a_failed_poll() -> None:
    """A source may fail in a way nobody foresaw; the runner lives on and the board says down."""
    runner, board, captured = runner_of(FakeSource([ZeroDivisionError("oops"), [FakeReading("x", 1.0)]]))

    runner.poll()
    assert board.snapshot().entries[0].state is State.DOWN
    assert captured.entries[0]["error"] == "ZeroDivisionError: oops"
    assert captured.entries[0]["exc_info"] is not None

    runner.poll()
    assert board.snapshot().entries[0].state is State.OK


def test_a_lasting_failure_is_logged_once() -> None:
    """One line when it begins, one when it changes, one when it ends; none for each poll between."""
    no, other = SourceError("no driver"), SourceError("mismatch")
    runner, _, captured = runner_of(FakeSource([no, no, other, other, [], []]))

    for _ in range(6):
        runner.poll()

    assert [(entry["event"], entry.get("error")) for entry in captured.entries] == [
        ("source_failed", "no driver"),
        ("source_failed", "mismatch"),
        ("source_recovered", None),
    ]


def test_what_is_not_there_is_a_warning() -> None:
    """A host without a GPU has nothing wrong with it."""
    runner, _, captured = runner_of(FakeSource([SourceAbsent("no driver")]))

    runner.poll()

    (entry,) = captured.entries
    assert (entry["log_level"], entry["event"], entry["reason"]) == ("warning", "source_absent", "no driver")


def test_an_expected_failure_is_logged_without_traceback() -> None:
    """A SourceError's message already says what and what to do."""
    runner, _, captured = runner_of(FakeSource([SourceError("no driver")]))

    runner.poll()

    assert captured.entries[0]["exc_info"] is None


def test_polls_keep_their_distance_from_start_to_start() -> None:
    """A poll of two seconds in an interval of five is followed by a wait of three; an overrun by none."""
    clock, stop, begun = FakeClock(0.0), threading.Event(), []
    durations = iter([2.0, 8.0, 1.0])

    def poll() -> None:
        begun.append(clock.now)
        clock.now += next(durations)
        if len(begun) == 3:
            stop.set()

    source = FakeSource([[]], interval=5.0, on_poll=poll)
    runner_of(source, clock)[0].run(stop)

    assert begun == [0.0, 5.0, 13.0]
    assert source.closed


def test_polling_once_lets_go() -> None:
    """As a one-shot does."""
    source = FakeSource([[]])

    runner_of(source)[0].poll_and_close()

    assert (source.polls, source.closed) == (1, True)


def test_outcomes_are_counted() -> None:
    """Successes and failures are counted apart."""
    runner, board, _ = runner_of(FakeSource([[], SourceError("no"), []]))

    for _ in range(3):
        runner.poll()

    polls = board.snapshot().entries[0].polls
    assert (polls[Outcome.SUCCESS], polls[Outcome.FAILURE], polls[Outcome.TIMEOUT]) == (2, 1, 0)


def test_a_need_for_a_new_process_is_remembered() -> None:
    """It is a failed poll like any other, and the daemon finds the reason."""
    runner, board, captured = runner_of(FakeSource([SourceError("no"), NeedsRestart("the library is an old one"), []]))
    runner.poll()
    assert runner.restart is None

    runner.poll()
    assert runner.restart == "the library is an old one"
    assert board.snapshot().entries[0].state is State.DOWN
    assert captured.entries[-1]["error"] == "the library is an old one"

    runner.poll()
    assert runner.restart == "the library is an old one"
