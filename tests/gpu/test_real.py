"""The same source on real NVML: `pytest -m gpu` on a machine with an NVIDIA GPU."""

import pytest

from solpi_exporter.clock import SystemClock
from solpi_exporter.gpu.driver import NvmlDriver
from solpi_exporter.gpu.source import GpuReading, GpuSource, NvmlReading
from tests.fakes import values

pytestmark = pytest.mark.gpu


def test_a_real_gpu_yields_every_row_of_the_table() -> None:
    """A data-centre GPU answers all calls, with values that can be true."""
    source = GpuSource(NvmlDriver(), SystemClock(), 5.0, 10.0)
    readings = source.poll()
    source.close()

    nvml = next(reading for reading in readings if isinstance(reading, NvmlReading))
    shown = values([sample for reading in readings for sample in reading.samples()])
    on = next((str(reading.index), reading.uuid) for reading in readings if isinstance(reading, GpuReading))
    assert nvml.present >= 1
    assert on[1].startswith("GPU-")
    assert 0 <= shown["solpi_gpu_utilization_ratio"][on] <= 1
    assert 0 < shown["solpi_gpu_power_watts"][on] < shown["solpi_gpu_power_limit_watts"][on] * 1.2
    assert 10 < shown["solpi_gpu_temperature_celsius"][(*on, "gpu")] < 110
    assert 1e8 < shown["solpi_gpu_clock_hertz"][(*on, "sm")] < 5e9
    assert shown["solpi_gpu_energy_joules_total"][on] > 0
    used = shown["solpi_gpu_memory_used_bytes"][on] + shown["solpi_gpu_memory_reserved_bytes"][on]
    assert used + shown["solpi_gpu_memory_free_bytes"][on] == shown["solpi_gpu_memory_total_bytes"][on]
