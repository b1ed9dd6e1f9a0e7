"""A recording through the driver interface."""

import pytest

from solpi_exporter.gpu.driver import Unavailable
from solpi_exporter.gpu.replay import ANSWERS, ReplayDriver
from solpi_exporter.gpu.source import GpuReading, GpuSource
from tests.fakes import RECORDINGS, SHIPPED, FakeClock, load_json, values

DEVICE = load_json(SHIPPED / "vllm-0.24.0-h200" / "device.json")
SAMPLES = load_json(RECORDINGS / "h200-nvml" / "readings.json")


def test_an_instant_is_answered_by_the_last_sample_before_it() -> None:
    """Between two samples the earlier one holds; before the first, the first."""
    now = SAMPLES[0]["t"] - 10
    driver = ReplayDriver(DEVICE, SAMPLES, lambda: now)
    assert driver.query_gpu(0, "nvmlDeviceGetPowerUsage") == SAMPLES[0]["power_mw"]

    now = (SAMPLES[5]["t"] + SAMPLES[6]["t"]) / 2
    assert driver.query_gpu(0, "nvmlDeviceGetPowerUsage") == SAMPLES[5]["power_mw"]


def test_what_was_not_recorded_is_unavailable() -> None:
    """The video clock is in no sample and is not invented."""
    driver = ReplayDriver(DEVICE, SAMPLES, lambda: SAMPLES[0]["t"])

    with pytest.raises(Unavailable):
        driver.query_gpu(0, "nvmlDeviceGetClockInfo", 3)


def test_every_answer_can_be_given_from_every_recorded_sample() -> None:
    """All samples of the recording have what the answers take from them."""
    for sample in SAMPLES:
        for answer in ANSWERS.values():
            assert answer(sample) is not None


def test_busy_seconds_of_the_recording_are_those_of_its_phases() -> None:
    """Polled every second, the recorded eager loop was busy for 40 to 46 % of its time, the graph for 97 to 100 %."""
    for phase, low, high in (("eager_b1", 0.40, 0.46), ("graph_b1", 0.97, 1.0)):
        times = [sample["t"] for sample in SAMPLES if sample["phase"] == phase][2:]
        clock = FakeClock(now=times[0])
        source = GpuSource(ReplayDriver(DEVICE, SAMPLES, clock.monotonic), clock, 1.0, 10.0)
        source.poll()
        while clock.now < times[-1] - 1:
            clock.now += 1.0
            reading = next(one for one in source.poll() if isinstance(one, GpuReading))

        assert reading.busy_seconds is not None
        assert low <= reading.busy_seconds / (clock.now - times[0]) <= high


def test_the_recorded_h200_shows_every_family_that_was_recorded() -> None:
    """One poll at full load, written out."""
    load = next(sample for sample in SAMPLES if sample["phase"] == "matmul")
    source = GpuSource(ReplayDriver(DEVICE, SAMPLES, lambda: load["t"]), FakeClock(), 5.0, 10.0)

    shown = values([sample for reading in source.poll() for sample in reading.samples()])

    on = ("0", DEVICE["nvmlDeviceGetUUID"])
    assert shown["solpi_gpu_memory_total_bytes"] == {on: 150754820096.0}
    assert shown["solpi_gpu_clock_hertz"].keys() == {(*on, "sm"), (*on, "memory")}
    assert shown["solpi_gpu_ecc_enabled"] == {(*on, "current"): 1.0, (*on, "pending"): 1.0}
    assert shown["solpi_gpu_power_limit_watts"] == {on: 700.0}
    assert shown["solpi_gpu_energy_joules_total"][on] == load["energy_mj"] / 1000
