"""A host as a folder: the files of procfs and sysfs that host/ reads, and readers of another user for the real ones."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
TICK = os.sysconf("SC_CLK_TCK")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")

DROP = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"


@dataclass(frozen=True, slots=True)
class Machine:
    """A folder with the roots `proc` and `sys`."""

    root: Path

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    @property
    def cgroups(self) -> Path:
        return self.sys / "fs/cgroup"

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with what is in it."""
        file = self.root / path
        for child in sorted(file.rglob("*"), reverse=True):
            child.rmdir() if child.is_dir() else child.unlink()
        file.rmdir() if file.is_dir() else file.unlink()

    def process(
        self,
        pid: int,
        *,
        parent: int = 1,
        name: str = "python3",
        command: str = "vllm\0serve\0",
        cgroup: str = "0::/app.slice/vllm.service\n",
        started: int = 500,
        ticks: tuple[int, int] = (0, 0),
        cpus: str = "0-7",
    ) -> None:
        """Write one process; `ticks` are its user and system time."""
        middle = "S {} 1 1 0 -1 4194560 10 0 0 0 {} {} 70 80 20 0 1 0 {} 1000 20 18446744073709551615"
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) " + middle.format(parent, *ticks, started) + " 0 0\n")
        self.write(f"proc/{pid}/comm", f"{name[:15]}\n")  # the kernel keeps no more of it
        self.write(f"proc/{pid}/cmdline", command)
        self.write(f"proc/{pid}/cgroup", cgroup)
        self.write(f"proc/{pid}/status", f"Name:\t{name}\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n")

    def threads(self, pid: int, delays: dict[int, int], turns: int = 3) -> None:
        """Write the threads that a process has now: nanoseconds of run delay by thread."""
        if (self.proc / f"{pid}/task").exists():
            self.remove(f"proc/{pid}/task")
        for thread, delay in delays.items():
            self.write(f"proc/{pid}/task/{thread}/schedstat", f"77 {delay} {turns}\n")

    def throttled(self, cgroup: str, microseconds: int) -> None:
        """Write cpu.stat of a cgroup of version 2 whose CPU controller is on."""
        text = (
            f"usage_usec 9\nuser_usec 8\nsystem_usec 1\nnr_periods 5\nnr_throttled 2\nthrottled_usec {microseconds}\n"
        )
        self.write(f"sys/fs/cgroup{cgroup}/cpu.stat", text)

    def cpu(self, number: int, kilohertz: object, governor: str = "performance") -> None:
        self.write(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq", f"{kilohertz}\n")
        self.write(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor", f"{governor}\n")

    def online(self, cpus: str) -> None:
        self.write("sys/devices/system/cpu/online", f"{cpus}\n")

    def nodes(self, *cpu_lists: str) -> None:
        for number, cpus in enumerate(cpu_lists):
            self.write(f"sys/devices/system/node/node{number}/cpulist", f"{cpus}\n")

    def gpu(self, place: str, node: int) -> None:
        self.write(f"sys/bus/pci/devices/{place}/numa_node", f"{node}\n")


def as_nobody(imports: str, expression: str, before: Sequence[str] = ()) -> Any:
    """Return an expression's value as a process of another user finds it; its parent is this one.

    Python is loaded as root and the user changed then: the interpreter may lie where nobody else can read it.
    """
    code = f"import json; {imports}; {DROP}; print(json.dumps({expression}))"
    command = [*before, sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
