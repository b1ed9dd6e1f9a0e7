"""What the probe costs a neighbour that decodes on the same GPU: its steps without and with the exporter's cycles.

    python -m benchmarks.probe_interference [--windows 4] [--seconds 15] [--period 5] [--out interference.json]

Windows without and with a cycle every few seconds take turns in one run; at the default period a cycle is so rare that
its cost drowns in the noise of a step, so it is taken here and scaled. Exit status 1 says that a bar was missed: at the
default period 0.1 % of the neighbour's time, and 2 ms of its P99 at the period that was run. Needs a GPU that nobody
else uses; two and a half minutes.

    python -m benchmarks.probe_interference --only-probe

does the same beside whatever is there, such as a real engine, and writes a line of JSON for each window.
"""

import argparse
import array
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.probe_load import SETTLE, SHAPE, make_bench, neighbour, write
from solpi_exporter.probe.bench import GpuBench
from solpi_exporter.probe.plan import GENTLE
from solpi_exporter.probe.timing import p50_p99

BATCHES = (1, 8, 32, 64)  # a cycle takes three of them every time, and the dearest of those that take turns
DEFAULT_PERIOD = 300.0
MOST_SHARE = 0.001  # of the neighbour's time, at the default period
MOST_LATER = 2e-3  # seconds, of its P99 at the period that was run


@dataclass(frozen=True, slots=True)
class Window:
    """What ran in a stretch of time, by the clock that all processes share: cycles, and their seconds of the GPU."""

    begin: float
    end: float
    cycles: int = 0
    gpu_seconds: float = 0.0
    modelled: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """The neighbour's steps in windows of one kind, in seconds."""

    name: str
    steps: Sequence[float]
    seconds: float

    @property
    def row(self) -> str:
        """A row of the table, in milliseconds."""
        middle, late = p50_p99(self.steps)
        worst, mean = max(self.steps), statistics.mean(self.steps)
        figures = (mean, middle, late, worst)
        rate = len(self.steps) / self.seconds
        return (
            f"| {self.name} | {len(self.steps)} | {rate:.2f} | "
            + " | ".join(f"{1e3 * one:.3f}" for one in figures)
            + " |"
        )


def idle(seconds: float) -> Window:
    """Let the neighbour run alone."""
    begin = time.monotonic()
    time.sleep(seconds)
    return Window(begin, time.monotonic())


def probing(bench: GpuBench, seconds: float, period: float) -> Window:
    """Run a cycle every `period` seconds, or one after the other where it takes longer."""
    begin, before, cycles, modelled = time.monotonic(), bench.used.total, 0, 0
    while (due := begin + cycles * period) < begin + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        bench.costs(nullcontext())
        results = [bench.measure(batch, nullcontext()) for batch in BATCHES]
        modelled += sum(one.splits[0].basis == "modelled" for one in results if one.splits)
        cycles += 1
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    return Window(begin, time.monotonic(), cycles, bench.used.total - before, modelled)


def within(ends: Sequence[float], stretches: Sequence[Window]) -> Iterator[float]:
    """Yield how long each step took that began and ended in one of the windows."""
    for window in stretches:
        there = [end for end in ends if window.begin <= end <= window.end]
        yield from (after - before for before, after in pairwise(there))


def table(alone: Steps, beside: Steps) -> Iterator[str]:
    """Yield a Markdown table, in milliseconds."""
    yield "| ms | steps | steps/s | mean | P50 | P99 | worst |"
    yield "|---" * 7 + "|"
    yield alone.row
    yield beside.row


def judged(alone: Steps, beside: Steps, during: Sequence[Window]) -> tuple[list[str], bool]:
    """Return what the cycles cost, in words, and whether that meets the bars."""
    cycles, used = sum(one.cycles for one in during), sum(one.gpu_seconds for one in during)
    usual = statistics.mean(alone.steps)
    excess = sum(step - usual for step in beside.steps)
    share = excess / cycles / DEFAULT_PERIOD
    later = p50_p99(beside.steps)[1] - p50_p99(alone.steps)[1]
    lines = [
        f"{cycles} cycles, {1e3 * used / cycles:.1f} ms of the GPU each; {sum(one.modelled for one in during)} of "
        f"{cycles * len(BATCHES)} splits modelled, the others noisy or measured",
        f"the neighbour lost {1e3 * excess / cycles:.1f} ms a cycle, {excess / used:.2f} s for a second of the probe's",
        f"at a cycle every {DEFAULT_PERIOD:.0f} s: {share:.4%} of its time (bar {MOST_SHARE:.1%})",
        f"P99 later by {1e3 * later:.3f} ms (bar {1e3 * MOST_LATER:.0f})",
    ]
    return lines, share <= MOST_SHARE and later <= MOST_LATER


def windows(bench: GpuBench, options: argparse.Namespace) -> Iterator[tuple[Window, Window]]:
    """Yield a window without cycles and one with them, in turn."""
    for _ in range(options.windows):
        yield idle(options.seconds), probing(bench, options.seconds, options.period)
        time.sleep(SETTLE)


def beside_neighbour(bench: GpuBench, options: argparse.Namespace) -> tuple[list[tuple[Window, Window]], list[float]]:
    """Return the windows, and when each step of the neighbour ended."""
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder) / "steps"
        with neighbour("--steps", str(steps)):
            pairs = list(windows(bench, options))
        return pairs, list(array.array("d", steps.read_bytes()))


def beside_others(bench: GpuBench, options: argparse.Namespace) -> None:
    """Print each window as it ends, by the Unix clock, which others write into their logs."""
    unix = time.time() - time.monotonic()
    for pair in windows(bench, options):
        for one in pair:
            print(json.dumps(asdict(replace(one, begin=one.begin + unix, end=one.end + unix))), flush=True)


def main() -> int:
    """Measure, print the table and what follows from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=4, help="without and with cycles, each")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each window")
    parser.add_argument("--period", type=float, default=5.0, help="from one cycle to the next")
    parser.add_argument("--only-probe", action="store_true", help="start no neighbour")
    parser.add_argument("--out", type=Path, help="where to write every step as JSON")
    options = parser.parse_args()
    bench = make_bench(SHAPE, BATCHES, GENTLE)
    bench.costs(nullcontext())  # while it is alone: warms the clocks up, and sees a quiet round trip
    if options.only_probe:
        beside_others(bench, options)
        return 0
    pairs, ends = beside_neighbour(bench, options)
    without, during = ([pair[kind] for pair in pairs] for kind in (0, 1))
    alone = Steps("alone", list(within(ends, without)), sum(one.end - one.begin for one in without))
    beside = Steps(
        f"a cycle every {options.period:g} s", list(within(ends, during)), sum(one.end - one.begin for one in during)
    )
    lines, is_met = judged(alone, beside, during)
    print(*table(alone, beside), "", *lines, sep="\n")
    if options.out is not None:
        rows = [{"window": asdict(one), "steps": list(within(ends, [one]))} for one in (*without, *during)]
        write(options.out, {"batches": BATCHES, "period": options.period}, rows)
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
