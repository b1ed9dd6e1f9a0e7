"""What engines did within the last minute."""

from collections.abc import Iterable

import pytest

from solpi_exporter.board import Board
from solpi_exporter.demo.recording import load_run
from solpi_exporter.engine.reading import EngineReading
from solpi_exporter.engine.scraped import parse
from solpi_exporter.metric import Distribution
from solpi_exporter.overview.recent import Lately, Recent
from solpi_exporter.source import SourceError

BOUNDS = (0.01, 0.02)


def told(tokens: float, preemptions: float | None = None, *, fast: float | None = None) -> EngineReading:
    """Return an engine that has decoded tokens, all of them within 10 ms or `fast` of them."""
    counts = (tokens if fast is None else fast, tokens)
    latency = Distribution(BOUNDS, counts, tokens, tokens * 0.01)
    return EngineReading(server="s", inter_token_latency=latency, preemptions=preemptions)


def seen(readings: Iterable[tuple[float, EngineReading]], recent: Recent | None = None) -> Recent:
    """Return what is known after an endpoint has told readings at their instants."""
    recent = recent or Recent()
    for now, reading in readings:
        board = Board()
        board.add("engine_endpoint/s", 10.0)
        board.succeed("engine_endpoint/s", [reading], now, now)
        recent = recent.extended(board.snapshot())
    return recent


def test_a_window_is_the_difference_of_its_ends() -> None:
    """Of what was told a minute ago and now; what came before does not count."""
    recent = seen((now, told(now * 100, now // 10)) for now in range(0, 301, 15))

    lately = recent.lately("s", "0")

    assert lately.preemptions == 6.0
    assert lately.latency == Distribution(BOUNDS, (6000, 6000), 6000, 60.0)


def test_slow_tokens_of_before_are_forgotten() -> None:
    """The median is that of the last minute, whatever the totals say."""
    slow = [(float(now), told(now * 100, fast=0)) for now in range(0, 61, 15)]
    fast = [(float(now), told(now * 100, fast=(now - 60) * 100)) for now in range(75, 181, 15)]

    during, after = seen(slow).lately("s", "0").latency, seen([*slow, *fast]).lately("s", "0").latency

    assert during is not None
    assert during.quantile(0.5) == pytest.approx(0.015)
    assert after is not None
    assert after.quantile(0.5) == pytest.approx(0.005)


def test_nothing_is_known_before_half_a_minute() -> None:
    """One interval of an endpoint is no window."""
    assert seen([(0.0, told(0.0, 0.0)), (15.0, told(900.0, 1.0))]).lately("s", "0") == Lately()
    assert Recent().lately("s", "0") == Lately()


def test_an_idle_minute_has_no_latency() -> None:
    """Although the last that was decoded is known; that nothing was preempted is known as well."""
    recent = seen([(0.0, told(0.0, 0.0)), (30.0, told(900.0, 3.0)), (600.0, told(900.0, 3.0))])

    lately = recent.lately("s", "0")

    assert lately.preemptions == 0.0
    assert lately.latency is not None
    assert lately.latency.quantile(0.5) is None


@pytest.mark.parametrize("reading", [told(10.0, 5.0), told(99000.0, 0.0)], ids=["tokens", "preemptions"])
def test_a_restarted_engine_begins_a_new_window(reading: EngineReading) -> None:
    """Totals that fall back are another run's."""
    recent = seen((now, told(now * 100, now // 10)) for now in range(0, 91, 15))

    assert seen([(105.0, reading)], recent).lately("s", "0") == Lately()


def test_a_poll_that_is_seen_twice_counts_once() -> None:
    """The page may ask between two polls."""
    recent = seen((now, told(now * 100.0)) for now in range(0, 91, 15))

    assert seen([(90.0, told(9000.0))], recent) == recent


def test_an_engine_that_is_gone_is_forgotten() -> None:
    """When it comes back, what it did meanwhile is not of the last minute."""
    recent = seen((now, told(now * 100.0)) for now in range(0, 91, 15))
    board = Board()
    board.add("engine_endpoint/s", 10.0)
    board.fail("engine_endpoint/s", SourceError("gone"), 95.0)

    assert recent.extended(board.snapshot()) == Recent({})


def test_a_minute_is_kept_however_long_the_daemon_runs() -> None:
    """And one that is older, from which the difference is taken."""
    recent = seen((now, told(now * 100.0)) for now in range(0, 3601, 15))

    assert [totals.time for totals in recent.totals["s", "0"]] == [3540, 3555, 3570, 3585, 3600]


def test_a_log_without_latencies_tells_preemptions() -> None:
    """What is not known stays so beside what is."""
    readings = ((now, EngineReading(server="s", preemptions=now / 10)) for now in range(0, 91, 10))

    assert seen(readings).lately("s", "0") == Lately(None, 6.0)


@pytest.mark.parametrize(("run", "low", "high"), [("a-before", 0.010, 0.020), ("b-after", 0.004, 0.006)])
def test_a_recorded_server(run: str, low: float, high: float) -> None:
    """The median of a recorded minute: launched kernel by kernel, and as graphs, as a client saw them."""
    recorded = load_run(run)
    times = [recorded.start + seconds for seconds in range(10, 101, 15)]
    readings = ((time, next(parse(recorded.metrics.text(time), "s"))) for time in times)

    latency = seen(readings).lately("s", "0").latency

    assert latency is not None
    median, tail = latency.quantile(0.5), latency.quantile(0.99)
    assert median is not None
    assert tail is not None
    assert low < median < high
    assert median < tail
