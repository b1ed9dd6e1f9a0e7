"""Following logs beside mtail and grep: a million lines at once, 5,000 a second live, and a hundred files; in one run.

    apt-get install mtail
    python -m benchmarks.tail [--lines 1000000] [--rounds 9] [--seconds 10]

Every contender of a round is a process of its own, in random order; its counts are checked, and ratios are taken within
the round. Of ours the CPU time of a run over an empty log is taken off, which is Python's start; that of mtail and grep
is next to nothing. The live figures are those of whole daemons, ours with a state directory, and its memory is that
beyond an exporter that follows nothing.
"""

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import await_metrics, cpu_seconds, free_port, resident, scrape
from benchmarks.tail_log import lines, report, write

PROGRAM = Path(__file__).with_name("tail.mtail")
OURS = (
    "import sys; from pathlib import Path\n"
    "from solpi_exporter.clock import SystemClock\n"
    "from solpi_exporter.engine.source import WHOLE_LOG, LogSource\n"
    "from solpi_exporter.engine.dialects.vllm import VLLM\n"
    "from solpi_exporter.engine.listener import Listener\n"
    "from solpi_exporter.engine.dialects.table import chosen\n"
    "from solpi_exporter.follow.files import FileFollower\n"
    "from solpi_exporter.follow.watch import DirectoryWatcher\n"
    "clock = SystemClock()\n"
    "paths, watcher = [sys.argv[1]], DirectoryWatcher()\n"
    "log = FileFollower(paths, from_beginning=True, start=VLLM.start, watcher=watcher, clock=clock)\n"
    "source = LogSource('s', log, Listener(chosen('auto'), 'auto'), clock, timeout=600.0, poll_bytes=WHOLE_LOG)\n"
    "progress = source.poll()[-1]; print(progress.counters.lines, dict(progress.matched)['stats']); source.close()\n"
)
RATE = 5000  # lines a second, live
TURNS = 5
FILES = 100
VISIBLE = 60  # lines whose way to the page is timed


def cpu_of(command: Sequence[str | Path]) -> tuple[float, str]:
    """Run a command to its end; return its CPU seconds and what it printed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (command, process.returncode)
    return usage.ru_utime + usage.ru_stime, output


def million(folder: Path, count: int, rounds: int) -> None:
    """Print what reading a whole log costs each contender."""
    log, empty = folder / "vllm.log", folder / "empty.log"
    reports, warnings = write(log, count)
    empty.touch()
    mtail: list[str | Path] = [
        "mtail",
        "--one_shot",
        "--one_shot_format",
        "prometheus",
        "--progs",
        PROGRAM,
        "--logs",
        log,
    ]
    commands: dict[str, list[str | Path]] = {
        "mtail": [*mtail, "--address", "127.0.0.1", "--port", "0", "--log_dir", folder],
        "solpi-exporter": [sys.executable, "-c", OURS, log],
        "empty": [sys.executable, "-c", OURS, empty],
        "grep -c, one word": ["grep", "-c", "Avg prompt throughput", log],
        "grep -c, all of the words": ["grep", "-c", "-e", "Avg prompt throughput", "-e", "is preempted by", log],
    }
    checks: dict[str, Callable[[str], bool]] = {
        "mtail": lambda out: f'stats_lines_total{{prog="tail.mtail"}} {reports}' in out,
        "solpi-exporter": lambda out: out.split() == [str(count), str(reports)],
        "empty": lambda out: out.split() == ["0", "0"],
        "grep -c, one word": lambda out: int(out) == reports,
        "grep -c, all of the words": lambda out: int(out) == reports + warnings,
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name in random.sample(list(commands), len(commands)):
            cpu, output = cpu_of(commands[name])
            assert checks[name](output), (name, output[:500])
            seconds[name].append(cpu)
    seconds["solpi-exporter"] = [
        whole - start for whole, start in zip(seconds["solpi-exporter"], seconds.pop("empty"), strict=True)
    ]
    size = log.stat().st_size / 1e6
    print(f"\n{count:,} lines, {size:.0f} MB, {rounds} rounds\n")
    print("| contender | CPU s, median | min | lines per CPU s | mtail's CPU / its | its CPU / grep's (all words) |")
    print("|---|---|---|---|---|---|")
    for name, each in seconds.items():
        faster = statistics.median(base / own for base, own in zip(seconds["mtail"], each, strict=True))
        words = seconds["grep -c, all of the words"]
        slower = statistics.median(own / base for base, own in zip(words, each, strict=True))
        median = statistics.median(each)
        print(f"| {name} | {median:.3f} | {min(each):.3f} | {count / median:,.0f} | {faster:.1f} | {slower:.1f} |")


@contextmanager
def daemon(folder: Path, log: str | None) -> Iterator[tuple[int, int]]:
    """Run an exporter that follows a log and does nothing else; yield its pid and port."""
    port = free_port()
    following = ["--no-engine"] if log is None else ["--log-file", log]
    flags = ["--no-probe", "--no-gpu", "--state-dir", str(folder / "state"), "--listen", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", "solpi_exporter", "run", *flags, *following]
    environment = {**os.environ, "SOLPI_HOST_ENABLED": "false"}
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    try:
        await_metrics(port, "solpi-exporter")
        time.sleep(3.0)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def mtail_daemon(folder: Path, log: str) -> Iterator[int]:
    """Run mtail as a daemon; yield its pid."""
    port = free_port()
    command: list[str | Path] = ["mtail", "--progs", PROGRAM, "--logs", log, "--log_dir", folder]
    process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_metrics(port, "mtail")
        time.sleep(3.0)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def core_share(pid: int, seconds: float) -> float:
    """Return the share of a core that a process takes, in per cent."""
    before, begun = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - begun) * 100


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write RATE lines a second to a file, as a server does: line by line, in small pieces."""
    stop = threading.Event()

    def write_on() -> None:
        with path.open("a", buffering=1) as file:
            source = lines(10**9)
            begun, written = time.monotonic(), 0
            while not stop.wait(0.01):
                due = int((time.monotonic() - begun) * RATE) - written
                for _ in range(due):
                    file.write(next(source) + "\n")
                written += due

    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def alternate(pid: int, log: Path, seconds: float) -> tuple[float, float, float]:
    """Return the shares of a core while no lines come, while they do, and the difference: medians of several turns."""
    idle: list[float] = []
    busy: list[float] = []
    for _ in range(TURNS):
        idle.append(core_share(pid, seconds))
        with writing(log):
            busy.append(core_share(pid, seconds))
    beyond = statistics.median(more - less for less, more in zip(idle, busy, strict=True))
    return statistics.median(idle), statistics.median(busy), beyond


