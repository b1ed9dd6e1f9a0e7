"""Whether the probe's split moves while its own process works: the tailer at 5,000 lines/s, forty scrapes a second.

    python -m benchmarks.probe_siblings [--device cuda] [--pairs 12]

The daemon runs in this process, and the bench shares its lock as the daemon's own probe would. Cycles without and with
load take turns, so that the host's mood falls on both; told are medians. Exit status 1 says that a phase moved by more
than 3 % of the token. A minute and a half.
"""

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.tail_log import lines
from solpi_exporter.config import EngineSettings, GpuSettings, ProbeSettings, ServerSettings, Settings
from solpi_exporter.daemon import Daemon
from solpi_exporter.logsetup import make_logger
from solpi_exporter.probe.plan import GENTLE, Opening
from solpi_exporter.probe.result import EAGER_SYNC, BatchResult, Bench
from solpi_exporter.probe.source import open_bench
from solpi_exporter.probe.split import PHASES
from solpi_exporter.sources import World

BATCHES = (1, 8)
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


def told(batch: int, alone: Sequence[BatchResult], loaded: Sequence[BatchResult]) -> tuple[str, float]:
    """Return a row of the table, and by how much the phase that moved most did, in shares of the token."""
    splits = [[one.split for one in some if one.split is not None] for some in (alone, loaded)]
    if not all(splits):
        return f"| {batch} | noisy |", math.inf
    token = statistics.median(split.token for split in splits[0])
    cells, moves = [], []
    for name in ("token", *PHASES):
        before, after = (statistics.median(getattr(split, name) for split in some) for some in splits)
        cells.append(f"{before * 1e6:.0f} | {after * 1e6:.0f} | {(after - before) / token:+.1%}")
        moves.append(abs(after - before) / token)
    kept = [
        sum(len(one.modes[EAGER_SYNC].steps) for one in some if EAGER_SYNC in one.modes) for some in (alone, loaded)
    ]
    noisy = sum(one.split is None for one in loaded)
    return f"| {batch} | {' | '.join(cells)} | {kept[0]} | {kept[1]} | {noisy} of {len(loaded)} |", max(moves)


def measure(bench: Bench, pairs: int) -> list[tuple[list[BatchResult], list[BatchResult]]]:
    """Return cycles without and with load, in pairs."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        log.touch()
        with daemon(log) as (running, port):
            cycle(bench, running)  # loads what later ones find loaded
            for _ in range(pairs):
                alone = cycle(bench, running)
                with load(log, port):
                    taken.append((alone, cycle(bench, running)))
    return taken


def main() -> int:
    """Measure, print a table in microseconds and shares of the token, and say whether anything moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--pairs", type=int, default=12, help="of cycles, without and with load")
    parser.add_argument("--load", nargs=2, metavar=("LOG", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        be_the_load(Path(options.load[0]), int(options.load[1]))
        return 0
    pairs = measure(open_bench(Opening(options.device, "auto", BATCHES, PLAN)), options.pairs)
    print(
        "| batch | "
        + " | ".join(f"{name} | loaded | moved" for name in ("token", *PHASES))
        + " | steps | loaded | noisy |"
    )
    print("|---" * (4 + 3 * 5) + "|")
    worst = 0.0
    for place, batch in enumerate(BATCHES):
        row, moved = told(batch, [one[place] for one, _ in pairs], [one[place] for _, one in pairs])
        worst = max(worst, moved)
        print(row)
    print(f"moved most: {worst:.1%} of the token (bar {MOST:.0%})")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
