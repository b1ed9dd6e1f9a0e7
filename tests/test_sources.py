"""Settings become sources."""

import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from solpi_exporter import sources as sources_module
from solpi_exporter.board import Board, Snapshot, State
from solpi_exporter.config import (
    EngineSettings,
    GpuSettings,
    HostSettings,
    ProbeSettings,
    ServerSettings,
    Settings,
)
from solpi_exporter.gpu.driver import XidEvent
from solpi_exporter.gpu.reading import GpuReading, GpuState
from solpi_exporter.gpu.remembered import RememberedGpus
from solpi_exporter.gpu.xid import look_up
from solpi_exporter.kept import Kept
from solpi_exporter.neighbours import Neighbours
from solpi_exporter.placement import ServerHint
from solpi_exporter.probe.plan import GENTLE, Opening
from solpi_exporter.probe.quantities import BatchReading
from solpi_exporter.source import SourceAbsent
from solpi_exporter.sources import REMEDIES, Sources, World, make_placer
from tests.fakes import FakeBench, FakeClock, FakeDriver, batch_result, capturing_log

BOTH = ServerSettings(name="a", log="/var/log/a.log", metrics_url="http://127.0.0.1:8000/metrics", gpus=(0, "GPU-x"))
UNIT = ServerSettings(name="b", journal="vllm.service")
NO_PROBE = ProbeSettings(enabled=False)


def sources_of(
    settings: Settings, snapshot: Snapshot | None = None, *, one_shot: bool = False, is_recorded: bool = False
) -> Sources:
    log, _ = capturing_log()
    board = Board()
    return Sources(
        settings,
        World(FakeClock(), FakeDriver([]), is_recorded=is_recorded),
        log,
        threading.Lock(),
        board.snapshot if snapshot is None else lambda: snapshot,
        make_placer(settings.engine.server),
        Kept(None, log, FakeClock()),
        RememberedGpus(),
        Neighbours(FakeClock(), lambda: True),
        one_shot=one_shot,
    )


def test_they_come_in_the_order_of_precedence() -> None:
    """An endpoint before a log: where both know a gauge, the endpoint's is shown."""
    settings = Settings(engine=EngineSettings(server=(BOTH, UNIT)), probe=NO_PROBE)

    names = [source.name for source in sources_of(settings).polled()]

    assert names == ["gpu", "gpu_events", "engine_endpoint/a", "engine_log/a", "engine_log/b", "host"]


def test_one_exposition_waits_for_no_event() -> None:
    """An event wait tells of what happens after it began, which is nothing for `once`."""
    assert "gpu_events" not in [source.name for source in sources_of(Settings(), one_shot=True).polled()]


def test_what_is_off_is_set_aside() -> None:
    """With the reason; nothing of it is polled."""
    settings = Settings(
        gpu=GpuSettings(enabled=False),
        host=HostSettings(enabled=False),
        engine=EngineSettings(enabled=False, server=(BOTH,)),
        probe=NO_PROBE,
    )
    sources = sources_of(settings)

    assert list(sources.polled()) == []
    assert dict(sources.set_aside()) == dict.fromkeys(("gpu", "engine", "host", "probe"), State.OFF)


def test_a_server_is_hinted_at_by_what_the_settings_say_of_it() -> None:
    """Its GPUs as text, its unit, the port of its endpoint."""
    assert make_placer((BOTH, UNIT)).servers == [
        ServerHint("a", ("0", "GPU-x"), None, "8000"),
        ServerHint("b", (), "vllm.service", None),
    ]
    assert make_placer((ServerSettings(name="c", journal="vllm"),)).servers == [ServerHint("c", (), "vllm.service")]


def test_the_port_of_another_host_is_no_hint() -> None:
    """Who serves it here is somebody else."""
    remote = ServerSettings(name="r", metrics_url="http://192.0.2.7:8000/metrics")

    assert make_placer((remote,)).servers == [ServerHint("r")]


def test_xids_are_counted_for_the_gpus_that_answer() -> None:
    """For whole GPUs that have a name; an instance's errors are its GPU's."""
    board = Board()
    board.add("gpu", 10.0)
    gpus = [
        GpuReading(0, "GPU-a", GpuState.OK),
        GpuReading(0, "MIG-1", GpuState.OK, instance="1"),
        GpuReading(1, "", GpuState.NO_PERMISSION),
    ]
    board.succeed("gpu", gpus, 1.0, 1.0)

    assert list(sources_of(Settings(), board.snapshot())._gpus()) == [(0, "GPU-a")]


