"""All that the landing page shows."""

from solpi_exporter.board import Board, State
from solpi_exporter.gpu.reading import GpuReading, GpuState
from solpi_exporter.overview.page import SourceState, overview
from solpi_exporter.overview.probe import Probe
from solpi_exporter.overview.recent import Recent
from solpi_exporter.source import SourceError


def test_every_source_stands_with_its_state_and_age() -> None:
    """In the board's order; one that was never read has no age."""
    board = Board()
    board.add("gpu", 10.0)
    board.add("engine_log/s", 10.0)
    board.set_aside("probe", State.ABSENT)
    board.succeed("gpu", [GpuReading(0, "GPU-0", GpuState.OK)], 1.0, 1000.0)
    board.fail("engine_log/s", SourceError("gone"), 2.0)

    shown = overview(board.snapshot(), (), Recent(), 1004.0)

    assert shown.sources == (
        SourceState("gpu", "ok", 4.0),
        SourceState("engine_log/s", "down", None),
        SourceState("probe", "absent", None),
    )
    assert [gpu.name for gpu in shown.gpus] == ["0"]
    assert shown.engines == ()
    assert shown.probe == Probe("absent")
