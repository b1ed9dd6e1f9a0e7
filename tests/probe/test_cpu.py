"""The probe on the CPU: real torch, nothing mocked."""

import math
import threading
from contextlib import nullcontext

import pytest

from solpi_exporter.probe.bench import EAGER_SYNC, GRAPH_SYNC, BatchResult
from solpi_exporter.probe.cpu import ROUNDS, STEPS, CpuBench
from solpi_exporter.probe.shape import SHAPES


@pytest.fixture(scope="module")
def bench() -> CpuBench:
    return CpuBench(SHAPES["small"], [1, 8])


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


def test_steps_are_timed_under_the_lock(bench: CpuBench) -> None:
    """Each variant of each round is timed with `quiet` held, and the lock is free between them."""

    class Counting:
        taken = 0

        def __enter__(self) -> None:
            self.taken += 1

        def __exit__(self, *_: object) -> None:
            pass

    quiet = Counting()
    result = bench.measure(1, quiet)

    assert quiet.taken == 3 * ROUNDS
    assert 0 < len(result.modes[EAGER_SYNC].steps) <= ROUNDS * STEPS


def test_a_busy_sibling_thread_does_not_count(bench: CpuBench) -> None:
    """Steps from which another thread took the GIL are void: the token stays that of a quiet process, or is noisy."""
    alone = measured(bench, 1).split
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1000))

    sibling = threading.Thread(target=burn)
    sibling.start()
    try:
        beside = bench.measure(1, nullcontext()).split
    finally:
        stop.set()
        sibling.join()

    assert alone is not None
    assert beside is None or beside.token < 2 * alone.token  # the GIL changes hands every 5 ms, three tokens
