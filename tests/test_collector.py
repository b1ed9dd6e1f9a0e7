"""From a snapshot to the samples of each metric."""

from solpi_exporter.board import Board, State
from solpi_exporter.collector import BUILD, POLLS, SOURCE_STATE, SOURCE_UP, BoardCollector
from solpi_exporter.metric import Distribution, Metric
from solpi_exporter.source import SourceAbsent, SourceError
from tests.fakes import COUNTER, GAUGE, FakeReading


def merged(board: Board) -> dict[Metric, dict[tuple[str, ...], float | Distribution]]:
    return BoardCollector(board.snapshot).collect()


def test_the_earlier_source_wins_a_series_and_the_later_stands_in() -> None:
    """A gauge that two sources know is shown once: from the first, and from the second while the first fails."""
    board = Board()
    board.add("endpoint", 1.0)
    board.add("log", 1.0)
    board.succeed("log", [FakeReading("x", 2.0)], now=1.0, wall=1.0)
    board.succeed("endpoint", [FakeReading("x", 1.0)], now=1.0, wall=1.0)
    assert merged(board)[GAUGE] == {("x",): 1.0}

    board.fail("endpoint", SourceError("gone"), now=2.0)

    assert merged(board)[GAUGE] == {("x",): 2.0}


def test_the_series_of_a_metric_stand_together() -> None:
    """Whatever else lies between them: Prometheus refuses a metric that begins twice."""
    board = Board()
    for name in ("a", "b"):
        board.add(name, 1.0)
        board.succeed(name, [FakeReading(name, 1.0, events=2.0)], now=1.0, wall=1.0)

    collected = merged(board)

    assert collected[GAUGE] == {("a",): 1.0, ("b",): 1.0}
    assert collected[COUNTER] == {("a",): 2.0, ("b",): 2.0}


def test_metrics_come_in_the_order_of_their_first_samples() -> None:
    """The exporter's own, then what the sources say, then what is derived; no order of a hash."""
    derived = Metric("solpi_test_derived", "d")
    board = Board()
    board.add("a", 1.0)
    board.succeed("a", [FakeReading("x", 1.0)], now=1.0, wall=1.0)

    metrics = list(BoardCollector(board.snapshot, lambda: [derived.sample(1.0)]).collect())

    assert metrics[0] is BUILD
    assert metrics[-3:] == [GAUGE, COUNTER, derived]


def test_up_is_0_for_what_fails_and_absent_for_what_was_never_polled() -> None:
    """A driver that is missing is told by both series; a probe that is switched off by its state only."""
    board = Board()
    board.add("gpu", 1.0)
    board.fail("gpu", SourceAbsent("no driver"), now=1.0)
    board.set_aside("probe", State.OFF)

    collected = merged(board)

    assert collected[SOURCE_UP] == {("gpu",): 0.0}
    assert collected[SOURCE_STATE]["gpu", "absent"] == 1.0
    assert collected[SOURCE_STATE]["probe", "off"] == 1.0
    assert {source for source, _ in collected[POLLS]} == {"gpu"}


def test_collecting_twice_gives_the_same() -> None:
    """Everything is merged anew at each scrape, and nothing is kept between them."""
    board = Board()
    board.add("a", 1.0)
    board.succeed("a", [FakeReading("x", 1.0)], now=1.0, wall=1.0)

    assert merged(board) == merged(board)