@pytest.mark.parametrize(("state", "level"), [(GpuState.LOST, "error"), (GpuState.OK, "info")])
def test_a_change_of_a_gpu_is_logged(state: GpuState, level: str) -> None:
    """One line: which, where, what, why, and what to do."""
    log, captured = capturing_log()
    sources = sources_of(Settings())
    object.__setattr__(sources, "log", log)

    sources._report_gpu(GpuReading(3, "GPU-a", state, bus_id="0000:11:00.0"), "fell off the bus")

    expected: dict[str, object] = {"gpu": 3, "uuid": "GPU-a", "pci_bus_id": "0000:11:00.0", "state": state.value}
    expected |= {"reason": "fell off the bus"} | ({} if state is GpuState.OK else {"remedy": REMEDIES[state]})
    assert captured.entries == [{"event": "gpu_state", "log_level": level, **expected}]


def test_every_state_but_ok_has_a_remedy() -> None:
    """And but the one that was asked for."""
    assert REMEDIES.keys() | {GpuState.OK, GpuState.QUIESCED} == set(GpuState)


def test_an_xid_is_logged_with_what_to_do() -> None:
    """The catalogue's class, meaning and action stand beside the number."""
    log, captured = capturing_log()
    sources = sources_of(Settings())
    object.__setattr__(sources, "log", log)

    sources._report_xid(XidEvent(0, "GPU-a", 79), look_up(79), 2)

    (entry,) = captured.entries
    assert (entry["event"], entry["xid"], entry["count"]) == ("gpu_xid", 79, 2)
    assert entry["action"] == look_up(79).action.value


def test_the_probe_is_made_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch size that some cycle takes has its place; one that each cycle takes is not taken in turn as well."""
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []
    benches = FakeBench({batch: batch_result(batch) for batch in (1, 2, 4)})

    def make(*args: object, **named: object) -> FakeBench:
        asked.append((args, named))
        return benches

    monkeypatch.setattr(sources_module, "open_bench", make)
    probe = ProbeSettings(enabled=True, device="cpu", shape="1b", context=64, layers=3, batches=(1, 2), rotation=(2, 4))
    settings = Settings(gpu=GpuSettings(enabled=False), host=HostSettings(enabled=False), probe=probe)
    (source,) = sources_of(settings).polled()

    readings = source.poll()
    source.close()

    assert benches.closed
    assert asked == [((Opening("cpu", "1b", (1, 2, 4), GENTLE, context=64, layers=3),), {})]
    assert [one.result.batch for one in readings if isinstance(one, BatchReading)] == [1, 2, 4]


@pytest.mark.parametrize(("is_recorded", "skipped"), [(False, 1), (True, 0)])
def test_recorded_gpus_guard_nothing(monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool, skipped: int) -> None:
    """The demo's probe runs on what this host has; elsewhere an MPS server keeps it from running."""
    monkeypatch.setattr(sources_module, "open_bench", lambda *_, **__: FakeBench({1: batch_result(1)}))
    settings = Settings(
        gpu=GpuSettings(enabled=False),
        host=HostSettings(enabled=False),
        probe=ProbeSettings(enabled=True, batches=(1,), rotation=()),
    )
    (source,) = sources_of(settings, is_recorded=is_recorded).polled()

    readings = source.poll()

    assert len([one for one in readings if isinstance(one, BatchReading)]) == 1 - skipped


def test_whether_torch_is_there_is_the_workers_to_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under the Python that is named; the exporter needs none of its own."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    python.chmod(0o755)
    monkeypatch.setattr(sources_module, "torch_is_there", lambda: False)
    probe = ProbeSettings(isolation="worker", python=str(python), device="cpu")
    sources = sources_of(Settings(gpu=GpuSettings(enabled=False), host=HostSettings(enabled=False), probe=probe))
    (source,) = sources.polled()

    with closing(source), pytest.raises(SourceAbsent, match="torch is not installed"):
        source.poll()

    assert "probe" not in dict(sources.set_aside())
    assert len(sources.placer.place(Board().snapshot()).own) == 2  # the worker is known to be ours


def test_without_torch_a_thread_has_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set aside, and nothing is polled."""
    monkeypatch.setattr(sources_module, "torch_is_there", lambda: False)

    assert dict(sources_of(Settings()).set_aside())["probe"] is State.ABSENT
