"""The probe as a daemon runs it: guarded by the board, with a baseline."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from solpi_exporter.board import Board
from solpi_exporter.config import ProbeSettings
from solpi_exporter.gpu.reading import GpuReading, GpuState
from solpi_exporter.kept import Kept
from solpi_exporter.neighbours import Neighbours
from solpi_exporter.probe.baseline_file import BaselineUnusable
from solpi_exporter.probe.result import Cycle, Identity
from solpi_exporter.probing import Guard, make_comparison, make_keeper
from solpi_exporter.source import Reading
from solpi_exporter.statedir import StateDir
from tests.fakes import FakeBench, FakeClock, batch_result, capturing_log

ON_CPU = Identity("cpu", "", "CPU", "small", 4, 512, "float32", "2.13.0")


def guard_of(*gpus: GpuReading, environment: dict[str, str] | None = None, **settings: Any) -> tuple[Guard, Any]:
    log, captured = capturing_log()
    board, neighbours = Board(), Neighbours(FakeClock(), lambda: None)
    board.add("gpu", 3.0)
    board.succeed("gpu", gpus, 0.0, 0.0)
    neighbours.observe(board.snapshot(), {1})
    return Guard(ProbeSettings(**settings), neighbours, log, environment or {}), captured.entries


def lost(index: int) -> GpuReading:
    return GpuReading(index, f"GPU-{index}", GpuState.LOST)


def well(index: int) -> GpuReading:
    return GpuReading(index, f"GPU-{index}", GpuState.OK)


def test_a_reason_is_logged_when_it_begins_and_when_it_is_over() -> None:
    """Not at every try; the line says what to do."""
    guard, entries = guard_of(lost(0))

    found = [guard(None), guard(None)]
    guard.neighbours = Neighbours(FakeClock(), lambda: None)
    found.append(guard(None))

    assert [one and one.reason for one in found] == ["gpu_state", "gpu_state", None]
    assert [entry["event"] for entry in entries] == ["probe_skipped", "probe_resumed"]
    assert entries[0]["reason"] == "gpu_state"
    assert "solpi_gpu_state" in entries[0]["message"]


def test_waiting_for_the_first_look_is_no_news() -> None:
    """Every start would begin with a warning."""
    log, captured = capturing_log()
    board, neighbours = Board(), Neighbours(FakeClock(), lambda: None)
    board.add("gpu", 3.0)
    neighbours.observe(board.snapshot(), {1})

    found = Guard(ProbeSettings(), neighbours, log, {})(None)

    assert found is not None
    assert found.reason == "starting"
    assert captured.entries == []


@pytest.mark.parametrize(("device", "reason"), [("auto", "gpu_state"), ("cuda", "gpu_state"), ("cuda:1", None)])
def test_before_the_bench_is_made_the_setting_names_the_gpu(device: str, reason: str | None) -> None:
    """By its place in PCI order, in which CUDA is told to count as well."""
    guard, _ = guard_of(lost(0), well(1), device=device)

    found = guard(None)

    assert (found and found.reason) == reason


def test_another_order_of_the_gpus_leaves_it_unknown() -> None:
    """Where somebody has hidden some of them; once the bench is made its UUID tells."""
    guard, _ = guard_of(lost(0), well(1), environment={"CUDA_VISIBLE_DEVICES": "1"})

    assert guard(None) is None
    found = guard(Identity("cuda:0", "GPU-0", "NVIDIA H200", "8b", 4, 512, "bfloat16", "2.13.0"))
    assert found is not None


def test_a_gpu_that_is_named_by_its_uuid_is_guarded_from_the_start() -> None:
    """Among several; its place in any order does not matter."""
    uuids = [f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "ab"]
    guard, _ = guard_of(
        GpuReading(0, uuids[0], GpuState.OK),
        GpuReading(1, uuids[1], GpuState.LOST),
        environment={"CUDA_VISIBLE_DEVICES": "1"},
        device=uuids[1],
    )

    found = guard(None)

    assert found is not None
    assert found.reason == "gpu_state"


def test_an_order_of_cudas_own_leaves_the_gpu_unknown() -> None:
    """By speed it counts otherwise than NVML."""
    guard, _ = guard_of(lost(0), well(1), environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})

    assert guard(None) is None


@pytest.mark.parametrize(("device", "identity"), [("cpu", None), ("auto", ON_CPU)])
def test_on_a_cpu_nothing_is_guarded(device: str, identity: Identity | None) -> None:
    """Whatever becomes of the GPUs."""
    guard, _ = guard_of(lost(0), device=device)

    assert guard(identity) is None


def test_the_footprint_is_that_of_the_shape_and_the_largest_batch() -> None:
    """With CUDA's own; on a small card the smaller shape is meant."""
    large, _ = guard_of()
    small, _ = guard_of(shape="1b", batches=(1,), rotation=())

    assert large._footprint(None) == large._footprint(80e9) > large._footprint(24e9) > small._footprint(24e9) > 1 << 30


def test_the_footprint_is_no_less_than_what_an_h200_was_seen_to_lose() -> None:
    """2,573 MiB by NVML, with a bench for 64 sequences (docs/probe-measurements.md, Memory)."""
    guard, _ = guard_of(batches=(1, 8, 32), rotation=(64,))

    assert guard._footprint(141e9) >= 2573 << 20


def test_setbacks_outlive_the_process(tmp_path: Path) -> None:
    """In the state directory; without one they last as long as the process."""
    log, captured = capturing_log()
    clock = FakeClock()
    with closing(StateDir(tmp_path)) as directory:
        assert make_keeper(Kept(directory, log, clock), log, clock).happened(clock.time())
    assert captured.entries == []

    with closing(StateDir(tmp_path)) as directory:
        assert make_keeper(Kept(directory, log, clock), log, clock).setbacks.left(clock.time()) == 60.0
    assert [(entry["event"], entry["failures"], entry["seconds"]) for entry in captured.entries] == [
        ("probe_held_back", 1, 60)
    ]
    assert not make_keeper(Kept(None, log, clock), log, clock).happened(clock.time())


def test_a_day_of_good_cycles_becomes_the_baseline(tmp_path: Path) -> None:
    """It is logged, and shown from then on, after a restart too."""
    log, captured = capturing_log()
    clock, settings = FakeClock(), ProbeSettings(batches=(1,), rotation=())
    cycle = Cycle(FakeBench({}).identity, FakeBench({}).raw, [batch_result(1)])

    def compare_in(directory: StateDir) -> Callable[[Cycle], Reading | None]:
        return make_comparison(settings, Kept(directory, log, clock), tmp_path, log, clock, Board().snapshot)

    told = []
    with closing(StateDir(tmp_path)) as directory:
        compare = compare_in(directory)
        for _ in range(25):
            told.append(compare(cycle))
            clock.now += 3600.0
    with closing(StateDir(tmp_path)) as directory:
        told.append(compare_in(directory)(cycle))

    assert told[:24] == [None] * 24
    assert None not in told[24:]
    assert [entry["event"] for entry in captured.entries] == ["probe_baseline_pinned"]


def test_a_baseline_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """At the start, not at the first cycle."""
    log, _ = capturing_log()
    settings = ProbeSettings(baseline=str(tmp_path / "none.json"))

    with pytest.raises(BaselineUnusable, match=r"none\.json: cannot be read"):
        make_comparison(settings, Kept(None, log, FakeClock()), None, log, FakeClock(), Board().snapshot)
