"""What is said of an engine: requests, tokens, latency, KV cache, its own token, its log."""

import math
import random
from collections.abc import Iterator, Sequence
from functools import cache

from benchmarks.week.faults import STORM, Fault
from benchmarks.week.fleet import SEED, Course, Host
from benchmarks.week.series import Named, Said, named, total

MOST = 64  # running requests under full load
TOKEN_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5)  # vLLM's, as the next two
FIRST_EDGES = (0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5)
QUEUE_EDGES = (0.3, 0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0)
REQUEST_TOKENS = 300
TROUBLES = (
    "engine_dead", "start_failed", "worker_died", "cuda_error", "out_of_memory", "nccl_timeout", "step_timeout",
    "kv_load_failed", "ulimit",
)  # fmt: skip


def engine(host: Host, course: Course, fault: Fault | None) -> Iterator[Named]:
    """Yield the series of one engine; while it is away there are only those of its log's troubles and its endpoint."""
    server, minutes = course.server, len(course.load)
    of, one = {"server": server.name}, {"server": server.name, "engine": "0"}
    dice = random.Random(f"{SEED} engine {host.name} {server.name}")
    storm = [fault is STORM and STORM.is_on(host.name, minute) for minute in range(minutes)]
    running = [None if load is None else float(round(MOST * load)) for load in course.load]
    for kind in TROUBLES:
        yield named("solpi_engine_errors_total", **of, kind=kind), [0.0] * minutes
    eager = named("solpi_engine_setting_info", **of, setting="enforce_eager", value=str(server.eager))
    yield eager, _present(running, 1.0)
    yield from _processes(of, course, dice)
    yield from _reports(one, course, running, storm, dice)
    if not server.log_only:
        yield named("solpi_engine_up", **of), [float(count is not None) for count in running]
        yield from _endpoint(one, course, running, storm, dice)


def _present(running: Said, value: float) -> Said:
    return [None if count is None else value for count in running]


def _processes(of: dict[str, str], course: Course, dice: random.Random) -> Iterator[Named]:
    here = course.load
    yield (
        named("solpi_engine_cpu_seconds_total", **of),
        total(None if load is None else 3.0 + round(70 * load) for load in here),
    )
    yield (
        named("solpi_engine_run_delay_seconds_total", **of),
        total(None if load is None else round(dice.uniform(0, 0.06) * (3 + 70 * load), 2) for load in here),
    )
    yield (
        named("solpi_engine_cpu_throttled_seconds_total", **of),
        total(None if load is None else float(dice.random() < 0.01) for load in here),
    )


def _reports(
    one: dict[str, str], course: Course, running: Said, storm: Sequence[bool], dice: random.Random
) -> Iterator[Named]:
    """Yield what log and endpoint both tell."""
    waiting: list[float | None] = []
    usage: list[float | None] = []
    last: list[float | None] = []
    for minute, load in enumerate(course.load):
        if load is None:
            waiting, usage, last = [*waiting, None], [*usage, None], [*last, None]
            continue
        waiting.append(60.0 if storm[minute] else _waiting(course, minute, dice))
        usage.append(0.99 if storm[minute] or course.server.always_full else round(0.85 * load, 3))
        told = last[-1] if last else None
        last.append(60.0 * minute if load or told is None else told)
        if course.burst[minute] and minute % 8 < 5:
            usage[-1] = 0.97
    requests = "solpi_engine_requests"
    yield named(requests, **one, state="running"), running
    yield named(requests, **one, state="waiting"), waiting
    yield named("solpi_engine_kv_cache_usage_ratio", **one), usage
    yield named("solpi_engine_last_report_timestamp_seconds", **one), last


def _waiting(course: Course, minute: int, dice: random.Random) -> float:
    """Return a queue: none or one; up to thirty in a burst; the small usual one of a server that is always full."""
    if course.server.always_full:
        return float(dice.choice((1, 2, 2, 3, 3, 4, 6, 8)))
    if course.burst[minute]:
        return float(dice.randrange(5, 31))
    return float(dice.random() < 0.05)


