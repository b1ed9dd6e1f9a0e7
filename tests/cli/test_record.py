"""record: what a driver answers, as a file that can be played."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from solpi_exporter.cli import main
from solpi_exporter.cli.record import frames
from solpi_exporter.gpu.driver import DriverAbsent, DriverFailed
from solpi_exporter.gpu.recording import dump, load
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.source import GpuSource
from tests.fakes import FakeClock, FakeDriver, values

module = sys.modules["solpi_exporter.cli.record"]  # as an attribute of its package it is the command
REAL = "GPU-815af534-4aa1-8055-5896-052901cfecda"


@pytest.fixture(autouse=True)
def _stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command return: it leaves past threads that may hang, and this process with them."""
    monkeypatch.setattr(module, "leave", lambda status: None)


def card() -> dict[str, Any]:
    return {
        "nvmlDeviceGetUUID": REAL,
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUtilizationRates": {"gpu": 50, "memory": 10},
    }


def test_it_records_for_as_long_as_it_is_told() -> None:
    """A frame at the beginning and one each interval; the first and the last lie that far apart."""
    times = [time for time, _ in frames(FakeDriver([card()]), FakeClock(), 10.0, 2.0)]

    assert [time - times[0] for time in times] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_a_step_of_the_wall_clock_does_not_disturb_it() -> None:
    """Frames are in order whatever NTP does meanwhile."""
    clock = FakeClock()
    times: list[float] = []
    for time, _ in frames(FakeDriver([card()]), clock, 4.0, 1.0):
        times.append(time)
        clock.wall -= 3600.0

    assert times == sorted(times)


def test_what_was_recorded_can_be_played() -> None:
    """And shows what was there, but for the UUID."""
    text = dump(frames(FakeDriver([card()]), FakeClock(), 3.0, 1.0))
    clock = FakeClock()

    source = GpuSource(ReplayDriver(load(text), clock.monotonic), clock, 1.0, 1.0)
    shown = values([sample for reading in source.poll() for sample in reading.samples()])

    assert REAL not in text
    assert list(shown["solpi_gpu_utilization_ratio"].values()) == [0.5]


def test_a_driver_that_fails_on_the_way_ends_the_recording(capsys: pytest.CaptureFixture[str]) -> None:
    """What there was until then is worth the most, and why it ended is said."""
    driver = FakeDriver([card()])
    made = frames(driver, FakeClock(), 10.0, 1.0)
    first = [next(made), next(made)]
    driver.system["nvmlDeviceGetCount"] = DriverFailed("nvmlDeviceGetCount: Uninitialized")

    assert len([*first, *made]) == 2
    assert "ended after 2 s: nvmlDeviceGetCount: Uninitialized" in capsys.readouterr().err


def test_without_a_driver_there_is_nothing_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and the status of wrong usage."""
    driver = FakeDriver([], connects=[DriverAbsent("no NVIDIA driver on this host")])
    monkeypatch.setattr(module, "NvmlDriver", lambda: driver)

    result = CliRunner().invoke(main, ["record"])

    assert (result.exit_code, result.output) == (2, "Error: no NVIDIA driver on this host\n")


def test_it_writes_a_file_or_to_standard_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same text to both."""
    monkeypatch.setattr(module, "NvmlDriver", lambda: FakeDriver([card()]))
    monkeypatch.setattr(module, "SystemClock", FakeClock)
    file = tmp_path / "gpu.json"

    written = CliRunner().invoke(main, ["record", "--seconds", "1", "-o", str(file)])
    printed = CliRunner().invoke(main, ["record", "--seconds", "1"])

    assert (written.exit_code, written.output) == (0, "")
    assert file.read_text() == printed.output
    assert json.loads(printed.output)["format"] == 1


def test_a_file_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one line that names it."""
    monkeypatch.setattr(module, "NvmlDriver", lambda: FakeDriver([card()]))

    result = CliRunner().invoke(main, ["record", "--seconds", "0", "-o", str(tmp_path / "no" / "gpu.json")])

    assert result.exit_code == 2
    assert "cannot be written: No such file or directory" in result.output
