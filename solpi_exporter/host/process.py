"""What procfs tells of one process: who it is, whose child, and the CPU time that it had and waited for.

The root of procfs is an argument. A process of another user is read like an own one, except under `hidepid`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from solpi_exporter.host.cgroup import read_membership
from solpi_exporter.host.files import PROC, cpu_list, read

MOST_ANCESTORS = 64
NANOSECONDS = 1e9

# Fields of /proc/PID/stat, counted from the one behind the command's name (field 3 of proc(5)).
_PARENT, _USER, _SYSTEM, _STARTED = 1, 11, 12, 19


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `command` is empty for a kernel thread, and one element where the process set its own title.

    `cgroup` is its path in the unified hierarchy, or in cgroup v1's of the CPU. `started` is in clock ticks since the
    boot: together with the pid it names a process for good.
    """

    pid: int
    parent: int
    command: tuple[str, ...]
    cgroup: str | None
    started: int


@dataclass(frozen=True, slots=True)
class Stat:
    """From /proc/PID/stat. `cpu_seconds` is user and system time of all threads, also ended ones; of no children."""

    parent: int
    started: int
    cpu_seconds: float


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """Return a process; None when it has gone, or may not be read.

    Reads the command line, for which the kernel takes a lock of the process: one that hangs can hold it, so keep this
    out of what is polled often.
    """
    stat = read_stat(pid, proc)
    command = read(f"{proc}/{pid}/cmdline")
    if stat is None or command is None:
        return None
    membership = read_membership(pid, proc)
    # A title is padded with NULs to the length of the arguments that it overwrote.
    words = tuple(command.rstrip("\0").split("\0")) if command.strip("\0") else ()
    return Process(pid, stat.parent, words, membership.path, stat.started)


def lineage(pid: int, proc: Path = PROC) -> Iterator[Process]:
    """Yield a process and its ancestors, up to pid 1 (yielded: in a container it is often the server) or a gap."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen and len(seen) < MOST_ANCESTORS:
        seen.add(pid)
        process = read_process(pid, proc)
        if process is None:
            return
        yield process
        pid = process.parent


def read_stat(pid: int, proc: Path = PROC) -> Stat | None:
    """Return parent, start and CPU time, read without any lock of the process; None when it has gone."""
    text = read(f"{proc}/{pid}/stat")
    # The name in parentheses may hold blanks and parentheses itself.
    fields = [] if text is None else text.rpartition(")")[2].split()
    if len(fields) <= _STARTED:
        return None
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    return Stat(int(fields[_PARENT]), int(fields[_STARTED]), ticks / os.sysconf("SC_CLK_TCK"))


def run_delays(pid: int, proc: Path = PROC) -> dict[int, float]:
    """Return by thread the seconds it was ready to run and no CPU took it (second number of its schedstat).

    Empty when the process has gone, and where the kernel does not count. /proc/PID/schedstat would be the main thread
    alone; a thread that ends takes its number along.
    """
    tasks = f"{proc}/{pid}/task"
    try:
        threads = os.listdir(tasks)
    except OSError:
        return {}
    told = {thread: (read(f"{tasks}/{thread}/schedstat") or "").split() for thread in threads}
    counted = {int(thread): numbers for thread, numbers in told.items() if len(numbers) == 3}
    if not any(int(turns) for _, _, turns in counted.values()):
        return {}
    return {thread: int(delay) / NANOSECONDS for thread, (_, delay, _) in counted.items()}


def allowed_cpus(pid: int, proc: Path = PROC) -> frozenset[int]:
    """Return the CPUs on which the process's main thread may run, absent ones included; empty when not known."""
    for line in (read(f"{proc}/{pid}/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            return cpu_list(value)
    return frozenset()
