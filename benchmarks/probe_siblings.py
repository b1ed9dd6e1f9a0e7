"""Whether the probe's split moves while its own process works: the tailer at 5,000 lines/s, forty scrapes a second.

    python -m benchmarks.probe_siblings [--device cuda] [--rounds 12]

A daemon runs in this process, and the bench shares its lock as the daemon's own probe would; another one runs in a
process of its own. The same load falls on neither, on the other, or on ours, in random order: what moves from the
second to the third is the doing of threads beside the probe, what moves from the first to the second that of a host
that works, whoever makes it work. Exit status 1 says that a phase moved by more than 3 % of the token from the
second to the third. Two minutes.
"""

import argparse
import math
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.tail_log import lines
from solpi_exporter.config import EngineSettings, GpuSettings, ProbeSettings, ServerSettings, Settings
from solpi_exporter.daemon import Daemon
from solpi_exporter.logsetup import make_logger
from solpi_exporter.probe.plan import GENTLE, Opening
from solpi_exporter.probe.result import BatchResult, Bench
from solpi_exporter.probe.source import open_bench
from solpi_exporter.probe.split import PHASES
from solpi_exporter.sources import World

BATCHES = (1, 8)
TOLD = ("token", *PHASES)
LOADED = ("neither", "other", "ours")
PLAN = replace(GENTLE, rounds=8, stop=10.0)  # as the daemon's, often enough to see three per cent
LINES_PER_SECOND, BURSTS = 5000, 50
SCRAPERS, SCRAPES_PER_SECOND = 2, 20  # each; Prometheus asks once in fifteen seconds
MOST = 0.03
SETTLE = 0.5


@contextmanager
def daemon(log: Path) -> Iterator[tuple[Daemon, int]]:
    """Run the daemon in threads of this process, following a log."""
    settings = Settings(
        engine=EngineSettings(server=(ServerSettings(name="vllm", log=str(log)),)),
        probe=ProbeSettings(enabled=False),
        gpu=GpuSettings(interval=1.0),
    )
    running, stop = Daemon(settings, make_logger("logfmt", "error"), World()), threading.Event()
    web = running.bind("127.0.0.1:0")
    thread = threading.Thread(target=running.serve, args=(web, stop))
    thread.start()
    try:
        yield running, web.port
    finally:
        stop.set()
        thread.join()


@contextmanager
def other_daemon(log: Path) -> Iterator[int]:
    """Run a daemon in a process of its own, and yield its port."""
    command = [sys.executable, "-m", "benchmarks.probe_siblings", "--serve", str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


def be_the_other(log: Path) -> None:
    """Serve until standard input ends."""
    with daemon(log) as (_, port):
        print(port, flush=True)
        sys.stdin.read()


@contextmanager
def load(log: Path, port: int) -> Iterator[None]:
    """Let another process write lines and scrape."""
    command = [sys.executable, "-m", "benchmarks.probe_siblings", "--load", str(log), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        time.sleep(SETTLE)
        yield
        process.communicate()
    if process.returncode:
        raise SystemExit("the load failed: see its error above")


def write_lines(log: Path, stop: threading.Event) -> None:
    """Append lines at their rate, in bursts."""
    some = [f"{line}\n" for line in lines(LINES_PER_SECOND // BURSTS)]
    with log.open("a") as file:
        while not stop.wait(1 / BURSTS):
            file.writelines(some)
            file.flush()


def scrape(port: int, stop: threading.Event) -> None:
    """Ask for the metrics again and again over one connection."""
    connection = HTTPConnection("127.0.0.1", port)
    while not stop.wait(1 / SCRAPES_PER_SECOND):
        connection.request("GET", "/metrics")
        connection.getresponse().read()


def be_the_load(log: Path, port: int) -> None:
    """Work until standard input ends."""
    stop = threading.Event()
    threads = [threading.Thread(target=write_lines, args=(log, stop))]
    threads += [threading.Thread(target=scrape, args=(port, stop)) for _ in range(SCRAPERS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()


def cycle(bench: Bench, running: Daemon) -> list[BatchResult]:
    """Measure as the daemon does: its lock is held while something is timed."""
    bench.costs(running._quiet)
    return [bench.measure(batch, running._quiet) for batch in BATCHES]


def median_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and its standard error as that of a normal sample with this median deviation."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    return middle, 1.4826 * 1.2533 * deviation / math.sqrt(len(values))


def row(batch: int, taken: Mapping[str, Sequence[BatchResult]]) -> tuple[str, float]:
    """Return a row of the table, and by how much the phase that moved most did, in shares of the token.

    What moved is the median of the differences within a round, since the host wanders from round to round.
    """
    rounds = [[one.split for one in cycles] for cycles in zip(*(taken[where] for where in LOADED), strict=True)]
    told = [(alone, other, ours) for alone, other, ours in rounds if alone and other and ours]
    if not told:
        return f"| {batch} | every round was noisy |", math.inf
    token, cells, worst = statistics.median(other.token for _, other, _ in told), [], 0.0
    for name in TOLD:
        middles = [statistics.median(getattr(split, name) for split in splits) for splits in zip(*told, strict=True)]
        moved, error = median_and_error(
            [(getattr(ours, name) - getattr(other, name)) / token for _, other, ours in told]
        )
        cells += [f"{middle * 1e6:.0f}" for middle in middles] + [f"{moved:+.1%} ± {error:.1%}"]
        worst = max(worst, abs(moved))
    return f"| {batch} | {' | '.join(cells)} | {len(rounds) - len(told)} of {len(rounds)} |", worst


def measure(bench: Bench, rounds: int) -> dict[str, list[list[BatchResult]]]:
    """Return the cycles by where the load fell."""
    taken: dict[str, list[list[BatchResult]]] = {where: [] for where in LOADED}
    with tempfile.TemporaryDirectory() as folder:
        logs = {where: Path(folder) / f"{where}.log" for where in ("other", "ours")}
        for log in logs.values():
            log.touch()
        with daemon(logs["ours"]) as (running, port), other_daemon(logs["other"]) as other_port:
            ports = {"ours": port, "other": other_port}
            cycle(bench, running)  # loads what later ones find loaded
            for _ in range(rounds):
                for where in random.sample(LOADED, len(LOADED)):
                    with load(logs[where], ports[where]) if where in logs else nullcontext():
                        taken[where].append(cycle(bench, running))
    return taken


def main() -> int:
    """Measure, print a table in microseconds and shares of the token, and say whether anything moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--rounds", type=int, default=12, help="of three cycles each")
    parser.add_argument("--load", nargs=2, metavar=("LOG", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=Path, metavar="LOG", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        be_the_load(Path(options.load[0]), int(options.load[1]))
        return 0
    if options.serve is not None:
        be_the_other(options.serve)
        return 0
    taken = measure(open_bench(Opening(options.device, "auto", BATCHES, PLAN)), options.rounds)
    print("| batch | " + " | ".join(f"{name} | other | ours | moved" for name in TOLD) + " | noisy |")
    print("|---" * (2 + 4 * len(TOLD)) + "|")
    worst = 0.0
    for place, batch in enumerate(BATCHES):
        text, moved = row(batch, {where: [one[place] for one in cycles] for where, cycles in taken.items()})
        worst = max(worst, moved)
        print(text)
    print(f"moved most: {worst:.1%} of the token (bar {MOST:.0%})")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
