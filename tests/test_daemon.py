"""The daemon as a whole: what disturbs one source disturbs no other, and how it ends."""

import os
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from solpi_exporter import sources as module
from solpi_exporter.clock import SystemClock
from solpi_exporter.config import EngineSettings, GpuSettings, HostSettings, ProbeSettings, ServerSettings, Settings
from solpi_exporter.daemon import RESTART, Daemon
from solpi_exporter.gpu.driver import Driver, DriverAbsent
from solpi_exporter.probe.result import BatchResult, Costs
from solpi_exporter.runner import Runner
from solpi_exporter.source import NeedsRestart
from solpi_exporter.sources import Sources, World
from solpi_exporter.statedir import QUIESCED, RUNNING, Holder, holder
from tests.fakes import FakeBench, FakeDriver, FakeSource, batch_result, capturing_log
from tests.serving import eventually, serving

NO_PROBE = ProbeSettings(enabled=False)
CARD = {"nvmlDeviceGetUUID": "GPU-a", "nvmlDeviceGetUtilizationRates": {"gpu": 50, "memory": 10}}


class HangingDriver(FakeDriver):
    """A driver whose calls do not return until they are let go."""

    free = threading.Event()

    def connect(self) -> None:
        assert self.free.wait(30.0)


def test_a_hanging_driver_disturbs_nothing_else() -> None:
    """It is reported down after its timeout; the page answers meanwhile, and the daemon stops within two seconds."""
    driver = HangingDriver([CARD])
    settings = Settings(gpu=GpuSettings(timeout=0.5), probe=NO_PROBE)

    with serving(settings, World(SystemClock(), driver), ready=False) as running:
        assert running.get("/-/ready").status == 503
        assert running.get("/-/healthy").status == 200
        assert eventually(lambda: 'solpi_source_up{source="gpu"} 0.0' in running.metrics())
        assert running.get("/-/ready").status == 200
        begun = time.monotonic()
        running.stop.set()
        running.thread.join(5.0)
        assert time.monotonic() - begun < 2.0
    assert running.status == [0]
    driver.free.set()


def test_a_failing_source_leaves_the_others() -> None:
    """A server whose log is missing is down; the GPU beside it is complete."""
    server = ServerSettings(name="s", log="/nowhere/vllm.log")
    settings = Settings(engine=EngineSettings(server=(server,)), probe=NO_PROBE)

    with serving(settings, World(SystemClock(), FakeDriver([CARD]))) as running:
        text = running.metrics()

    assert 'solpi_source_up{source="engine_log/s"} 0.0' in text
    assert 'solpi_source_up{source="gpu"} 1.0' in text
    assert 'solpi_gpu_utilization_ratio{gpu="0",uuid="GPU-a"} 0.5' in text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_thread_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug outside of every source ends the process with status 1, rather than leaving a silent gap."""

    def broken(self: Runner) -> None:
        raise AssertionError("a bug in the trunk")

    monkeypatch.setattr(Runner, "poll", broken)

    with serving(Settings(probe=NO_PROBE), World(SystemClock(), FakeDriver([])), ready=False) as running:
        running.thread.join(10.0)

    assert running.status == [1]


def test_stopping_is_status_0() -> None:
    """Every thread that can end has ended."""
    before = threading.active_count()

    with serving(Settings(probe=NO_PROBE), World(SystemClock(), FakeDriver([CARD]))) as running:
        pass

    assert running.status == [0]
    assert eventually(lambda: threading.active_count() <= before)  # one of an earlier test may have ended meanwhile


def test_what_is_not_asked_for_is_absent_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server and no torch are absence; what a flag left out is off; neither is down."""
    monkeypatch.setattr(module, "torch_is_there", lambda: False)
    world = World(SystemClock(), FakeDriver([], connects=[DriverAbsent("no driver")]))
    log, _ = capturing_log()

    absent, _ = Daemon(Settings(), log, world).once()
    off, _ = Daemon(
        Settings(gpu=GpuSettings(enabled=False), engine=EngineSettings(enabled=False), probe=NO_PROBE), log, world
    ).once()

    for source in ("gpu", "engine", "probe"):
        assert f'solpi_source_state{{source="{source}",state="absent"}} 1.0' in absent
        assert f'solpi_source_state{{source="{source}",state="off"}} 1.0' in off
        assert f'solpi_source_state{{source="{source}",state="down"}} 0.0' in absent
    assert 'solpi_source_up{source="gpu"} 0.0' in absent
    assert 'solpi_source_up{source="probe"}' not in absent


