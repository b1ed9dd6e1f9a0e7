"""Which figures of the probe hold beside a busy GPU or on a loaded host, and whether its verdict names which it was.

    python -m benchmarks.probe_conditions [--cycles 3] [--out conditions.json]

One process measures under eight conditions in turn. Exit status 1 says that a cycle's verdict was not that of its
condition. Needs a GPU that nobody else uses; about a minute.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.probe_load import BATCHES, SHAPE, Cycle, burning, cycle, make_bench, median, neighbour, row, write
from solpi_exporter.probe.bench import GpuBench
from solpi_exporter.probe.plan import GENTLE
from solpi_exporter.probe.result import EAGER_SYNC, BatchResult, Costs, ModeResult


@dataclass(frozen=True, slots=True)
class Condition:
    """What runs beside the probe, and what the probe should say of it.

    `is_new` says that its bench is made then, and as the exporter's: it has never seen anything else.
    """

    name: str
    verdict: str
    loads: tuple[Callable[[], AbstractContextManager[None]], ...] = ()
    is_new: bool = False


CONDITIONS = (
    Condition("quiet", "quiet"),
    Condition("quiet again", "quiet"),
    Condition("host loaded", "host starved", (burning,)),
    Condition("GPU busy", "GPU contended", (neighbour,)),
    Condition("both", "both", (neighbour, burning)),
    Condition("quiet at the end", "quiet"),
    Condition("gentle, quiet", "quiet", is_new=True),
    Condition("gentle, never quiet", "GPU contended", (neighbour,), is_new=True),
)


def micro(seconds: float) -> str:
    """Return microseconds, to three digits at least."""
    return f"{seconds * 1e6:,.{0 if seconds >= 1e-4 else 1}f}"


def percent(share: float) -> str:
    """Return a share as it is read."""
    return f"{share:.1%}"


Format = Callable[[float], str]

COSTS: tuple[tuple[str, Callable[[Costs], float | None], Format], ...] = (
    ("round trip P50", lambda costs: costs.round_trip and costs.round_trip[0], micro),
    ("round trip P99", lambda costs: costs.round_trip and costs.round_trip[1], micro),
    ("late round trips", lambda costs: costs.late_round_trips, percent),
    ("launch", lambda costs: costs.launch, micro),
    ("graph launch", lambda costs: costs.graph_launch, micro),
    ("graph node", lambda costs: costs.graph_node, micro),
    ("wake-up P50", lambda costs: costs.wakeup[0], micro),
    ("wake-up P99", lambda costs: costs.wakeup[1], micro),
)


def off_cpu_share(mode: ModeResult) -> float:
    """Return the share of launched steps in which their thread did not run, as the verdict takes it."""
    return mode.off_cpu * len(mode.steps) / sum(mode.steps)


MODE: tuple[tuple[str, Callable[[ModeResult], float], Format], ...] = (
    ("token", lambda mode: mode.token, micro),
    ("enqueue Q", lambda mode: mode.enqueue, micro),
    ("enqueue CPU q", lambda mode: mode.enqueue_cpu, micro),
    ("off CPU", lambda mode: mode.off_cpu, micro),
    ("off CPU / step", off_cpu_share, percent),
)


def graph_times(results: Sequence[BatchResult]) -> str:
    """Return the median G of each basis, which are never mixed."""
    times: dict[str, list[float]] = {}
    for result in results:
        if result.split is not None:
            times.setdefault(result.splits[0].basis, []).append(result.split.compute + result.split.memory)
    return ", ".join(f"{shown(median(one), micro)} {basis}" for basis, one in times.items()) or "absent"


def shown(value: float | None, as_text: Format) -> str:
    """Return the text of a figure."""
    return "absent" if value is None else as_text(value)


def verdicts(cycles: Sequence[Cycle]) -> str:
    """Return what the probe said, once where it always said the same."""
    names = [one.verdict.name or "unknown" for one in cycles]
    return ", ".join(f"{name} {names.count(name)}/{len(names)}" for name in dict.fromkeys(names))


def column(cycles: Sequence[Cycle]) -> Iterator[tuple[str, str]]:
    """Yield every figure of a condition with its name: medians over the cycles."""
    for name, cost, as_text in COSTS:
        yield name, shown(median(cost(one.costs) for one in cycles), as_text)
    for batch in BATCHES:
        results = [one.of(batch) for one in cycles]
        launched = [result.modes[EAGER_SYNC] for result in results if EAGER_SYNC in result.modes]
        for name, figure, as_text in MODE:
            yield f"{name}, batch {batch}", shown(median(figure(mode) for mode in launched), as_text)
        yield f"G, batch {batch}", graph_times(results)
    yield "noisy runs", f"{sum(one.noisy for one in cycles)} of {len(cycles) * len(BATCHES)}"
    yield "verdict", verdicts(cycles)


def table(measured: Mapping[str, Sequence[Cycle]]) -> Iterator[str]:
    """Yield a Markdown table, a column for each condition; times in microseconds."""
    columns = [dict(column(cycles)) for cycles in measured.values()]
    yield "| us | " + " | ".join(measured) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in columns[0]:
        yield f"| {name} | " + " | ".join(one[name] for one in columns) + " |"


def measure(bench: GpuBench, condition: Condition, cycles: int) -> list[Cycle]:
    """Measure a few cycles under a condition."""
    with ExitStack() as loads:
        for load in condition.loads:
            loads.enter_context(load())
        if condition.is_new:
            bench = make_bench(SHAPE, BATCHES, GENTLE)
        return [cycle(bench) for _ in range(cycles)]


def main() -> int:
    """Measure all, print the table, and say which verdicts were wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=3, help="under each condition")
    parser.add_argument("--out", type=Path, help="where to write every cycle as JSON")
    options = parser.parse_args()
    bench = make_bench(SHAPE, BATCHES)
    cycle(bench)  # the first loads what later ones find loaded
    measured = {condition.name: measure(bench, condition, options.cycles) for condition in CONDITIONS}
    print(*table(measured), sep="\n")
    if options.out is not None:
        rows = [
            row(condition=condition.name, expected=condition.verdict, verdict=asdict(one.verdict), cycle=one)
            for condition in CONDITIONS
            for one in measured[condition.name]
        ]
        write(options.out, {"batches": BATCHES}, rows)
    wrong = [one for one in CONDITIONS if any(each.verdict.name != one.verdict for each in measured[one.name])]
    for one in wrong:
        print(f"wrong verdict: {one.name}: {verdicts(measured[one.name])}, expected {one.verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
