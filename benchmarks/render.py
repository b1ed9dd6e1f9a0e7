"""What it costs to write the series of 8 and of 64 GPUs: our renderer against prometheus_client's, in one run.

    python -m benchmarks.render [--repeat 20]

Both get merged samples whose values change from one rendering to the next. prometheus_client has to make families of
them first; the ratio is to its writing alone.
"""

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version

from solpi_exporter.metric import Kind, Metric
from solpi_exporter.render import Renderer
from tests.families import Collected, Merged, families, text

GPUS = (8, 64)
METRICS = tuple(
    Metric(f"solpi_gpu_{number}_total", "Something counted.", Kind.COUNTER, ("gpu", "uuid", "gpu_instance", "reason"))
    if number % 4 == 0
    else Metric(f"solpi_gpu_{number}_ratio", "Share of something.", Kind.GAUGE, ("gpu", "uuid", "gpu_instance"))
    for number in range(125)
)


def series(gpus: int, chance: random.Random) -> Merged:
    """Return 125 series a GPU: shares, and counts of which half are large."""
    return {
        metric: {
            (str(gpu), f"GPU-{gpu:08x}-1111-2222-3333-444455556666", "", *["sw_power_cap"][: len(metric.labels) - 3]): (
                chance.random() if metric.kind is Kind.GAUGE else float(chance.randrange(2_000_000))
            )
            for gpu in range(gpus)
        }
        for metric in METRICS
    }


def timed(job: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes."""
    begun = time.perf_counter()
    job()
    return (time.perf_counter() - begun) * 1e3


@dataclass
class Times:
    """Milliseconds of one size and format: our first rendering, which knows nothing yet, and then both by turns."""

    first: float
    ours: list[float] = field(default_factory=list)
    making: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)


def measure(gpus: int, repeat: int, *, openmetrics: bool) -> Times:
    """Write the same series with both, `repeat` times; the bytes must be equal."""
    renderer, chance = Renderer(), random.Random(1)
    unknown = series(gpus, chance)
    times = Times(timed(lambda: renderer.render(unknown, openmetrics=openmetrics)))
    for _ in range(repeat):
        merged = series(gpus, chance)
        collected = Collected(families(merged))
        times.ours.append(timed(partial(renderer.render, merged, openmetrics=openmetrics)))
        times.making.append(timed(partial(list, families(merged))))
        times.theirs.append(timed(partial(text, collected, openmetrics=openmetrics)))
        end = b"# EOF\n" if openmetrics else b""
        assert renderer.render(merged, openmetrics=openmetrics) + end == text(collected, openmetrics=openmetrics)
    return times


def main() -> None:
    """Print a row a size and format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}, ", end="")
    print(f"prometheus_client {version('prometheus_client')}; medians of {options.repeat}, ms\n")
    print("| series | format | families | prometheus_client | ours, first | ours | us a series | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for gpus in GPUS:
        for openmetrics in (False, True):
            times = measure(gpus, options.repeat, openmetrics=openmetrics)
            making, theirs, ours = map(statistics.median, (times.making, times.theirs, times.ours))
            count = gpus * len(METRICS)
            print(
                f"| {count} | {'OpenMetrics' if openmetrics else 'text'} | {making:.1f} | {theirs:.1f} "
                f"| {times.first:.2f} | {ours:.2f} | {ours / count * 1e3:.2f} | {theirs / ours:.0f} |"
            )


if __name__ == "__main__":
    main()
