"""Rendering once per change and encoding."""

import gzip
import threading
import time
from collections.abc import Callable, Iterable

import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families

from solpi_exporter import exposition as module
from solpi_exporter.board import Board, Snapshot
from solpi_exporter.collector import BoardCollector
from solpi_exporter.exposition import OPENMETRICS, TEXT, Exposition
from tests.fakes import FakeClock, FakeReading


class Counted:
    """A collector that counts how often it is asked."""

    def __init__(self, board: Board) -> None:
        self.renderings = 0
        self._board = board

    def snapshot(self) -> Snapshot:
        self.renderings += 1
        return self._board.snapshot()


def exposition(clock: FakeClock) -> tuple[Exposition, Board, Counted]:
    board = Board()
    board.add("a", 1.0)
    board.succeed("a", [FakeReading("x", 1.0)], now=0.0, wall=0.0)
    counted = Counted(board)
    collector = BoardCollector(counted.snapshot)
    return Exposition(collector, lambda: board.snapshot().version, clock, threading.Lock()), board, counted


def test_scrapes_share_a_rendering_until_the_board_changes() -> None:
    """A hundred scrapers cost one rendering; a new reading costs one more, and is seen at once."""
    exposed, board, counted = exposition(FakeClock())
    for _ in range(100):
        exposed.render()
    assert counted.renderings == 1

    board.succeed("a", [FakeReading("x", 2.0)], now=1.0, wall=1.0)

    assert b'solpi_test_value{key="x"} 2.0' in exposed.render()[0]
    assert counted.renderings == 2


def test_a_rendering_ages() -> None:
    """Time stamps and process figures move on though no reading changes."""
    clock = FakeClock()
    exposed, _, counted = exposition(clock)
    exposed.render()

    clock.now += 1.1
    exposed.render()

    assert counted.renderings == 2


def test_a_clients_wording_is_no_cache_entry() -> None:
    """A thousand versions that nobody knows are two formats, and none of them is an error."""
    exposed, _, counted = exposition(FakeClock())
    for number in range(1000):
        exposed.render(f"application/openmetrics-text;version={number}.x")
        exposed.render(f"text/plain;version={number}.x")

    assert counted.renderings == 2
    assert len(exposed._renderings) == 2


def test_formats_are_negotiated() -> None:
    """OpenMetrics for who asks for it, text for everybody else."""
    exposed, _, _ = exposition(FakeClock())

    text, text_type = exposed.render("*/*")
    openmetrics, openmetrics_type = exposed.render(OPENMETRICS)

    assert text_type.startswith("text/plain; version=0.0.4")
    assert openmetrics_type.startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.endswith(b"# EOF\n")
    assert not text.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("accept", "parse"),
    [(TEXT, text_string_to_metric_families), (OPENMETRICS, openmetrics_string_to_metric_families)],
    ids=["text", "openmetrics"],
)
def test_ours_and_the_process_are_one_exposition(accept: str, parse: Callable[[str], Iterable[Family]]) -> None:
    """prometheus_client's own parsers read both parts; OpenMetrics ends once."""
    exposed, _, _ = exposition(FakeClock())
    body = exposed.render(accept)[0].decode()

    names = [family.name for family in parse(body)]

    assert names[0] == "solpi_build_info"
    assert names.index("solpi_test_value") < names.index("process_resident_memory_bytes")
    assert body.count("# EOF") == (accept == OPENMETRICS)
    assert "_created" not in body


def test_compressed_is_the_same_text() -> None:
    """gzip changes the bytes and nothing else."""
    exposed, _, _ = exposition(FakeClock())

    assert gzip.decompress(exposed.render(compress=True)[0]) == exposed.render()[0]


def test_rendering_waits_for_the_probe() -> None:
    """While the probe times a step, nothing is rendered beside it."""
    quiet = threading.Lock()
    exposed = Exposition(BoardCollector(Board().snapshot), lambda: 0, FakeClock(), quiet)
    rendered = threading.Event()

    def render() -> None:
        exposed.render()
        rendered.set()

    with quiet:
        thread = threading.Thread(target=render)
        thread.start()
        assert not rendered.wait(0.05)
    assert rendered.wait(5.0)
    thread.join()


def test_a_step_that_hangs_does_not_hang_the_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wedged GPU keeps the probe's lock for ever; the page is served all the same, and the lock is not touched."""
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.01)
    quiet = threading.Lock()
    exposed = Exposition(BoardCollector(Board().snapshot), lambda: 0, FakeClock(), quiet)

    with quiet:
        assert b"solpi_build_info" in exposed.render()[0]
        assert quiet.locked()
    assert not quiet.locked()


def test_a_step_that_hangs_is_waited_for_once() -> None:
    """The first scrape waits for a second; the ones after it do not, until the lock has been free again."""
    clock, quiet = FakeClock(), threading.Lock()
    exposed = Exposition(BoardCollector(Board().snapshot), lambda: 0, clock, quiet)

    with quiet:
        exposed.render()
        clock.now += 10.0
        begun = time.monotonic()
        exposed.render()
        assert time.monotonic() - begun < 0.5
    clock.now += 10.0
    exposed.render()

    assert not exposed._in_vain
