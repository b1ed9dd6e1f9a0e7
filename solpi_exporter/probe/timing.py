"""How a step is timed, and when what was timed does not count. No torch in here."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from solpi_exporter.probe.bench import Step

NANO = 1e-9
SIBLING_SECONDS = 20e-6  # CPU time of other threads of this process that a step tolerates, besides the share below:
SIBLING_SHARE = 0.01  # a thread that runs Python takes the GIL from the step, for milliseconds when it is unlucky


def time_step(enqueue: Callable[[], None], finish: Callable[[], object]) -> Step:
    """Time one step: `enqueue` gives the device its work, `finish` waits for it and reads the tokens back.

    `perf_counter` stands innermost. Of the CPU clocks, which cost 300 to 400 ns each, one is read inside the wall time.
    """
    process_start, cpu_start = time.process_time_ns(), time.thread_time_ns()
    start = time.perf_counter_ns()
    enqueue()
    enqueued, cpu_enqueued = time.perf_counter_ns(), time.thread_time_ns()
    finish()
    end = time.perf_counter_ns()
    cpu, process = time.thread_time_ns() - cpu_start, time.process_time_ns() - process_start
    wall = (end - start) * NANO
    return Step(
        wall=wall,
        cpu=cpu * NANO,
        enqueue=(enqueued - start) * NANO,
        enqueue_cpu=min(cpu_enqueued - cpu_start, enqueued - start) * NANO,  # its clock is read around the other
        span=None,
        void=(process - cpu) * NANO > SIBLING_SECONDS + SIBLING_SHARE * wall,
    )


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep Python's collector out of a block of steps: a full collection takes longer than a step."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def throttled_periods(root: Path = Path("/sys/fs/cgroup"), cgroup: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return how often the kernel has throttled this process's cgroup; None where cgroup v2 does not say."""
    try:
        entry = next(line for line in cgroup.read_text().splitlines() if line.startswith("0::"))
        statistics = (root / entry.removeprefix("0::").strip("/") / "cpu.stat").read_text()
    except (OSError, StopIteration):
        return None
    counts = dict(line.split() for line in statistics.splitlines())
    return int(counts["nr_throttled"]) if "nr_throttled" in counts else None