def _endpoint(
    one: dict[str, str], course: Course, running: Said, storm: Sequence[bool], dice: random.Random
) -> Iterator[Named]:
    server = course.server
    tokens = [None if count is None else float(round(60 * count / server.token)) for count in running]
    yield named("solpi_engine_generation_tokens_total", **one), total(tokens)
    yield named("solpi_engine_prompt_tokens_total", **one), total(_times(tokens, 0.5))
    steps = [None if count is None else float(round(60 / server.token) * (count > 0)) for count in running]
    yield named("solpi_engine_steps_total", **one), total(steps)
    rate = 1.0 if server.always_full else 0.02
    preempted = [
        None if count is None else 120.0 if bad else float(_poisson(dice, rate * (count > 0)))
        for count, bad in zip(running, storm, strict=True)
    ]
    yield named("solpi_engine_preemptions_total", **one), total(preempted)
    yield named("solpi_engine_kv_transfer_failures_total", **one), total(_times(tokens, 0.0))
    bytes_a_minute = 6e11 if server.transfers else 0.0  # 10 GB/s
    for direction in ("load", "store"):
        moved = total(_present(running, bytes_a_minute))
        yield named("solpi_engine_kv_transfer_bytes_total", **one, direction=direction), moved
    lost = [None if not count else round(max(0.0, server.lost + dice.uniform(-0.03, 0.05)), 3) for count in running]
    yield named("solpi_engine_control_ratio", **one, basis="endpoint"), lost
    yield from _latencies(one, course, tokens, storm)


def _times(steps: Said, factor: float) -> Said:
    return [None if step is None else float(round(factor * step)) for step in steps]


def _poisson(dice: random.Random, mean: float) -> int:
    """Return how often something happens that does so `mean` times on average."""
    left, count = dice.random(), 0
    while left > math.exp(-mean):
        left *= dice.random()
        count += 1
    return count


def _latencies(one: dict[str, str], course: Course, tokens: Said, storm: Sequence[bool]) -> Iterator[Named]:
    """Yield the histograms; the P99 between two tokens goes from 1.3 times the median to 30 ms with load."""
    median = course.server.token
    level = [
        0 if load is None else 100 if bad else round(20 * load) for load, bad in zip(course.load, storm, strict=True)
    ]
    requests = _times(tokens, 1 / REQUEST_TOKENS)
    for metric, edges, counts, kind in (
        ("inter_token_latency", TOKEN_EDGES, tokens, "token"),
        ("time_to_first_token", FIRST_EDGES, requests, "first"),
        ("queue", QUEUE_EDGES, requests, "queue"),
    ):
        name = f"solpi_engine_{metric}_seconds"
        for edge in edges:
            below = [
                None if count is None else float(int(count * _below(kind, edge, now, median)))
                for count, now in zip(counts, level, strict=True)
            ]
            yield named(f"{name}_bucket", **one, le=f"{edge:g}"), total(below)
        yield named(f"{name}_bucket", **one, le="+Inf"), total(counts)
        yield named(f"{name}_count", **one), total(counts)


@cache
def _below(kind: str, edge: float, level: int, median: float) -> float:
    """Return the share that is quicker than an edge: lognormal, by a load of 20 levels; 100 is a storm."""
    load = level / 20
    middle, late = {
        "token": (median * (1 + 0.2 * load), min(0.03, median * (1.3 + 1.5 * load))),
        "first": (0.05 * (1 + 2 * load), 0.2 * (1 + 3 * load)),
        "queue": (0.05 * (1 + 5 * load), 0.2 * (1 + 5 * load)),
    }[kind]
    if level == 100:
        middle, late = 20 * middle, 40 * late
    width = max(0.05, math.log(late / middle) / 2.326)
    return 0.5 * (1 + math.erf(math.log(edge / middle) / (width * math.sqrt(2))))
