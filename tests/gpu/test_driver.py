"""What the driver interface says by itself: NVML's codes, and which of them are of use to ask again."""

import pynvml
import pytest

from solpi_exporter.gpu import driver
from solpi_exporter.gpu.driver import LASTING, BadHandle, Device, DriverAbsent, DriverFailed, GpuLost, Unavailable
from solpi_exporter.source import SourceAbsent, SourceError


@pytest.mark.parametrize(
    ("ours", "nvmls"),
    [
        ("NOT_SUPPORTED", "NVML_ERROR_NOT_SUPPORTED"),
        ("NO_PERMISSION", "NVML_ERROR_NO_PERMISSION"),
        ("FUNCTION_NOT_FOUND", "NVML_ERROR_FUNCTION_NOT_FOUND"),
        ("GPU_IS_LOST", "NVML_ERROR_GPU_IS_LOST"),
        ("RESET_REQUIRED", "NVML_ERROR_RESET_REQUIRED"),
        ("VERSION_MISMATCH", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
        ("NOT_READY", "NVML_ERROR_NOT_READY"),
        ("UNKNOWN", "NVML_ERROR_UNKNOWN"),
    ],
)
def test_the_codes_are_those_of_the_binding(ours: str, nvmls: str) -> None:
    """A code that is written out here is NVML's of that name."""
    assert getattr(driver, ours) == getattr(pynvml, nvmls)


def test_what_lasts_is_what_the_gpu_will_never_answer() -> None:
    """Unsupported, not in the library, another version of the arguments, deprecated: and nothing else."""
    assert {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    } == LASTING


@pytest.mark.parametrize("code", sorted(LASTING))
def test_a_lasting_code_makes_the_error_lasting(code: int) -> None:
    """Asking again is of no use until the GPU is attached anew."""
    assert Unavailable("a call", code).lasting


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NOT_READY,
        pynvml.NVML_ERROR_UNKNOWN,
        12345,
    ],
)
def test_any_other_code_may_pass(code: int) -> None:
    """What is not permitted or not there now is asked again, and so is what has a code without a name."""
    assert not Unavailable("a call", code).lasting


def test_an_error_without_a_code_is_of_the_plainest_kind() -> None:
    """Unavailable is unsupported, a lost GPU is lost, and a driver that never got as far has no code."""
    assert Unavailable("a call").code == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert GpuLost("a call").code == pynvml.NVML_ERROR_GPU_IS_LOST
    assert DriverFailed("a call").code is None


def test_a_refused_handle_is_unavailable_and_may_pass() -> None:
    """Who does not know of handles treats it as any quantity that cannot be had now."""
    refused = BadHandle("a call", pynvml.NVML_ERROR_INVALID_ARGUMENT)

    assert isinstance(refused, Unavailable)
    assert not refused.lasting


def test_no_driver_is_absence_and_a_failing_one_an_outage() -> None:
    """The runner tells a host without a GPU from one whose driver fails by these classes."""
    assert issubclass(DriverAbsent, SourceAbsent)
    assert issubclass(DriverFailed, SourceError)
    assert not issubclass(DriverFailed, SourceAbsent)


def test_devices_are_told_apart_by_gpu_and_instance() -> None:
    """A MIG instance is not its GPU, and either may be a key."""
    assert len({Device(0), Device(0, 0), Device(0, 1), Device(1), Device(0)}) == 4
