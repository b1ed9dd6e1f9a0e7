"""What the benchmarks share: free ports, the cost of a process, timed scrapes."""

import re
import socket
import time
import urllib.request
from pathlib import Path


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process's threads, in nanoseconds' resolution; those that have ended do not count."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def resident(pid: int) -> float:
    """Return resident MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def scrape(port: int) -> tuple[float, str]:
    """Return the milliseconds of a scrape, and its text."""
    begun = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return (time.perf_counter() - begun) * 1e3, text


def series_of(text: str) -> int:
    """Return the number of series of an exposition."""
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


def await_metrics(port: int, name: str) -> None:
    """Return once an exporter answers."""
    for _ in range(300):
        try:
            scrape(port)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{name} does not answer on port {port}")