def test_once_does_not_wait_for_what_hangs() -> None:
    """A driver that has not answered within its time is told as down, in one line."""
    driver = HangingDriver([CARD])
    driver.free = threading.Event()
    log, captured = capturing_log()
    settings = Settings(gpu=GpuSettings(timeout=0.2), probe=NO_PROBE)

    text, status = Daemon(settings, log, World(SystemClock(), driver), one_shot=True).once()
    driver.free.set()

    assert 'solpi_source_up{source="gpu"} 0.0' in text
    assert [(entry["event"], entry["source"]) for entry in captured.entries] == [("source_failed", "gpu")]
    assert "does not answer" in captured.entries[0]["error"]
    assert status == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_trunk_is_told_by_once_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With status 1, and not as a source that hangs."""

    def broken(self: Runner) -> None:
        raise AssertionError("a bug in the trunk")

    monkeypatch.setattr(Runner, "poll", broken)
    log, captured = capturing_log()

    _, status = Daemon(Settings(probe=NO_PROBE), log, World(SystemClock(), FakeDriver([]))).once()

    assert status == 1
    assert captured.entries[0]["event"] == "thread_died"


def test_probe_and_scrape_share_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the probe of this daemon times a step, its page is not rendered."""
    benches: list[HoldingBench] = []

    def make(*_: object, **__: object) -> HoldingBench:
        benches.append(HoldingBench())
        return benches[-1]

    monkeypatch.setattr(module, "open_bench", make)
    settings = Settings(gpu=GpuSettings(enabled=False), probe=ProbeSettings(enabled=True, batches=(1,), rotation=()))

    with serving(settings, ready=False) as running:
        assert eventually(lambda: bool(benches) and benches[0].timing.is_set())
        assert running.daemon._quiet.locked()
        benches[0].done.set()
        assert eventually(lambda: 'solpi_probe_runs_total{outcome="success"} 1.0' in running.metrics())
        assert not running.daemon._quiet.locked()


class Untouchable:
    """A driver, or a bench, that must not be asked for anything."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked for")

    def __call__(self, *_: object) -> object:
        raise AssertionError("it was called")


def test_a_quiesced_daemon_leaves_the_driver_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs and probe are told as quiesced, neither down nor failing; the engine is read as before."""
    monkeypatch.setattr(module, "torch_is_there", lambda: True)
    monkeypatch.setattr(module, "open_bench", Untouchable())
    server = ServerSettings(name="s", log="/nowhere/vllm.log")
    log, _ = capturing_log()
    world = World(SystemClock(), cast(Driver, Untouchable()))

    text, _ = Daemon(Settings(engine=EngineSettings(server=(server,))), log, world, quiesced=True).once()

    for source in ("gpu", "gpu_events", "probe"):
        assert f'solpi_source_state{{source="{source}",state="quiesced"}} 1.0' in text
        assert f'solpi_source_state{{source="{source}",state="down"}} 0.0' in text
        assert f'solpi_source_up{{source="{source}"}}' not in text
    assert 'solpi_source_up{source="engine_log/s"} 0.0' in text


def test_what_is_off_stays_off_when_quiesced() -> None:
    """It does not come back when that ends."""
    log, _ = capturing_log()
    settings = Settings(gpu=GpuSettings(enabled=False), probe=NO_PROBE)

    text, _ = Daemon(settings, log, World(), quiesced=True).once()

    assert 'solpi_source_state{source="gpu",state="off"} 1.0' in text
    assert 'solpi_source_state{source="probe",state="off"} 1.0' in text


