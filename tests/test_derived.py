"""The engine's own token, on recorded runs and on made-up ones."""

from dataclasses import replace

import pytest

from benchmarks.own_token import STAGES, recorded_token
from solpi_exporter.board import Board
from solpi_exporter.derived import (
    EngineToken,
    TokenWindow,
    Totals,
    token_from_reports,
    token_from_totals,
)
from solpi_exporter.engine.reading import EngineFacts, EngineReading
from solpi_exporter.gpu.reading import BusyTotal, GpuReading, GpuState
from solpi_exporter.metric import Distribution
from solpi_exporter.source import SourceError


def test_busy_per_step_and_time_between_tokens() -> None:
    """Over a window of 60 s in which the GPU was busy for 30: 1,000 steps of 8 tokens, 50 ms apart."""
    start, end = Totals(100.0, 5000.0, 40000.0, 300.0), Totals(130.0, 6000.0, 48000.0, 700.0)

    assert token_from_totals(start, end) == (0.03, 0.05)


@pytest.mark.parametrize("still", ["steps", "tokens", "token_seconds"])
def test_no_token_no_figure(still: str) -> None:
    """An idle window says nothing, rather than that everything was lost."""
    start = Totals(100.0, 5000.0, 40000.0, 300.0)
    end = replace(Totals(130.0, 6000.0, 48000.0, 700.0), **{still: getattr(start, still)})

    assert token_from_totals(start, end) is None


def test_reports_give_the_same_by_littles_law() -> None:
    """8 running at 160 tokens/s are 50 ms apart; busy for 60 % of the time, 30 ms of them."""
    result = token_from_reports(0.6, [8.0, 8.0], [160.0, 160.0])

    assert result == pytest.approx((0.03, 0.05))


@pytest.mark.parametrize(("running", "rates"), [([8.0, 0.0], [160.0, 80.0]), ([8.0], [0.0]), ([], [])])
def test_reports_of_a_stretch_that_was_partly_idle_say_nothing(running: list[float], rates: list[float]) -> None:
    """The activity would be thinned by the idle part, and a loss invented."""
    assert token_from_reports(0.6, running, rates) is None


def test_lost_is_never_negative() -> None:
    """Asynchronous scheduling can keep the GPU busy for longer than the tokens lie apart."""
    token = EngineToken("s", "0", "endpoint", busy=0.006, interval=0.005)

    assert token.lost == 0.0
    assert {sample.metric.name: sample.value for sample in token.samples()}["solpi_engine_control_ratio"] == 0.0


def gpu(now: float, busy: float | None, *, gaps: int = 0, index: int = 0) -> GpuReading:
    """Return a GPU that has been busy for some seconds until now."""
    total = None if busy is None else BusyTotal(now, busy, gaps)
    return GpuReading(index, f"GPU-{index}", GpuState.OK, busy=total)


class Host:
    """A board that is told readings second by second, and the window over it."""

    def __init__(self, gpus: dict[str, set[str]] | None = None) -> None:
        self.board = Board()
        for source in ("gpu", "engine_endpoint/s", "engine_endpoint/t", "engine_log/s"):
            self.board.add(source, 10.0)
        self.gpus = gpus or {"s": {"GPU-0"}}
        self.window = TokenWindow()

    def gpu(self, now: float, *busy: float) -> None:
        self.board.succeed("gpu", [gpu(now, seconds, index=index) for index, seconds in enumerate(busy)], now, now)

    def endpoint(self, now: float, steps: float, server: str = "s", engine: str = "0", itl: float = 0.05) -> None:
        latency = Distribution((), (), steps * 8, steps * 8 * itl)
        reading = EngineReading(server=server, engine=engine, steps=steps, inter_token_latency=latency)
        self.board.succeed(f"engine_endpoint/{server}", [reading], now, now)

    def observe(self) -> tuple[EngineToken, ...]:
        self.window.observe(self.board.snapshot(), self.gpus)
        return self.window.tokens

    def run(self, seconds: int, activity: float = 0.6, *, start: int = 0) -> tuple[EngineToken, ...]:
        """Let the GPU be polled every 5 s and the engine every 15, at 20 steps a second."""
        for now in range(start, start + seconds + 1, 5):
            self.gpu(now, now * activity)
            if now % 15 == 0:
                self.endpoint(now, now * 20.0)
            self.observe()
        return self.window.tokens


