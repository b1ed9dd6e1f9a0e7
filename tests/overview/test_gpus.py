"""The GPUs on the page."""

from collections.abc import Sequence

from solpi_exporter.board import Board, Snapshot, State
from solpi_exporter.gpu.fields import UTILIZATION
from solpi_exporter.gpu.reading import INFO, GpuReading, GpuState
from solpi_exporter.overview.gpus import Gpu, gpus
from solpi_exporter.source import Reading, SourceError


def reading(index: int, utilization: float | None = 0.5, instance: str = "") -> GpuReading:
    labels = (str(index), f"GPU-{index}", instance)
    rows = () if utilization is None else (UTILIZATION.sample(utilization, *labels),)
    info = INFO.sample(1.0, *labels, "NVIDIA H200", "0000:1b:00.0", "96.00")
    return GpuReading(index, f"GPU-{index}", GpuState.OK, instance, info=info, rows=rows)


def board(*readings: Reading) -> Board:
    one = Board()
    one.add("gpu", 10.0)
    one.succeed("gpu", readings, 1.0, 1.0)
    return one


def names(snapshot: Snapshot) -> Sequence[str]:
    return [gpu.name for gpu in gpus(snapshot)]


def test_a_gpu_that_is_well_shows_its_utilisation() -> None:
    """By index and model; its UUID is nobody's business then."""
    assert gpus(board(reading(0, 0.0)).snapshot()) == (Gpu("0", "NVIDIA H200", "ok", 0.0),)


def test_what_it_does_not_tell_is_not_known() -> None:
    """Under MIG there is no utilisation; it is not 0."""
    assert gpus(board(reading(0, None)).snapshot())[0].utilization is None


def test_one_that_is_lost_shows_state_and_uuid() -> None:
    """Beside a neighbour that is complete."""
    shown = gpus(board(reading(1), reading(0).gone(GpuState.LOST)).snapshot())

    assert shown == (Gpu("0", "NVIDIA H200", "lost", uuid="GPU-0"), Gpu("1", "NVIDIA H200", "ok", 0.5))


def test_a_failing_source_withdraws_utilisation() -> None:
    """The GPUs stay listed, as what their source is."""
    one = board(reading(0))
    one.fail("gpu", SourceError("gone"), 2.0)

    assert gpus(one.snapshot()) == (Gpu("0", "NVIDIA H200", "down", uuid="GPU-0"),)


def test_what_a_failure_tells_counts_before_what_was_read() -> None:
    """And so does what is known of GPUs that were let go of."""
    one = board(reading(0))
    one.fail("gpu", SourceError("gone", [reading(0).gone(GpuState.HUNG)]), 2.0)
    assert [gpu.state for gpu in gpus(one.snapshot())] == ["hung"]

    one.set_aside("gpu", State.QUIESCED, [GpuReading(0, "GPU-0", GpuState.QUIESCED)])
    assert [gpu.state for gpu in gpus(one.snapshot())] == ["quiesced"]


def test_they_come_in_numerical_order() -> None:
    """GPUs and the instances of one."""
    told = [reading(10), reading(2), reading(2, instance="11"), reading(2, instance="3")]

    assert names(board(*told).snapshot()) == ["2", "2/3", "2/11", "10"]
