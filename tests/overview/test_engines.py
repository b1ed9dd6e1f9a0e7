"""The serving engines on the page."""

import pytest

from solpi_exporter.board import Board
from solpi_exporter.derived import EngineToken
from solpi_exporter.engine.reading import EngineReading, EngineUp
from solpi_exporter.engine.scraped import parse
from solpi_exporter.overview.engines import Engine, engines
from solpi_exporter.overview.recent import Recent
from solpi_exporter.overview.split import split_of
from solpi_exporter.source import OriginGone, Reading
from tests.fakes import RECORDINGS

NOW = 1_800_000_000.0
LOG = EngineReading(
    server="s", kv_cache_usage_ratio=0.5, running=3.0, waiting=1.0, mean_token_seconds=0.02, last_report_time=NOW - 5
)
ENDPOINT = EngineReading(server="s", kv_cache_usage_ratio=0.4, running=2.0, waiting=0.0, preemptions=7.0)


def board(endpoint: Reading | None = None, log: Reading | None = None) -> Board:
    """Return a board on which either source, or both, have just been read."""
    one = Board()
    for source, reading in (("engine_endpoint/s", endpoint), ("engine_log/s", log)):
        one.add(source, 10.0)
        if reading is not None:
            one.succeed(source, [reading], 1.0, NOW)
    return one


def shown(one: Board, now: float = NOW, *tokens: EngineToken) -> Engine:
    (engine,) = engines(one.snapshot(), tokens, Recent(), now)
    return engine


def test_what_nobody_tells_is_not_known() -> None:
    """None of it is 0."""
    assert shown(board(EngineReading(server="s"))) == Engine(server="s", name="0")


def test_the_endpoint_is_shown_and_the_log_stands_in() -> None:
    """Quantity by quantity, as in the exposition."""
    both = board(ENDPOINT, LOG)
    engine = shown(both)
    assert (engine.kv_cache, engine.running, engine.waiting, engine.preemptions) == (0.4, 2.0, 0.0, 7.0)
    assert engine.mean == 0.02

    both.fail("engine_endpoint/s", OriginGone("gone"), 2.0)
    engine = shown(both)

    assert (engine.kv_cache, engine.running, engine.waiting, engine.preemptions) == (0.5, 3.0, 1.0, None)


def test_a_log_that_has_fallen_silent_is_marked_with_its_age() -> None:
    """Its last values stay, for it falls silent when the engine idles."""
    one = board(log=LOG)

    assert shown(one).stale is None
    assert shown(one, NOW + 600.0).stale == 605.0
    assert shown(one, NOW + 600.0).running == 3.0


def test_a_silent_log_beside_an_endpoint_is_no_matter() -> None:
    """The endpoint has been asked just now."""
    assert shown(board(ENDPOINT, EngineReading(server="s", running=9.0, last_report_time=NOW - 900))).stale is None


def test_a_log_whose_source_fails_keeps_its_totals() -> None:
    """And loses its gauges."""
    one = board(log=EngineReading(server="s", running=3.0, preemptions=4.0, last_report_time=NOW - 900))
    one.fail("engine_log/s", ValueError("unreadable"), 2.0)

    assert shown(one) == Engine(server="s", name="0", preemptions=4.0)


def test_a_lower_bound_is_told_as_one() -> None:
    """vLLM's V0 engine logs one preemption in 50."""
    engine = shown(board(log=EngineReading(server="s", preemptions_at_least=51.0)))

    assert (engine.preemptions, engine.at_least) == (51.0, True)


def test_a_server_that_does_not_answer_is_listed() -> None:
    """With nothing known of it."""
    one = board()
    one.fail("engine_endpoint/s", OriginGone("gone", [EngineUp("s", False)]), 2.0)

    assert shown(one) == Engine(server="s")


def test_the_own_token_stands_with_its_engine() -> None:
    """Busy and lost, and what the loss is of the time between tokens; another engine's is not taken."""
    token = EngineToken("s", "0", "endpoint", busy=0.25, interval=0.5)
    other = EngineToken("s", "1", "endpoint", busy=0.125, interval=0.5)

    split = shown(board(ENDPOINT), NOW, other, token).split

    assert split == split_of(0.5, 0.5, {"busy": 0.25, "lost": 0.25})


def test_engines_come_in_numerical_order() -> None:
    """By server, then by engine."""
    one = board()
    told = [EngineReading(server=server, engine=engine) for server, engine in (("t", "0"), ("s", "10"), ("s", "2"))]
    one.succeed("engine_endpoint/s", told, 1.0, NOW)

    assert [(engine.server, engine.name) for engine in engines(one.snapshot(), (), Recent(), NOW)] == [
        ("s", "2"),
        ("s", "10"),
        ("t", "0"),
    ]


def test_a_recorded_server() -> None:
    """vLLM 0.11.2 short of KV cache: all readings of its /metrics, and latency over the minute in which they came."""
    text = (RECORDINGS / "vllm-0.11.2" / "kv-pressure.metrics.stage4.txt").read_text()
    one, before = Board(), Board()
    for each in (one, before):
        each.add("engine_endpoint/s", 10.0)
    before.succeed("engine_endpoint/s", list(parse(_emptied(text), "s")), 0.0, NOW - 60)
    one.succeed("engine_endpoint/s", list(parse(text, "s")), 60.0, NOW)
    recent = Recent().extended(before.snapshot()).extended(one.snapshot())

    (engine,) = engines(one.snapshot(), (), recent, NOW)

    assert engine.kv_cache == pytest.approx(0.984, abs=0.001)
    assert (engine.running, engine.waiting, engine.preemptions, engine.preempted_lately) == (11.0, 21.0, 74.0, 74.0)
    assert engine.p50 == pytest.approx(0.01 + 0.015 * (9388 - 363) / (10126 - 363))  # buckets of the file
    assert engine.p99 == pytest.approx(0.15 + 0.05 * (18588.24 - 18483) / (18624 - 18483))


def _emptied(text: str) -> str:
    """Return an exposition whose totals are those of a server that has just started."""
    return "".join(
        f"{line.rpartition(' ')[0]} 0.0\n" if line.startswith("vllm:") else f"{line}\n" for line in text.splitlines()
    )
