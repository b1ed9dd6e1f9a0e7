"""The probe on the CPU: real torch, nothing mocked."""

import math
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

from solpi_exporter.probe import cpu, device
from solpi_exporter.probe.cpu import BATCH_SECONDS, ROUNDS, STEPS, VARIANTS, CpuBench
from solpi_exporter.probe.plan import GENTLE, Opening
from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_SYNC, BatchResult
from solpi_exporter.probe.rounds import Step
from solpi_exporter.probe.shape import SHAPES, shape_of
from solpi_exporter.probe.timing import time_step
from solpi_exporter.source import SourceError


@pytest.fixture(scope="module")
def bench() -> CpuBench:
    return CpuBench(SHAPES["small"], [1, 8, 32])


def measured(bench: CpuBench, batch: int) -> BatchResult:
    """Return a result with a split; a machine with other work to do may need more than one try."""
    for _ in range(20):
        result = bench.measure(batch, nullcontext())
        if result.split is not None:
            return result
    pytest.fail(f"no split in 20 tries: {result.noise}")


@pytest.mark.parametrize("batch", [1, 8])
def test_phases_sum_to_the_token(bench: CpuBench, batch: int) -> None:
    """The identity, on times that were really taken."""
    result = measured(bench, batch)

    assert result.split is not None
    assert math.isclose(sum(result.split.phases.values()), result.split.token, rel_tol=1e-9)
    assert result.split.token == result.modes[EAGER_SYNC].token
    assert all(seconds >= 0 for seconds in result.split.phases.values())


def test_there_are_no_graphs_on_a_cpu(bench: CpuBench) -> None:
    """What does not exist is absent."""
    result = measured(bench, 1)

    assert result.modes.keys() == {EAGER_SYNC}
    assert result.reclaimable(GRAPH_SYNC) is None
    assert bench.identity.device == "cpu"


def test_a_larger_batch_moves_more_kv_cache(bench: CpuBench) -> None:
    """Eight times the batch reads eight times the cache: memory grows by more than twice."""
    one, eight = measured(bench, 1).split, measured(bench, 8).split

    assert one is not None
    assert eight is not None
    assert eight.memory > 2 * one.memory


def test_steps_are_timed_under_the_lock(bench: CpuBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """`quiet` is held whenever a step is timed, and free between the variants."""
    quiet = threading.Lock()
    held: list[bool] = []

    def timed(enqueue: Callable[[], None], finish: Callable[[], object]) -> Step:
        held.append(quiet.locked())
        return time_step(enqueue, finish)

    monkeypatch.setattr(cpu, "time_step", timed)
    bench.measure(1, quiet)

    steps, rest = divmod(len(held), VARIANTS * ROUNDS)
    assert all(held)
    assert 1 <= steps <= STEPS
    assert rest == 0
    assert not quiet.locked()


def test_a_batch_that_takes_long_is_stepped_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a round and variant, so that a cycle stays short."""
    bench = CpuBench(shape_of("small", context=2048), [64])
    steps: list[Step] = []

    def timed(enqueue: Callable[[], None], finish: Callable[[], object]) -> Step:
        steps.append(time_step(enqueue, finish))
        return steps[-1]

    monkeypatch.setattr(cpu, "BATCH_SECONDS", BATCH_SECONDS / 100)
    monkeypatch.setattr(cpu, "time_step", timed)
    bench.measure(64, nullcontext())

    assert len(steps) == VARIANTS * ROUNDS


def test_a_throttled_round_is_void(bench: CpuBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel took the CPU from this cgroup: nothing of that round counts, references included."""
    throttled = iter(range(1000))
    monkeypatch.setattr(cpu, "throttled_periods", lambda: next(throttled))

    result = bench.measure(1, nullcontext())

    assert result.split is None
    assert result.modes == {}
    assert "disturbed" in str(result.noise)


def test_void_references_do_not_count(bench: CpuBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the references are the host's times too; undisturbed steps alone do not make a split."""

    def timed(enqueue: Callable[[], None], finish: Callable[[], object]) -> Step:
        return replace(time_step(enqueue, finish), void=_is_reference(enqueue))

    monkeypatch.setattr(cpu, "time_step", timed)

    assert "the reference" in str(bench.measure(1, nullcontext()).noise)


def _is_reference(enqueue: Callable[[], None]) -> bool:
    """Whether a step is timed with another forward than the full one."""
    cells = [cell.cell_contents for cell in enqueue.__closure__ or ()]
    return any(isinstance(content, partial) for content in cells)


def test_a_busy_sibling_thread_makes_it_noisy(bench: CpuBench) -> None:
    """Steps from which another thread took the GIL are void, and there is no split beside it."""
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1000))

    sibling = threading.Thread(target=burn)
    sibling.start()
    try:
        result = bench.measure(
            32, nullcontext()
        )  # a step of which is longer than the 5 ms after which the GIL changes hands
    finally:
        stop.set()
        sibling.join()

    assert result.split is None
    assert "disturbed" in str(result.noise)


def test_a_host_without_room_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch raises when it cannot allocate is no traceback."""

    def full(*_: object) -> CpuBench:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory\nmore")

    monkeypatch.setattr(device, "CpuBench", full)

    with pytest.raises(SourceError, match=r"choose a smaller probe.shape .* \(DefaultCPUAllocator: .* memory\)"):
        device.make_bench(Opening("cpu", "small", (1,), GENTLE))
