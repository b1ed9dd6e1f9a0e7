"""What an H200 shows, held against its recording and, with `pytest -m gpu`, against the real one.

Both pass through the same assertions, so a recording that no longer says what a GPU says is found out.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import solpi_exporter
from solpi_exporter.clock import Clock, SystemClock
from solpi_exporter.gpu import transfers
from solpi_exporter.gpu.driver import Driver
from solpi_exporter.gpu.fields import COMPUTE_MODE, FIELDS, MIG_MODE
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.reading import BUSY, LOAD, PROCESSES, GpuReading, GpuState, NvmlReading
from solpi_exporter.gpu.recording import load
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.metric import Distribution
from tests.fakes import RECORDINGS, FakeClock, values

POLLS = 8
DISTANCE = 2.6
FAMILIES = {field.metric.name for field in FIELDS} | {metric.name for metric in transfers.METRICS}
NOT_RECORDED = frozenset({COMPUTE_MODE.name, MIG_MODE.name})  # rows that the table did not have yet

Shown = dict[str, dict[tuple[str, ...], Any]]


@dataclass(frozen=True)
class Polled:
    """Some polls: what each has shown, how long it took from the first to the last, and which families there are."""

    readings: list[list[Any]]
    elapsed: float
    families: frozenset[str] = frozenset({*FAMILIES, BUSY.name, LOAD.name, PROCESSES.name})

    def shown(self, poll: int = -1) -> Shown:
        return values([sample for reading in self.readings[poll] for sample in reading.samples()])

    def gpus(self, poll: int = -1) -> list[GpuReading]:
        return [reading for reading in self.readings[poll] if isinstance(reading, GpuReading)]


def poll(driver: Driver, clock: Clock) -> Polled:
    source = GpuSource(driver, clock, DISTANCE, 10.0)
    pause = threading.Event()
    readings: list[list[Any]] = []
    begun = clock.monotonic()
    for number in range(POLLS):
        if number:
            clock.wait(pause, DISTANCE)
        readings.append(list(source.poll()))
    elapsed = clock.monotonic() - begun
    source.close()
    return Polled(readings, elapsed)


def recorded() -> Polled:
    recording = load((RECORDINGS / "h200-nvml" / "recording.json").read_text())
    clock = FakeClock(now=recording.start)
    polled = poll(ReplayDriver(recording, clock.monotonic), clock)
    return replace(polled, families=polled.families - NOT_RECORDED)


@pytest.fixture(scope="module", params=["recording", pytest.param("real", marks=pytest.mark.gpu)])
def polled(request: pytest.FixtureRequest) -> Polled:
    """Return polls of the recorded H200, or of this machine's GPUs."""
    made: dict[str, Callable[[], Polled]] = {
        "recording": recorded,
        "real": lambda: poll(NvmlDriver(), SystemClock()),
    }
    return made[request.param]()


def test_every_gpu_is_well(polled: Polled) -> None:
    """Each answers every poll, under a UUID, and there are as many as NVML counts."""
    nvml = polled.readings[-1][0]

    assert isinstance(nvml, NvmlReading)
    assert nvml.present == len(polled.gpus()) >= 1
    assert nvml.driver_version
    assert nvml.cuda_version is not None
    for number in range(POLLS):
        assert all(one.state is GpuState.OK and one.uuid.startswith("GPU-") for one in polled.gpus(number))


def test_every_family_is_shown(polled: Polled) -> None:
    """All that the table has: an H200 supports everything, so what is missing has been lost on the way."""
    assert polled.families <= polled.shown().keys()


def test_what_was_not_recorded_is_absent() -> None:
    """A row that is younger than a recording is neither invented nor an error; a new recording would have it."""
    assert not NOT_RECORDED & recorded().shown().keys()


def test_values_can_be_true(polled: Polled) -> None:
    """Shares lie between 0 and 1, watts below the limit, degrees in this world, and memory sums up."""
    shown = polled.shown()
    for name, series in shown.items():
        if name.endswith("_ratio") and name != LOAD.name:
            assert all(0 <= value <= 1 for value in series.values()), name
    assert all(10 < value < 110 for value in shown["solpi_gpu_temperature_celsius"].values())
    assert all(1e8 < value < 5e9 for value in shown["solpi_gpu_clock_hertz"].values())
    for on, total in shown["solpi_gpu_memory_total_bytes"].items():
        parts = (shown[f"solpi_gpu_memory_{part}_bytes"][on] for part in ("used", "free", "reserved"))
        assert sum(parts) == total
        assert 0 < shown["solpi_gpu_power_watts"][on] < shown["solpi_gpu_power_limit_watts"][on] * 1.2


def test_counters_never_decrease(polled: Polled) -> None:
    """From poll to poll; a histogram's count neither."""
    for number in range(1, POLLS):
        before, after = polled.shown(number - 1), polled.shown(number)
        for name in before:
            for labels, value in before[name].items():
                if name.endswith("_total"):
                    assert after[name][labels] >= value, name
                elif isinstance(value, Distribution):
                    assert after[name][labels].count >= value.count


def test_a_gpu_is_not_busier_than_time_passes(polled: Polled) -> None:
    """Busy seconds grow by no more than what has passed, give or take one sample of the driver's."""
    for one in polled.gpus():
        assert one.busy is not None
        assert 0 <= one.busy.seconds <= polled.elapsed + 0.3


def test_energy_agrees_with_power(polled: Polled) -> None:
    """What the counter gains is what the power of the polls would use, within what load does between them."""
    shown = [polled.shown(number) for number in range(POLLS)]
    for on, first in shown[0]["solpi_gpu_energy_joules_total"].items():
        read = [(number, one["solpi_gpu_energy_joules_total"][on]) for number, one in enumerate(shown)]
        number, joules = next((number, value) for number, value in read if value > first)
        watts = [one["solpi_gpu_power_watts"][on] for one in shown]
        assert 0.7 * min(watts) <= (joules - first) / (number * DISTANCE) <= 1.3 * max(watts)


def test_the_blocking_call_is_never_made() -> None:
    """nvmlDeviceGetPcieThroughput takes 21 ms."""
    package = Path(solpi_exporter.__file__).parent

    assert not [path for path in package.rglob("*.py") if "PcieThroughput" in path.read_text()]
