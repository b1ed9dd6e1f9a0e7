"""How a step is timed, and when what was timed does not count. No torch in here."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from solpi_exporter.probe.rounds import Step

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
        void=_is_void((process - cpu) * NANO, wall),
    )


def time_pipeline(
    count: int, enqueue: Callable[[int], None], finish: Callable[[int], object], *, fill: int = 2
) -> list[Step]:
    """Time steps that are enqueued while the one before runs: a step lasts from one finish to the next.

    The first `fill`, in which the device has nothing to do yet, are left out. CPU time is told in proportion.
    """
    enqueued, ends = [], []
    process_start, cpu_start, begin = time.process_time_ns(), time.thread_time_ns(), time.perf_counter_ns()
    for number in range(fill + count):
        start, cpu = time.perf_counter_ns(), time.thread_time_ns()
        enqueue(number)
        enqueued.append(((time.perf_counter_ns() - start) * NANO, (time.thread_time_ns() - cpu) * NANO))
        if number:
            finish(number - 1)
        ends.append(time.perf_counter_ns())
    cpu, process = time.thread_time_ns() - cpu_start, time.process_time_ns() - process_start
    finish(fill + count - 1)
    void = _is_void((process - cpu) * NANO, (ends[-1] - begin) * NANO)
    running = cpu / max(cpu, ends[-1] - begin)
    walls = [(end - start) * NANO for start, end in pairwise(ends)][fill - 1 :]
    timed = zip(walls, enqueued[fill:], strict=True)
    return [Step(wall, running * wall, host, min(host, its), None, void) for wall, (host, its) in timed]


def _is_void(siblings: float, wall: float) -> bool:
    return siblings > SIBLING_SECONDS + SIBLING_SHARE * wall


def wakeup_overshoot(sleeps: int = 100, seconds: float = 200e-6) -> tuple[float, float]:
    """Return by how much short sleeps are overslept, P50 and P99, in seconds: what a C-state or a busy CPU adds."""
    late = []
    for _ in range(sleeps):
        start = time.perf_counter_ns()
        time.sleep(seconds)
        late.append((time.perf_counter_ns() - start) * NANO - seconds)
    return p50_p99(late)


def p50_p99(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the value that one in a hundred exceeds."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(0.99 * (len(ordered) - 1))]


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
