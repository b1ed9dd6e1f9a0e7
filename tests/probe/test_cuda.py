"""The probe on a real GPU: `pytest -m gpu`."""

import math
from contextlib import nullcontext

import pytest
import torch

from solpi_exporter.probe.device import make_bench
from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_SYNC

pytestmark = pytest.mark.gpu


def test_a_split_of_every_batch_on_cuda() -> None:
    """Phases sum to the token; the graph is faster than the launched step at batch 1; nothing is negative."""
    bench = make_bench("cuda", "auto", [1, 8, 32])

    results = [bench.measure(batch, nullcontext()) for batch in (1, 8, 32)]

    for result in results:
        assert result.split is not None, result.noise
        assert math.isclose(sum(result.split.phases.values()), result.split.token, rel_tol=1e-9)
        assert result.split.token == result.modes[EAGER_SYNC].token
    reclaimable = results[0].reclaimable(GRAPH_SYNC)
    assert reclaimable is not None
    assert reclaimable > 0.1


def test_the_device_time_repeats() -> None:
    """compute + memory is device time alone: two runs agree within 0.5 %, whatever the host does meanwhile."""
    bench = make_bench("cuda", "auto", [8])

    splits = [bench.measure(8, nullcontext()).split for _ in range(2)]

    first, second = (split.compute + split.memory for split in splits if split is not None)
    assert first == pytest.approx(second, rel=0.005)


def test_memory_does_not_grow() -> None:
    """Ten cycles allocate nothing, the first included: an engine that starts beside it must not see memory move."""
    bench = make_bench("cuda", "1b", [1, 8])
    before = torch.cuda.memory_reserved()

    for _ in range(10):
        bench.measure(8, nullcontext())

    assert torch.cuda.memory_reserved() == before