def live(folder: Path, seconds: float) -> None:
    """Print what following costs while lines come, and while none do."""
    log = folder / "live.log"
    log.touch()
    rows: list[tuple[str, tuple[float, float, float], float]] = []
    with daemon(folder, None) as (pid, _):
        bare = resident(pid)
    with daemon(folder, str(log)) as (pid, _):
        rows.append(("solpi-exporter", alternate(pid, log, seconds), resident(pid) - bare))
    with mtail_daemon(folder, str(log)) as pid:
        rows.append(("mtail", alternate(pid, log, seconds), resident(pid)))
    print(f"\n{RATE} lines a second; medians of {TURNS} turns of {seconds:.0f} s with and without them\n")
    print("| follower | idle, % of a core | lines come, % | beyond idle, % | memory MiB |")
    print("|---|---|---|---|---|")
    for name, (idle, busy, beyond), memory in rows:
        print(f"| {name} | {idle:.2f} | {busy:.2f} | {beyond:.2f} | {memory:.1f} |")


def many(folder: Path, seconds: float) -> None:
    """Print what a hundred files cost beside one, while none of them grows."""
    shares: dict[int, list[float]] = {1: [], FILES: []}
    for count in shares:
        (folder / f"of{count}").mkdir()
        for number in range(count):
            (folder / f"of{count}" / f"server-{number}.log").write_text(report(number) + "\n")
    for count in (1, FILES) * 3:
        with daemon(folder, str(folder / f"of{count}" / "*.log")) as (pid, _):
            shares[count].append(core_share(pid, seconds))
    one, hundred = (statistics.median(shares[count]) for count in (1, FILES))
    print("\n| files | % of a core | ratio |\n|---|---|---|")
    print(f"| 1 | {one:.3f} | 1 |\n| {FILES} | {hundred:.3f} | {hundred / one:.2f} |")


def visible(folder: Path) -> None:
    """Print how long a line takes to the page."""
    log = folder / "visible.log"
    log.touch()
    delays: list[float] = []
    with daemon(folder, str(log)) as (_, port):
        for number in range(1, VISIBLE + 1):
            time.sleep(random.uniform(0.1, 0.3))
            with log.open("a") as file:
                file.write(report(number) + "\n")
            begun = time.monotonic()
            wanted = re.compile(rf'^solpi_engine_requests\{{.*state="running"\}} {number}\.0$', re.MULTILINE)
            while not wanted.search(scrape(port)[1]):
                time.sleep(0.005)
            delays.append((time.monotonic() - begun) * 1e3)
    delays.sort()
    median = statistics.median(delays)
    print(f"\nA line is on the page after {median:.0f} ms (median of {VISIBLE}), {delays[-1]:.0f} ms at most.")


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    parts: tuple[Callable[[Path], None], ...] = (
        lambda folder: million(folder, arguments.lines, arguments.rounds),
        lambda folder: live(folder, arguments.seconds),
        lambda folder: many(folder, arguments.seconds),
        visible,
    )
    for part in parts:
        with TemporaryDirectory() as folder:
            part(Path(folder))


if __name__ == "__main__":
    main()
