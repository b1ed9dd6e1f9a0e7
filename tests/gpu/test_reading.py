"""What a poll of the GPUs yields."""

import dataclasses
from typing import Any

import pytest

from solpi_exporter.gpu.driver import GPU_IS_LOST, NO_PERMISSION, RESET_REQUIRED, UNKNOWN, VERSION_MISMATCH
from solpi_exporter.gpu.fields import UTILIZATION
from solpi_exporter.gpu.reading import (
    BUSY,
    INFO,
    BusyTotal,
    ExpectedGpus,
    GpuProcess,
    GpuReading,
    GpuState,
    NvmlReading,
    state_of,
)
from tests.fakes import values

ON = ("0", "GPU-a", "")
READ = GpuReading(
    0,
    "GPU-a",
    GpuState.OK,
    bus_id="00000000:00:06.0",
    info=INFO.sample(1.0, *ON, "NVIDIA H200", "00000000:00:06.0", "96.00"),
    rows=(UTILIZATION.sample(0.5, *ON),),
    totals=(BUSY.sample(7.0, *ON),),
    busy=BusyTotal(10.0, 7.0, 0),
    processes=(GpuProcess(1, None), GpuProcess(2, 5.0)),
)


def shown(reading: Any) -> dict[str, dict[tuple[str, ...], Any]]:
    return values(list(reading.samples()))


def test_a_gpu_that_answers_shows_everything() -> None:
    """State, identity, rows, totals, and the number of its processes."""
    assert {name: value for name, value in shown(READ).items() if name != "solpi_gpu_state"} == {
        "solpi_gpu_up": {ON: 1.0},
        "solpi_gpu_info": {(*ON, "NVIDIA H200", "00000000:00:06.0", "96.00"): 1.0},
        "solpi_gpu_utilization_ratio": {ON: 0.5},
        "solpi_gpu_busy_seconds_total": {ON: 7.0},
        "solpi_gpu_processes": {ON: 2.0},
    }


@pytest.mark.parametrize("state", [state for state in GpuState if state is not GpuState.OK])
def test_a_gpu_that_does_not_answer_has_its_name_state_and_totals(state: GpuState) -> None:
    """Every measurement is withdrawn; where the GPU is, is what one needs to know then."""
    reading = READ.gone(state)

    assert not reading.up
    assert shown(reading).keys() == {
        "solpi_gpu_up",
        "solpi_gpu_state",
        "solpi_gpu_info",
        "solpi_gpu_busy_seconds_total",
    }
    assert shown(reading)["solpi_gpu_up"] == {ON: 0.0}


@pytest.mark.parametrize("state", GpuState)
def test_a_state_is_one_of_a_closed_set(state: GpuState) -> None:
    """A series for each, of which one is 1, so that a state that ends is seen to end."""
    series = shown(READ.gone(state))["solpi_gpu_state"]

    assert {labels[-1] for labels in series} == {one.value for one in GpuState}
    assert [labels for labels, value in series.items() if value] == [(*ON, state.value)]


def test_an_instance_has_no_state_of_its_own() -> None:
    """It is up while it answers; what ails it, ails its GPU."""
    reading = dataclasses.replace(READ, instance="7", info=None, rows=(), totals=())

    assert shown(reading) == {
        "solpi_gpu_up": {("0", "GPU-a", "7"): 1.0},
        "solpi_gpu_processes": {("0", "GPU-a", "7"): 2.0},
    }


def test_processes_that_are_not_told_are_not_none() -> None:
    """No process is 0, unknown is absence."""
    assert shown(dataclasses.replace(READ, processes=()))["solpi_gpu_processes"] == {ON: 0.0}
    assert "solpi_gpu_processes" not in shown(dataclasses.replace(READ, processes=None))


def test_a_reading_is_frozen() -> None:
    """It travels between threads."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        READ.index = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (GPU_IS_LOST, GpuState.LOST),
        (RESET_REQUIRED, GpuState.RESET_REQUIRED),
        (NO_PERMISSION, GpuState.NO_PERMISSION),
        (VERSION_MISMATCH, GpuState.DRIVER_MISMATCH),
        (UNKNOWN, GpuState.LOST),
        (None, GpuState.LOST),
    ],
)
def test_an_error_says_what_ails_a_gpu(code: int | None, state: GpuState) -> None:
    """What calls for a state of its own has one; anything else is a GPU that is lost."""
    assert state_of(code) is state


def test_the_driver_tells_what_it_knows() -> None:
    """Count, versions, CUDA; a count of 0 is a measurement."""
    assert shown(NvmlReading(0, "580.1", "13.580", 13.0)) == {
        "solpi_gpus_present": {(): 0.0},
        "solpi_nvml_info": {("580.1", "13.580"): 1.0},
        "solpi_cuda_driver_version": {(): 13.0},
    }


def test_a_driver_without_versions_has_none() -> None:
    """The library's alone names no driver; the driver's stands without the library's."""
    assert shown(NvmlReading(2, None, "13.580", None)) == {"solpi_gpus_present": {(): 2.0}}
    assert shown(NvmlReading(2, "580.1", None, None))["solpi_nvml_info"] == {("580.1", ""): 1.0}


def test_the_number_expected_stands_alone() -> None:
    """It is shown also while the driver does not answer."""
    assert shown(ExpectedGpus(8)) == {"solpi_gpus_expected": {(): 8.0}}