def test_a_minute_of_both_gives_the_token() -> None:
    """Busy 0.6 of the time at 20 steps/s is 30 ms a step, of 50 ms between tokens."""
    (token,) = Host().run(90)

    assert (token.server, token.engine, token.basis) == ("s", "0", "endpoint")
    assert (token.busy, token.interval) == pytest.approx((0.03, 0.05))


def test_nothing_is_said_before_half_a_minute() -> None:
    """Two reads of an endpoint lie 15 s apart: too short a window to divide by."""
    assert Host().run(25) == ()
    assert len(Host().run(30)) == 1


def test_both_ends_are_the_same_instant_for_both_sides() -> None:
    """GPU polled at other instants than the engine: its busy seconds are taken in proportion between polls."""
    host = Host()
    for now in range(0, 100, 5):
        host.gpu(now + 2.5, (now + 2.5) * 0.6)
        if now % 15 == 0:
            host.endpoint(now + 4.0, (now + 4.0) * 20.0)
        host.observe()

    (token,) = host.window.tokens

    assert token.busy == pytest.approx(0.03)


def test_a_failing_side_takes_the_token_away() -> None:
    """A stale side is no side."""
    host = Host()
    host.run(90)
    host.board.fail("gpu", SourceError("gone"), 95.0)
    assert host.observe() == ()

    host = Host()
    host.run(90)
    host.board.fail("engine_endpoint/s", SourceError("gone"), 95.0)
    assert host.observe() == ()


def test_a_restarted_engine_begins_a_new_window() -> None:
    """Counters that fall back do not give a negative token, and the old run does not mix with the new."""
    host = Host()
    host.run(90)
    host.gpu(95.0, 95 * 0.6)
    host.endpoint(95.0, 10.0)

    assert host.observe() == ()


def test_an_idle_hour_is_not_a_loss() -> None:
    """Half a window of idling thins neither side: steps and tokens stand still with the GPU."""
    host = Host()
    host.run(60)
    for now in range(65, 91, 5):
        host.gpu(now, 36.0)
        if now % 15 == 0:
            host.endpoint(now, 1200.0)
        host.observe()

    (token,) = host.window.tokens

    assert token.busy == pytest.approx(0.03)
    assert token.interval == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (set(), None),
        ({"GPU-1"}, 0.03),
        ({"GPU-0", "GPU-1"}, 0.005),
        ({"GPU-7"}, None),
        ({"GPU-1", "GPU-7"}, None),
    ],
    ids=["not known", "one of two", "the least busy of a group", "not there", "one of them not there"],
)
def test_the_least_busy_gpu_of_a_server_counts(gpus: set[str], expected: float | None) -> None:
    """Of all its GPUs; where one of them is not read, or none is known, there is no token."""
    host = Host({"s": gpus})
    for now in range(0, 91, 5):
        host.gpu(now, now * 0.1, now * 0.6)
        if now % 15 == 0:
            host.endpoint(now, now * 20.0)
        host.observe()

    assert [token.busy for token in host.window.tokens] == ([] if expected is None else [pytest.approx(expected)])


def test_a_gpu_of_two_servers_belongs_to_neither() -> None:
    """Its busy seconds are of both."""
    host = Host({"s": {"GPU-0"}, "t": {"GPU-0"}})
    for now in range(0, 91, 15):
        host.gpu(now, now * 0.6)
        host.endpoint(now, now * 20.0, "s")
        host.endpoint(now, now * 20.0, "t")
        host.observe()

    assert host.window.tokens == ()


def test_a_pipeline_is_left_out() -> None:
    """A step's time is spread over its stages' GPUs."""
    host = Host()
    facts = EngineFacts("s", "vllm", settings=(("pipeline_parallel_size", "2"),))
    host.board.succeed("engine_log/s", [facts], 0.0, 0.0)

    assert host.run(90) == ()


