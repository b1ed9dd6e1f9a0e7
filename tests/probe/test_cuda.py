"""The bench for a GPU: on a real one (`pytest -m gpu`), and what it decides before it touches one."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from solpi_exporter.probe.bench import GpuBench
from solpi_exporter.probe.cuda import CudaRig, _identity, _refuse_what_the_cache_holds
from solpi_exporter.probe.device import make_bench, variants
from solpi_exporter.probe.plan import GENTLE, THOROUGH, Opening, Plan
from solpi_exporter.probe.result import EAGER_SYNC, EXTRAPOLATED, GRAPH_ASYNC, GRAPH_SYNC, MEASURED, MODELLED, Costs
from solpi_exporter.probe.shape import shape_of
from solpi_exporter.source import SourceError


@pytest.mark.gpu
@pytest.mark.parametrize("plan", [GENTLE, THOROUGH], ids=["gentle", "thorough"])
def test_a_split_of_every_batch_on_cuda(plan: Plan) -> None:
    """Phases sum to the token; the graph is faster than the launched step at batch 1; nothing is negative."""
    bench = make_bench(
        Opening(
            "cuda",
            "auto",
            (
                1,
                8,
                32,
            ),
            plan,
        )
    )

    results = [bench.measure(batch, nullcontext()) for batch in (1, 8, 32)]

    for result in results:
        assert result.split is not None, result.noise
        assert math.isclose(sum(result.split.phases.values()), result.split.token, rel_tol=1e-9)
        assert result.split.token == result.modes[EAGER_SYNC].token
        assert [one.basis for one in result.splits] == [MEASURED, EXTRAPOLATED]
        assert result.modes.keys() == {EAGER_SYNC, GRAPH_SYNC, GRAPH_ASYNC}
    reclaimable = results[0].reclaimable(GRAPH_SYNC)
    assert reclaimable is not None
    assert reclaimable > 0.1


@pytest.mark.gpu
def test_the_device_time_repeats() -> None:
    """compute + memory is device time alone: two runs agree within 0.5 %, whatever the host does meanwhile."""
    bench = make_bench(Opening("cuda", "auto", (8,), THOROUGH))

    splits = [bench.measure(8, nullcontext()).split for _ in range(2)]

    first, second = (split.compute + split.memory for split in splits if split is not None)
    assert first == pytest.approx(second, rel=0.005)


@pytest.mark.gpu
def test_a_gentle_cycle_costs_what_it_may_and_says_the_same() -> None:
    """Within 60 ms of the device, once the clocks are up; its device time is the thorough one's within 1 %."""
    shape, batches = shape_of("8b"), (1, 8, 32, 64)
    torch.cuda.set_per_process_memory_fraction(1.0)  # the bench of another test has capped it
    rig = CudaRig(shape, variants(shape, batches), torch.device("cuda", 0), THOROUGH.steps, THOROUGH.chain)
    thorough, gentle = (GpuBench(rig, shape, batches, plan) for plan in (THOROUGH, GENTLE))
    reference = [thorough.measure(batch, nullcontext()).split for batch in batches]

    for _ in range(2):
        gentle.costs(nullcontext())
        results = [gentle.measure(batch, nullcontext()).split for batch in batches]

    assert 0.03 < gentle.used.cycle <= 0.06
    times = [
        (one.compute + one.memory, other.compute + other.memory)
        for one, other in zip(reference, results, strict=True)
        if one and other
    ]
    assert [other for _, other in times] == pytest.approx([one for one, _ in times], rel=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("plan", [GENTLE, THOROUGH], ids=["gentle", "thorough"])
def test_memory_does_not_grow(plan: Plan) -> None:
    """Ten cycles allocate nothing, the first included: an engine that starts beside it must not see memory move."""
    bench = make_bench(
        Opening(
            "cuda",
            "1b",
            (
                1,
                8,
            ),
            plan,
        )
    )
    before = torch.cuda.memory_reserved()

    for _ in range(10):
        bench.costs(nullcontext())
        bench.measure(8, nullcontext())

    assert torch.cuda.memory_reserved() == before


@pytest.mark.gpu
def test_every_raw_cost_is_known_on_cuda() -> None:
    """In an order of magnitude that a bug in a unit would leave."""
    bench = make_bench(Opening("cuda", "8b", (1,), THOROUGH))

    costs = bench.costs(nullcontext())

    assert costs.launch is not None
    assert 1e-6 < costs.launch < 1e-4
    assert costs.graph_node is not None
    assert 1e-7 < costs.graph_node < 1e-5
    assert costs.round_trip is not None
    assert costs.launch < costs.round_trip[0] <= costs.round_trip[1]
    assert costs.copy_bandwidth is not None
    assert 1e11 < costs.copy_bandwidth < 2e13
    assert costs.late_round_trips is not None


@pytest.mark.gpu
def test_beside_others_the_split_is_modelled_from_the_same_device_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """G from the fast replays is that of a quiet GPU within 2 %, and no other basis is told."""
    bench = make_bench(Opening("cuda", "auto", (8,), THOROUGH))
    bench.costs(nullcontext())
    quiet = bench.measure(8, nullcontext()).split
    monkeypatch.setattr(Costs, "is_contended", property(lambda _: True))

    result = bench.measure(8, nullcontext())

    assert [one.basis for one in result.splits] == [MODELLED]
    modelled = result.split
    assert modelled is not None
    assert quiet is not None
    assert modelled.compute + modelled.memory == pytest.approx(quiet.compute + quiet.memory, rel=0.02)
    assert math.isclose(sum(modelled.phases.values()), modelled.token, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("properties", "uuid"),
    [
        (SimpleNamespace(name="NVIDIA H200", uuid="0123"), "GPU-0123"),
        (SimpleNamespace(name="NVIDIA A100 80GB PCIe MIG 1g.10gb", uuid="0123"), "MIG-0123"),
        (SimpleNamespace(name="NVIDIA A100 80GB PCIe MIG 1g.10gb"), ""),
    ],
    ids=["whole", "instance", "before torch 2.5"],
)
def test_a_mig_instance_is_called_as_nvml_calls_it(
    monkeypatch: pytest.MonkeyPatch, properties: SimpleNamespace, uuid: str
) -> None:
    """CUDA tells the bytes alone: begun as a whole GPU's, they would join with none of the GPU's series."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)

    assert _identity(shape_of("8b"), torch.device("cuda", 0)).uuid == uuid


def with_l2(monkeypatch: pytest.MonkeyPatch, mebibytes: int) -> torch.device:
    properties = SimpleNamespace(L2_cache_size=mebibytes << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return torch.device("cuda", 0)


def test_a_layer_that_the_l2_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run again, it would read nothing from memory; how much too small it is is told."""
    with pytest.raises(SourceError, match=r"small has 1 MiB of weights a layer, which stay in the L2 .* \(50 MiB\)"):
        _refuse_what_the_cache_holds(shape_of("small"), with_l2(monkeypatch, 50))


@pytest.mark.parametrize(("name", "mebibytes"), [("8b", 126), ("1b", 96)])
def test_the_presets_exceed_the_l2_of_their_gpus(monkeypatch: pytest.MonkeyPatch, name: str, mebibytes: int) -> None:
    """A B200's, and that of the largest card with less than 30 GB."""
    _refuse_what_the_cache_holds(shape_of(name), with_l2(monkeypatch, mebibytes))


def test_a_cache_that_torch_does_not_tell_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch before 2.6."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace())

    _refuse_what_the_cache_holds(shape_of("small"), torch.device("cuda", 0))