@pytest.mark.parametrize(("quiesced", "mode"), [(False, RUNNING), (True, QUIESCED)])
def test_the_state_directory_says_the_mode(tmp_path: Path, quiesced: bool, mode: str) -> None:
    """So that a command sees whether it was followed."""
    log, _ = capturing_log()
    daemon = Daemon(Settings(state_dir=str(tmp_path), probe=NO_PROBE), log, World(), quiesced=quiesced)

    assert holder(tmp_path) == Holder(os.getpid(), mode)
    daemon._resources.close()


def test_a_source_that_needs_a_new_process_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, with its reason in the log and the status that makes systemd start another."""
    source = FakeSource([NeedsRestart("the library is an old one")], name="gpu")
    monkeypatch.setattr(Sources, "polled", lambda _: iter([source]))
    log, captured = capturing_log()
    daemon = Daemon(Settings(), log, World())

    status = daemon.serve(daemon.bind("127.0.0.1:0"), threading.Event())

    assert status == RESTART == os.EX_TEMPFAIL
    assert source.closed
    assert [(entry["event"], entry.get("reason")) for entry in captured.entries[1:]] == [
        ("restarting", "the library is an old one"),
        ("stopped", None),
    ]


class HoldingBench:
    """A bench that times a step for as long as a test wants."""

    identity = FakeBench({}).identity
    is_open, used = True, None

    def __init__(self) -> None:
        self.timing, self.done = threading.Event(), threading.Event()

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        return FakeBench({}).raw

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        with quiet:
            self.timing.set()
            assert self.done.wait(10.0)
        return batch_result(batch)

    def close(self) -> None:
        """Nothing."""


PROBE_ONLY = Settings(
    gpu=GpuSettings(enabled=False),
    host=HostSettings(enabled=False),
    probe=ProbeSettings(enabled=True, device="cpu", batches=(1,), rotation=()),
)


class SpoiltBench(FakeBench):
    """A bench whose CUDA fails, as it would for every later call."""

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        raise NeedsRestart("CUDA failed on cuda:0 (an illegal memory access was encountered): see the kernel log")


def test_a_sticky_cuda_error_ends_the_daemon_and_holds_the_probe_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It asks for a new process, which finds the setback and leaves CUDA alone for now: no crash loop."""
    settings = msgspec.structs.replace(PROBE_ONLY, state_dir=str(tmp_path))
    monkeypatch.setattr(module, "open_bench", lambda *_, **__: SpoiltBench({}))
    with serving(settings, ready=False) as first:
        assert eventually(lambda: first.status != [])
    monkeypatch.setattr(module, "open_bench", Untouchable())

    with serving(settings, ready=False) as second:
        assert eventually(lambda: 'solpi_probe_skipped_total{reason="held_back"} 1.0' in second.metrics())

    assert first.status == [RESTART]
    assert second.status == [0]


def test_a_probe_that_hangs_loses_its_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is answered all the same."""
    benches: list[HoldingBench] = []

    def make(*_: object, **__: object) -> HoldingBench:
        benches.append(HoldingBench())
        return benches[-1]

    monkeypatch.setattr(module, "open_bench", make)

    with serving(PROBE_ONLY, ready=False) as running:
        assert eventually(lambda: bool(benches) and benches[0].timing.is_set())
        running.daemon._expire(force=True)
        page = running.metrics()
        benches[0].done.set()

    assert 'solpi_source_state{source="probe",state="down"} 1.0' in page
    assert "solpi_probe_phase_seconds{" not in page


def test_one_exposition_is_guarded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe waits for the look at its GPU, which may forbid it."""
    monkeypatch.setattr(module, "open_bench", Untouchable())
    driver = FakeDriver([{**CARD, "nvmlDeviceGetComputeMode": 3}])
    log, _ = capturing_log()
    settings = Settings(probe=ProbeSettings(enabled=True))

    text, status = Daemon(settings, log, World(SystemClock(), driver), one_shot=True).once()

    assert 'solpi_probe_skipped_total{reason="compute_mode"} 1.0' in text
    assert status == 0