def test_history_is_forgotten() -> None:
    """Two minutes are kept, however long the daemon runs."""
    host = Host()
    host.run(3600)

    assert len(host.window._busy["GPU-0"]) <= 25
    assert all(len(points) <= 9 for points in host.window._points.values())


def test_a_server_that_is_down_still_has_its_gpu() -> None:
    """B shares A's GPU and is only loading: its busy seconds are not A's."""
    host = Host({"s": {"GPU-0"}, "t": {"GPU-0"}})

    assert host.run(90) == ()


def test_a_gap_in_the_gpus_readings_is_no_loss() -> None:
    """A window over a stretch in which nobody looked says nothing."""
    host = Host()
    for now in range(0, 91, 5):
        gaps = int(now >= 60)
        seconds = now * 0.6 - (18 if gaps else 0)
        host.board.succeed("gpu", [gpu(now, seconds, gaps=gaps)], now, now)
        if now % 15 == 0:
            host.endpoint(now, now * 20.0)
        host.observe()

    assert host.window.tokens == ()


def test_a_gpu_without_utilisation_gives_no_token() -> None:
    """Under MIG there is none; it is not 100 % lost."""
    host = Host()
    for now in range(0, 91, 15):
        host.board.succeed("gpu", [gpu(now, None)], now, now)
        host.endpoint(now, now * 20.0)
        host.observe()

    assert host.window.tokens == ()


def test_a_slow_endpoint_does_not_make_it_flicker() -> None:
    """Read once a minute, the token is there from the second reading on, at every tick."""
    host = Host()
    host.window.interval = 60.0
    seen = []
    for now in range(0, 601, 5):
        host.gpu(now, now * 0.6)
        if now % 60 == 0:
            host.endpoint(now, now * 20.0)
        seen.append(bool(host.observe()))

    assert seen == [False] * 12 + [True] * (len(seen) - 12)


# --- recorded: NVML readings and /metrics of the same run ---------------------------------------------------------


@pytest.mark.parametrize(("activity", "tolerance"), [("gpm", 0.12), ("utilisation", 0.15)])
@pytest.mark.parametrize("stage", STAGES)
def test_the_eager_run_foretells_the_graph_run(stage: str, activity: str, tolerance: float) -> None:
    """Its busy time is what the graph run then really took, within 12 % by GPM and 15 % by one utilisation a second."""
    busy, interval = recorded_token("a-before", stage, activity=activity)
    _, graph_interval = recorded_token("b-after", stage)

    assert busy == pytest.approx(graph_interval, rel=tolerance)
    assert (interval - busy) / interval > 0.55


@pytest.mark.parametrize("stage", STAGES)
def test_the_graph_run_loses_next_to_nothing(stage: str) -> None:
    """Less than 3 % of each token."""
    busy, interval = recorded_token("b-after", stage)

    assert max(0.0, interval - busy) / interval < 0.03


# Mean time between a request's tokens in ms, measured by the client.
CLIENT = [
    ("a-before", "c1", 18.623),
    ("a-before", "c4", 16.627),
    ("a-before", "c8", 16.002),
    ("a-before", "c16", 13.626),
    ("a-before", "c32", 15.686),
    ("b-after", "c1", 4.695),
    ("b-after", "c4", 4.768),
    ("b-after", "c8", 4.883),
    ("b-after", "c16", 4.997),
    ("b-after", "c32", 5.398),
]


@pytest.mark.parametrize(("run", "stage", "mean"), CLIENT)
def test_the_client_saw_the_same_time_between_tokens(run: str, stage: str, mean: float) -> None:
    """The engine's histogram agrees with the client within 10 %: the windows of the two differ by seconds."""
    assert recorded_token(run, stage)[1] * 1e3 == pytest.approx(mean, rel=0.1)


def test_kv_pressure_shows_as_a_loss() -> None:
    """With 64 clients short of KV cache a quarter of each token is lost: the waits of preempted requests are in it."""
    busy, interval = recorded_token("c-kv-pressure", "c64")

    assert 0.2 < (interval - busy) / interval < 0.35
