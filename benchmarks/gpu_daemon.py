"""The whole daemon over 1, 8 and 64 GPUs of the tests' stand-in for NVML: CPU, memory and scrapes, in one run.

    python -m benchmarks.gpu_daemon [--seconds 60] [--gpus 1 8 64]

Engine and probe off, everything else at its default. The stand-in answers at once, so this is the exporter's own cost;
what the calls cost on a real GPU is in nvml_cost.py. Needs gcc.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import await_metrics, cpu_seconds, free_port, resident, scrape, series_of
from tests.nvml_stub import Stub, build

WARM_UP_SECONDS = 7.0
SCRAPES = 1000


@dataclass(frozen=True)
class Figures:
    """One daemon: share of a core, MiB, series, and milliseconds of scrapes that were rendered and served as bytes."""

    gpus: int
    cpu: float
    memory: float
    series: int
    rendered: list[float]
    served: list[float]


@contextmanager
def daemon(stub: Stub, gpus: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the daemon over so many GPUs; yield it and its port."""
    stub.say(f"gpus {gpus}")
    port = free_port()
    command = [sys.executable, "-m", "solpi_exporter", "run", "--no-probe", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, env=stub.environment(), stderr=subprocess.DEVNULL)
    try:
        await_metrics(port, "solpi-exporter")
        yield process, port
    finally:
        process.terminate()
        process.wait()


def measure(stub: Stub, gpus: int, seconds: float) -> Figures:
    """Return what one daemon costs, first left alone and then scraped."""
    with daemon(stub, gpus) as (process, port):
        time.sleep(WARM_UP_SECONDS)
        before, begun = cpu_seconds(process.pid), time.monotonic()
        time.sleep(seconds)
        cpu = (cpu_seconds(process.pid) - before) / (time.monotonic() - begun)
        memory = resident(process.pid)
        rendered = []
        for _ in range(20):
            time.sleep(1.05)  # beyond the age up to which bytes are served again
            rendered.append(scrape(port)[0])
        timed = [scrape(port) for _ in range(SCRAPES)]
        return Figures(gpus, cpu, memory, series_of(timed[-1][1]), rendered, [one for one, _ in timed])


def percentile(values: list[float], share: float) -> float:
    """Return a percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def main() -> None:
    """Print a row a number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, {options.seconds:g} s each, GPUs polled every 5 s\n")
    print("| GPUs | CPU, % of a core | per GPU | memory MiB | series | render p50 ms | max | as bytes p50 ms | p99 |")
    print("|---|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        stub = Stub(build(Path(folder)), Path(folder) / "control")
        for gpus in options.gpus:
            one = measure(stub, gpus, options.seconds)
            print(
                f"| {gpus} | {one.cpu * 100:.3f} | {one.cpu / gpus * 100:.4f} | {one.memory:.0f} | {one.series} "
                f"| {statistics.median(one.rendered):.1f} | {max(one.rendered):.1f} "
                f"| {statistics.median(one.served):.2f} | {percentile(one.served, 0.99):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
