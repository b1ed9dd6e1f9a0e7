"""How a step is timed, and when it is void."""

import gc
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from solpi_exporter.probe import timing
from solpi_exporter.probe.timing import (
    p50_p99,
    throttled_periods,
    time_pipeline,
    time_step,
    undisturbed,
    wakeup_overshoot,
)


def burn(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_enqueue_and_finish_are_parts_of_the_wall_time() -> None:
    """The enqueue's span ends where waiting begins; a thread that computes is on the CPU."""
    step = time_step(lambda: burn(0.004), lambda: burn(0.002))

    assert step.enqueue >= 0.004
    assert step.wall >= step.enqueue + 0.002
    assert step.enqueue_cpu <= step.wall
    assert step.span is None


def test_waiting_is_off_the_cpu() -> None:
    """Time in which the enqueuing thread does not run shows as such."""

    def wait() -> None:
        threading.Event().wait(0.02)

    step = time_step(wait, lambda: None)

    assert step.off_cpu >= 0.015


def test_a_step_beside_a_busy_sibling_is_void() -> None:
    """A thread of this process that computes takes the GIL from the step."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            burn(0.001)

    sibling = threading.Thread(target=compute)
    sibling.start()
    try:
        step = time_step(lambda: burn(0.05), lambda: None)
    finally:
        stop.set()
        sibling.join()

    assert step.void


def test_a_step_alone_is_not_void() -> None:
    """The best of several, since this machine's own housekeeping is not ours to stop."""
    assert not all(time_step(lambda: burn(0.005), lambda: None).void for _ in range(20))


def test_the_collector_is_kept_out_and_let_in_again() -> None:
    """Also when a step fails."""
    seen: list[bool] = []

    def fail() -> None:
        with undisturbed():
            seen.append(gc.isenabled())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert seen == [False]
    assert gc.isenabled()


def test_throttling_is_read_from_the_own_cgroup(tmp_path: Path) -> None:
    """cgroup v2's own line, the folder below the mount, the count by name."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "cpu.stat").write_text("usage_usec 1\nnr_periods 9\nnr_throttled 4\n")
    (tmp_path / "cgroup").write_text("1:name=systemd:/x\n0::/a/b\n")

    assert throttled_periods(tmp_path, tmp_path / "cgroup") == 4


@pytest.mark.parametrize("cgroup", [None, "1:cpu:/x\n", "0::/elsewhere\n"], ids=["no file", "v1", "no such folder"])
def test_throttling_is_not_known_without_cgroup_v2(tmp_path: Path, cgroup: str | None) -> None:
    """Unknown is not zero, and no error."""
    if cgroup is not None:
        (tmp_path / "cgroup").write_text(cgroup)

    assert throttled_periods(tmp_path, tmp_path / "cgroup") is None


def test_a_pipelined_step_is_read_one_step_behind() -> None:
    """Each is enqueued before the one before it is read, and all are read."""
    calls: list[tuple[str, int]] = []

    steps = time_pipeline(3, lambda n: calls.append(("enqueue", n)), lambda n: calls.append(("read", n)))

    enqueued = [("enqueue", n) for n in range(5)]
    assert calls == [
        enqueued[0],
        *(call for n in range(1, 5) for call in (enqueued[n], ("read", n - 1))),
        ("read", 4),
    ]
    assert len(steps) == 3


def test_pipelined_steps_fill_the_time() -> None:
    """A step lasts from one read to the next, so that nothing between two is left out."""
    spun = 2e-3

    def spin(_: int) -> None:
        end = time.perf_counter() + spun
        while time.perf_counter() < end:
            pass

    steps = time_pipeline(4, spin, lambda _: None)

    assert all(step.wall >= spun for step in steps)
    assert all(step.wall >= step.enqueue >= spun for step in steps)
    assert not any(step.enqueue_cpu > step.enqueue for step in steps)


def test_pipelined_steps_share_the_time_off_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that runs for half of the time is off the CPU for half of each step, whatever the steps took."""
    wall = 0

    def enqueue(number: int) -> None:
        nonlocal wall
        wall += 4_000_000 if number == 3 else 1_000_000

    clock = SimpleNamespace(
        perf_counter_ns=lambda: wall, thread_time_ns=lambda: wall // 2, process_time_ns=lambda: wall // 2
    )
    monkeypatch.setattr(timing, "time", clock)

    steps = time_pipeline(3, enqueue, lambda _: None)

    assert [step.wall for step in steps] == pytest.approx([1e-3, 4e-3, 1e-3])
    assert [step.off_cpu for step in steps] == pytest.approx([0.5e-3, 2e-3, 0.5e-3])
    assert not any(step.void for step in steps)


def test_quantiles() -> None:
    """Of a hundred values the middle one and the last but one; of one, itself."""
    assert p50_p99([float(value) for value in range(100)]) == (50.0, 98.0)
    assert p50_p99([3.0]) == (3.0, 3.0)


def test_a_sleeper_never_wakes_early() -> None:
    """What is told is how much later it was, P50 below P99."""
    median, late = wakeup_overshoot(sleeps=20, seconds=50e-6)

    assert 0 <= median <= late
