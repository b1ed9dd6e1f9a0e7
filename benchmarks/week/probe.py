"""What a probe says every five minutes, with noise as it was measured on H200 hosts.

A host's own part wanders by 40 % from its quickest to its slowest cycle, and holds 1.45 times its median for ten to
twenty minutes a few times a day; a launch wanders by 20 %, a wake-up by 10, the GPU's own time by 1. Beside a busy GPU
splits are modelled; while an engine starts there are none.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.week.faults import REGRESSION, Fault
from benchmarks.week.fleet import DAY, SEED, Course, Host
from benchmarks.week.gpus import uuid
from benchmarks.week.series import Named, Said, named, total

CYCLE = 5  # minutes
BATCHES = (1, 8, 32)
STRETCHES = 3  # a day
STRETCH = 1.45
BUSY = 0.5  # load above which a GPU leaves no quiet moment
SETTLING = 2  # minutes behind a start in which no cycle is made either
HOST = 9e-4  # scheduling, in seconds
SYNC = 2.6e-5
STEP_EDGES = (5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3)


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle: how slow the host is against its median at each batch size, and whether splits are modelled."""

    minute: int
    host: tuple[float, ...]
    gpu: float
    launch: float
    wakeup: float
    is_modelled: bool


def probe(host: Host, courses: Sequence[Course], minutes: int, fault: Fault | None) -> Iterator[Named]:
    """Yield the series of a host's probe."""
    on = {"device": "cuda:0", "uuid": uuid(host, 0)}
    cycles = _cycles(host, courses, minutes, fault)
    kind = {
        "model": "NVIDIA H200",
        "shape": "8b",
        "layers": "4",
        "context": "512",
        "dtype": "bfloat16",
        "torch": "2.11.0",
    }
    yield named("solpi_probe_info", **on, **kind), [1.0] * minutes
    for index, batch in enumerate(BATCHES):
        yield from _splits(host, {**on, "batch": str(batch)}, index, cycles)
        yield from _steps({**on, "batch": str(batch)}, index, cycles)
    yield from _costs(on, cycles)
    yield from _course(host, cycles)


def _cycles(host: Host, courses: Sequence[Course], minutes: int, fault: Fault | None) -> list[Cycle | None]:
    """Return the cycle that is shown in each minute; None while it is left out."""
    dice = random.Random(f"{SEED} probe {host.name}")
    slow = set(_stretches(dice, minutes))
    (load,) = (course.load for course in courses if 0 in course.server.gpus)
    shown: list[Cycle | None] = []
    for minute in range(minutes):
        if minute % CYCLE == 0:
            usual = STRETCH * dice.uniform(0.93, 1.07) if minute in slow else dice.uniform(0.8, 1.2)
            worse = 2.2 if fault is REGRESSION and REGRESSION.is_on(host.name, minute) else 1.0
            cycle = Cycle(
                minute,
                tuple(worse * usual * dice.uniform(0.97, 1.03) for _ in BATCHES),
                dice.uniform(0.99, 1.01),
                dice.uniform(0.85, 1.2),
                dice.uniform(0.9, 1.1),
                (load[minute] or 0.0) > BUSY,
            )
            starts = any(
                course.load[max(0, minute - back)] is None for course in courses for back in range(SETTLING + 1)
            )
            shown.append(None if starts else cycle)
        else:
            shown.append(shown[-1])
    return shown


def _stretches(dice: random.Random, minutes: int) -> Iterator[int]:
    for day in range(0, minutes, DAY):
        for _ in range(STRETCHES):
            begun = day + dice.randrange(DAY)
            yield from range(begun, begun + dice.randrange(10, 21))


def _splits(host: Host, at: dict[str, str], index: int, cycles: Sequence[Cycle | None]) -> Iterator[Named]:
    """Yield tokens, phases and shares, measured or modelled, beside their baseline."""
    graph = 7.5e-4 * (1 + BATCHES[index] / 300)
    baseline = _figures(host.slow, graph, 1.0, 1.0)
    for name in baseline:
        metric, _, label = name.partition("|")
        labels = dict([label.split("=")]) if label else {}
        for basis, modelled in (("measured", False), ("modelled", True)):
            yield (
                named(f"solpi_probe_{metric}", **at, **labels, basis=basis),
                [
                    None
                    if cycle is None or cycle.is_modelled != modelled
                    else _figures(host.slow, graph, cycle.host[index], cycle.gpu)[name]
                    for cycle in cycles
                ],
            )
        yield named(f"solpi_probe_baseline_{metric}", **at, **labels), _while(cycles, baseline[name])


