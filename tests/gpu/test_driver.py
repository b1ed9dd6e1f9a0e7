"""The door to NVML, with the real binding."""

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from solpi_exporter.gpu import driver
from solpi_exporter.gpu.driver import DriverAbsent, DriverFailed, GpuLost, NvmlDriver, Unavailable
from solpi_exporter.gpu.fields import CLOCK_DOMAINS, FIELDS, MEMORY_V2, TEMPERATURE_GPU


class Answering:
    """Stands where `pynvml` keeps its functions: one that raises or returns what it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.answer("nvmlDeviceGetHandleByIndex", lambda index: f"handle {index}")

    def answer(self, call: str, function: Any) -> None:
        self._monkeypatch.setattr(pynvml, call, function)

    def fail(self, call: str, code: int) -> None:
        def function(*_: object) -> None:
            raise pynvml.NVMLError(code)

        self.answer(call, function)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Answering:
    return Answering(monkeypatch)


@pytest.mark.parametrize("call", sorted({field.call for field in FIELDS}))
def test_every_call_of_the_table_is_in_the_binding(call: str) -> None:
    """A misspelt call would be an unsupported quantity for ever."""
    assert callable(getattr(pynvml, call))


def test_the_table_writes_nvmls_numbers_right() -> None:
    """The numbers that the table spells out are those of the binding."""
    assert pynvml.nvmlMemory_v2 == MEMORY_V2
    assert pynvml.NVML_TEMPERATURE_GPU == TEMPERATURE_GPU
    assert CLOCK_DOMAINS == {
        "graphics": pynvml.NVML_CLOCK_GRAPHICS,
        "sm": pynvml.NVML_CLOCK_SM,
        "memory": pynvml.NVML_CLOCK_MEM,
        "video": pynvml.NVML_CLOCK_VIDEO,
    }


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_driver_is_absence(nvml: Answering, code: int) -> None:
    """A host without a driver is told so, with what to do, and is not an outage."""
    nvml.fail("nvmlInit", code)

    with pytest.raises(DriverAbsent, match="start with --no-gpu"):
        NvmlDriver().connect()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, Unavailable),
        (pynvml.NVML_ERROR_NO_PERMISSION, Unavailable),
        (pynvml.NVML_ERROR_NOT_FOUND, Unavailable),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, Unavailable),
        (pynvml.NVML_ERROR_UNKNOWN, Unavailable),
        (12345, Unavailable),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLost),
        (pynvml.NVML_ERROR_RESET_REQUIRED, GpuLost),
        (28, GpuLost),
        (pynvml.NVML_ERROR_UNINITIALIZED, DriverFailed),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, DriverFailed),
    ],
)
def test_errors_are_graded_by_their_code(nvml: Answering, code: int, error: type[Exception]) -> None:
    """What concerns one quantity, one GPU, or all of them is told apart, for codes the binding has no name for too."""
    nvml.fail("nvmlDeviceGetPowerUsage", code)

    with pytest.raises(error, match=f"nvmlDeviceGetPowerUsage.*NVML error {code}"):
        NvmlDriver().query_gpu(0, "nvmlDeviceGetPowerUsage")


def test_a_call_that_the_binding_lacks_is_unavailable() -> None:
    """An older nvidia-ml-py costs one quantity, not the source."""
    with pytest.raises(Unavailable, match="not in the installed nvidia-ml-py"):
        NvmlDriver().query("nvmlNoSuchCall")


def test_structs_and_bytes_become_plain(nvml: Answering) -> None:
    """What passes the door is what a recording can hold."""

    class Inner(ctypes.Structure):
        _fields_ = [("bus", ctypes.c_uint), ("busId", ctypes.c_char * 8)]

    nvml.answer("nvmlDeviceGetPciInfo", lambda handle: Inner(6, b"00:06.0"))

    assert NvmlDriver().query_gpu(0, "nvmlDeviceGetPciInfo") == {"bus": 6, "busId": "00:06.0"}


def test_a_handle_is_asked_for_once_and_again_after_a_loss(nvml: Answering) -> None:
    """A handle does not outlive a GPU's reset."""
    asked: list[int] = []
    nvml.answer("nvmlDeviceGetHandleByIndex", asked.append)
    nvml.answer("nvmlDeviceGetName", lambda handle: "H200")
    one = NvmlDriver()
    one.query_gpu(0, "nvmlDeviceGetName")
    one.query_gpu(0, "nvmlDeviceGetName")
    assert asked == [0]

    nvml.fail("nvmlDeviceGetUUID", pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(GpuLost):
        one.query_gpu(0, "nvmlDeviceGetUUID")
    one.query_gpu(0, "nvmlDeviceGetName")

    assert asked == [0, 0]


def with_distribution(monkeypatch: pytest.MonkeyPatch, version: str, site: str, files: list[str]) -> None:
    """Let a distribution named pynvml be installed in `site`, while the module is loaded from /venv."""
    shim = SimpleNamespace(version=version, files=files, locate_file=lambda file: Path(site) / file)
    monkeypatch.setattr(driver, "distribution", lambda name: shim)


@pytest.mark.parametrize("file", ["pynvml/__init__.py", "pynvml.py"])
def test_an_old_pynvml_that_shadows_the_binding_is_named(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """One line says which distribution is in the way and how to remove it."""
    monkeypatch.setattr(pynvml, "__file__", f"/venv/{file}")
    with_distribution(monkeypatch, "11.5.3", "/venv", [file])

    with pytest.raises(DriverFailed, match=r"pynvml 11.5.3 shadows nvidia-ml-py: run `pip uninstall -y pynvml"):
        NvmlDriver().connect()


@pytest.mark.parametrize(
    ("version", "site", "file"),
    [("13.0.1", "/venv", "pynvml_utils/__init__.py"), ("11.5.3", "/host", "pynvml/__init__.py")],
    ids=["the deprecated shim of today", "an old one later in the path"],
)
def test_a_pynvml_that_overwrites_nothing_is_harmless(
    monkeypatch: pytest.MonkeyPatch, version: str, site: str, file: str
) -> None:
    """Only the module that was really loaded counts."""
    monkeypatch.setattr(pynvml, "__file__", "/venv/pynvml.py")
    with_distribution(monkeypatch, version, site, [file])

    driver.refuse_shadowing_pynvml()


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_UNKNOWN])
def test_closing_is_quiet(nvml: Answering, code: int) -> None:
    """A stop must not fail for what the driver says to it."""
    nvml.fail("nvmlShutdown", code)

    NvmlDriver().close()


def test_a_handle_that_is_refused_is_asked_for_again(nvml: Answering) -> None:
    """A driver that was reloaded knows nothing of the handles of before."""
    asked: list[int] = []
    nvml.answer("nvmlDeviceGetHandleByIndex", asked.append)
    nvml.fail("nvmlDeviceGetUUID", pynvml.NVML_ERROR_INVALID_ARGUMENT)
    one = NvmlDriver()

    for _ in range(2):
        with pytest.raises(Unavailable):
            one.query_gpu(0, "nvmlDeviceGetUUID")

    assert asked == [0, 0]
