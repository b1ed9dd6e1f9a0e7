"""Rendering once per change and encoding."""

import gzip
import threading

from solpi_exporter.board import Board
from solpi_exporter.collector import BoardCollector
from solpi_exporter.exposition import Exposition
from tests.fakes import FakeClock, FakeReading

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class CountingLock:
    """Counts how often it was taken: once for each rendering."""

    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        pass


def exposition(clock: FakeClock, lock: CountingLock | None = None) -> tuple[Exposition, Board]:
    board = Board()
    board.add("a", 1.0)
    board.succeed("a", [FakeReading("x", 1.0)], now=0.0, wall=0.0)
    collector = BoardCollector(board.snapshot)
    return Exposition(collector, lambda: board.snapshot().version, clock, lock or CountingLock()), board


def test_scrapes_share_a_rendering_until_the_board_changes() -> None:
    """A hundred scrapers cost one rendering; a new reading costs one more, and is seen at once."""
    lock = CountingLock()
    exposed, board = exposition(FakeClock(), lock)
    for _ in range(100):
        exposed.render()
    assert lock.taken == 1

    board.succeed("a", [FakeReading("x", 2.0)], now=1.0, wall=1.0)

    assert b'solpi_test_value{key="x"} 2.0' in exposed.render()[0]
    assert lock.taken == 2


def test_a_rendering_ages() -> None:
    """Time stamps and process figures move on though no reading changes."""
    clock, lock = FakeClock(), CountingLock()
    exposed, _ = exposition(clock, lock)
    exposed.render()

    clock.now += 1.1
    exposed.render()

    assert lock.taken == 2


def test_formats_are_negotiated() -> None:
    """OpenMetrics for who asks for it, text for everybody else."""
    exposed, _ = exposition(FakeClock())

    text, text_type = exposed.render("*/*")
    openmetrics, openmetrics_type = exposed.render(OPENMETRICS)

    assert text_type.startswith("text/plain; version=0.0.4")
    assert openmetrics_type.startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.endswith(b"# EOF\n")
    assert not text.endswith(b"# EOF\n")


def test_compressed_is_the_same_text() -> None:
    """gzip changes the bytes and nothing else."""
    exposed, _ = exposition(FakeClock())

    assert gzip.decompress(exposed.render(compress=True)[0]) == exposed.render()[0]


def test_rendering_waits_for_the_probe() -> None:
    """While the probe times a step, nothing is rendered beside it."""
    quiet = threading.Lock()
    board = Board()
    exposed = Exposition(BoardCollector(board.snapshot), lambda: 0, FakeClock(), quiet)
    rendered = threading.Event()

    with quiet:

        def render() -> None:
            exposed.render()
            rendered.set()

        thread = threading.Thread(target=render)
        thread.start()
        assert not rendered.wait(0.05)
    assert rendered.wait(5.0)
    thread.join()