def _figures(slow: float, graph: float, host: float, gpu: float) -> dict[str, float]:
    """Return what a cycle tells of a batch size, by metric and label: the host's part is what wanders."""
    compute, memory, sync = 0.95 * graph * gpu, 0.05 * graph * gpu, SYNC * host * slow
    token = (graph + HOST) * host * slow + sync
    scheduling = max(0.0, token - compute - memory - sync)
    return {
        "token_seconds|mode=eager_sync": token,
        "token_seconds|mode=graph_sync": graph * gpu + sync,
        "phase_seconds|phase=compute": compute,
        "phase_seconds|phase=memory": memory,
        "phase_seconds|phase=scheduling": scheduling,
        "phase_seconds|phase=sync": sync,
        "control_ratio": (scheduling + sync) / token,
        "reclaimable_ratio|mode=graph_async": max(0.0, 1 - (graph * gpu + sync) / token),
    }


def _while(cycles: Sequence[Cycle | None], value: float) -> Said:
    return [None if cycle is None else value for cycle in cycles]


def _steps(at: dict[str, str], index: int, cycles: Sequence[Cycle | None]) -> Iterator[Named]:
    """Yield the histogram of single steps, 24 a cycle; none of a cycle beside a busy GPU."""
    made = [
        24.0 if cycle is not None and cycle.minute == minute and not cycle.is_modelled else 0.0
        for minute, cycle in enumerate(cycles)
    ]
    name, mode = "solpi_probe_step_seconds", {"mode": "eager_sync"}
    for edge in STEP_EDGES:
        below = [
            count * (cycle is not None and edge > 1.65e-3 * cycle.host[index])
            for count, cycle in zip(made, cycles, strict=True)
        ]
        yield named(f"{name}_bucket", **at, **mode, le=f"{edge:g}"), total(below)
    yield named(f"{name}_bucket", **at, **mode, le="+Inf"), total(made)
    yield named(f"{name}_count", **at, **mode), total(made)


def _costs(on: dict[str, str], cycles: Sequence[Cycle | None]) -> Iterator[Named]:
    """Yield raw costs beside their baselines."""
    launch = [None if cycle is None else 9e-6 * cycle.launch for cycle in cycles]
    yield named("solpi_probe_launch_seconds", **on), launch
    yield named("solpi_probe_baseline_launch_seconds", **on), _while(cycles, 9e-6)
    for percentile, base in (("50", 6e-5), ("99", 9e-5)):
        spread = 1 if percentile == "50" else 2.7  # 60 to 115 us
        late = [None if cycle is None else base * (1 + spread * (cycle.wakeup - 1)) for cycle in cycles]
        yield named("solpi_probe_wakeup_overshoot_seconds", **on, percentile=percentile), late
        yield named("solpi_probe_baseline_wakeup_overshoot_seconds", **on, percentile=percentile), _while(cycles, base)
    for batch in BATCHES:
        off = [None if cycle is None else 2e-5 * (cycle.wakeup - 0.9) / 0.2 for cycle in cycles]
        yield named("solpi_probe_off_cpu_seconds", **on, batch=str(batch), mode="eager_sync"), off


def _course(host: Host, cycles: Sequence[Cycle | None]) -> Iterator[Named]:
    """Yield how the probe fares: a split beside a busy GPU is modelled, and no success."""
    last: list[float | None] = []
    for minute, cycle in enumerate(cycles):
        measured = cycle is not None and cycle.minute == minute and not cycle.is_modelled
        last.append(60.0 * minute if measured else last[-1] if last and host.scraped(minute) else None)
    yield "solpi_probe_last_success_timestamp_seconds", last
    for outcome, modelled in (("success", False), ("contended", True)):
        made = [
            float(len(BATCHES)) * (cycle is not None and cycle.minute == minute and cycle.is_modelled == modelled)
            for minute, cycle in enumerate(cycles)
        ]
        yield named("solpi_probe_runs_total", outcome=outcome), total(made)
    left = [float(cycle is None) for cycle in cycles]
    yield named("solpi_probe_skipped_total", reason="starting"), total(left)
    moving = [float(minute % DAY == 600) for minute in range(len(cycles))]
    yield named("solpi_probe_skipped_total", reason="memory_moving"), total(moving)
