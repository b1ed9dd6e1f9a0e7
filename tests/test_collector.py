"""From a snapshot to metric families."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from solpi_exporter.board import Board, State
from solpi_exporter.collector import BoardCollector
from solpi_exporter.metric import Distribution, Kind, Metric
from solpi_exporter.source import SourceAbsent, SourceError
from tests.fakes import FakeReading


def text_of(board: Board) -> str:
    registry = CollectorRegistry()
    registry.register(BoardCollector(board.snapshot))
    return generate_latest(registry).decode()


def test_the_earlier_source_wins_a_series_and_the_later_stands_in() -> None:
    """A gauge that two sources know is shown once: from the first, and from the second while the first fails."""
    board = Board()
    board.add("endpoint", 1.0)
    board.add("log", 1.0)
    board.succeed("log", [FakeReading("x", 2.0)], now=1.0, wall=1.0)
    board.succeed("endpoint", [FakeReading("x", 1.0)], now=1.0, wall=1.0)
    assert 'solpi_test_value{key="x"} 1.0' in text_of(board)

    board.fail("endpoint", SourceError("gone"), now=2.0)

    assert 'solpi_test_value{key="x"} 2.0' in text_of(board)


def test_a_series_is_exposed_once() -> None:
    """Two lines with the same labels would make Prometheus refuse the whole scrape."""
    board = Board()
    for name in ("a", "b"):
        board.add(name, 1.0)
        board.succeed(name, [FakeReading("x", 1.0)], now=1.0, wall=1.0)

    lines = [line for line in text_of(board).splitlines() if line.startswith("solpi_test")]

    assert len(lines) == len({line.rpartition(" ")[0] for line in lines}) == 2


def test_no_created_series() -> None:
    """Prometheus would store `_created` as series of their own."""
    board = Board()
    board.add("a", 1.0)
    board.succeed("a", [FakeReading("x", 1.0, events=3.0)], now=1.0, wall=1.0)
    registry = CollectorRegistry()
    registry.register(BoardCollector(board.snapshot))

    assert "_created" not in generate_latest(registry).decode()
    assert "_created" not in generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]


def test_histograms_keep_their_bounds() -> None:
    """Bounds are written as floats and closed with +Inf, so that the same bucket always has the same label."""
    metric = Metric("solpi_test_seconds", "h", Kind.HISTOGRAM, ("key",))
    sample = metric.sample(Distribution((1, 2.5), (3, 5), 6, 9.5), "x")
    registry = CollectorRegistry()
    registry.register(BoardCollector(Board().snapshot, lambda: [sample]))

    lines = [line for line in generate_latest(registry).decode().splitlines() if line.startswith("solpi_test")]

    assert lines == [
        'solpi_test_seconds_bucket{key="x",le="1.0"} 3.0',
        'solpi_test_seconds_bucket{key="x",le="2.5"} 5.0',
        'solpi_test_seconds_bucket{key="x",le="+Inf"} 6.0',
        'solpi_test_seconds_count{key="x"} 6.0',
        'solpi_test_seconds_sum{key="x"} 9.5',
    ]


def test_up_is_0_for_what_fails_and_absent_for_what_was_never_polled() -> None:
    """A driver that is missing is told by both series; a probe that is switched off by its state only."""
    board = Board()
    board.add("gpu", 1.0)
    board.fail("gpu", SourceAbsent("no driver"), now=1.0)
    board.set_aside("probe", State.OFF)

    text = text_of(board)

    assert 'solpi_source_up{source="gpu"} 0.0' in text
    assert 'solpi_source_state{source="gpu",state="absent"} 1.0' in text
    assert 'solpi_source_up{source="probe"}' not in text
    assert 'solpi_source_state{source="probe",state="off"} 1.0' in text


def test_collecting_twice_gives_the_same() -> None:
    """Families are made anew at each scrape and hold no state between them."""
    board = Board()
    board.add("a", 1.0)
    board.succeed("a", [FakeReading("x", 1.0)], now=1.0, wall=1.0)

    assert text_of(board) == text_of(board)
