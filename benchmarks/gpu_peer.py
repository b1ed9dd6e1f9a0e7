"""What this exporter and nvitop-exporter cost on one host, at the same interval, side by side in one run.

    pip install nvitop-exporter==1.7.2
    python -m benchmarks.gpu_peer [--interval 1] [--seconds 60] [--peer nvitop-exporter]

Without engine and probe. CPU is that of the process (user and system) over the time after a warm-up; a scrape is timed
from here over loopback. Both run at the same time, so both see the same machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import await_metrics, cpu_seconds, free_port, resident, scrape, series_of

WARM_UP_SECONDS = 8.0


@dataclass(frozen=True)
class Figures:
    """One exporter: share of a core, resident MiB, series, scrape times in ms."""

    name: str
    cpu: float
    memory: float
    series: int
    scrapes: list[float]


def measure(commands: dict[str, tuple[list[str], int]], seconds: float) -> list[Figures]:
    """Run every command at once, and return what each cost."""
    processes = {name: subprocess.Popen(command, stderr=subprocess.DEVNULL) for name, (command, _) in commands.items()}
    try:
        for name, (_, port) in commands.items():
            await_metrics(port, name)
        time.sleep(WARM_UP_SECONDS)
        before = {name: cpu_seconds(one.pid) for name, one in processes.items()}
        begun = time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - begun
        used = {name: cpu_seconds(one.pid) - before[name] for name, one in processes.items()}
        results = []
        for name, (_, port) in commands.items():
            scrapes = [scrape(port) for _ in range(50)]
            times = [milliseconds for milliseconds, _ in scrapes]
            memory, series = resident(processes[name].pid), series_of(scrapes[-1][1])
            results.append(Figures(name, used[name] / elapsed, memory, series, times))
        return results
    finally:
        for one in processes.values():
            one.kill()
            one.wait()


def main() -> None:
    """Print the comparison as a table, the peer last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--peer", default="nvitop-exporter", help="its program")
    options = parser.parse_args()
    ours, theirs = free_port(), free_port()
    with TemporaryDirectory() as folder:
        config = Path(folder) / "config.toml"
        config.write_text(
            f'http.listen = "127.0.0.1:{ours}"\ngpu.interval = {options.interval}\nprobe.enabled = false\n'
        )
        peer = [*options.peer.split(), "--hostname", "host", "--bind-address", "127.0.0.1", "--port", str(theirs)]
        commands = {
            "solpi-exporter": ([sys.executable, "-m", "solpi_exporter", "run", "--config", str(config)], ours),
            "nvitop-exporter": ([*peer, "--interval", str(options.interval)], theirs),
        }
        results = measure(commands, options.seconds)
    print(f"interval {options.interval:g} s, {options.seconds:g} s, {os.cpu_count()} CPUs\n")
    print("| exporter | CPU, % of a core | memory MiB | series | scrape p50 ms | scrape max ms |")
    print("|---|---|---|---|---|---|")
    for one in results:
        times = f"{statistics.median(one.scrapes):.2f} | {max(one.scrapes):.2f}"
        print(f"| {one.name} | {one.cpu * 100:.3f} | {one.memory:.0f} | {one.series} | {times} |")
    print(f"\nCPU ours / peer: {results[0].cpu / results[1].cpu:.2f}")


if __name__ == "__main__":
    main()
