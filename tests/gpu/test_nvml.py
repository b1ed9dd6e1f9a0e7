"""The door to NVML: attaching, errors and letting go, with the real binding over a stand-in for the library."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from solpi_exporter.gpu import nvml
from solpi_exporter.gpu.driver import BadHandle, Device, DriverAbsent, DriverFailed, GpuLost, Unavailable
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.recording import recording_of
from tests.nvml_library import NvmlLibrary, install

GPU = Device(0)
UUID, POWER = "nvmlDeviceGetUUID", "nvmlDeviceGetPowerUsage"

HOST: dict[str, Any] = {
    "- nvmlDeviceGetCount": 1,
    "- nvmlSystemGetDriverVersion": "580.95.05",
    "0 nvmlDeviceGetUUID": "GPU-a",
    "0 nvmlDeviceGetPowerUsage": 80145,
    "0 nvmlDeviceGetComputeRunningProcesses": [],
    "0 field 186 0": 80500,
    "0 gpm 2": 12.5,
    "0 samples 1": [[1_000_000, 40]],
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    return install(monkeypatch, recording_of([(0.0, HOST)]))


@pytest.fixture
def driver(library: NvmlLibrary) -> NvmlDriver:
    driver = NvmlDriver()
    driver.connect()
    return driver


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_driver_is_absence(library: NvmlLibrary, code: int) -> None:
    """A host without a driver is told so, with what to do, and is not an outage."""
    library.fail("nvmlInitWithFlags", code)

    with pytest.raises(DriverAbsent, match="start with --no-gpu"):
        NvmlDriver().connect()


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_OPERATING_SYSTEM,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_UNKNOWN,
    ],
)
def test_a_driver_that_refuses_to_attach_has_failed(library: NvmlLibrary, code: int) -> None:
    """Whatever it says, no GPU can be asked: it is the driver's failure, not one quantity's or one GPU's."""
    library.fail("nvmlInitWithFlags", code)

    with pytest.raises(DriverFailed, match=f"nvmlInit.*NVML error {code}") as failed:
        NvmlDriver().connect()
    assert failed.value.code == code


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, Unavailable),
        (pynvml.NVML_ERROR_NO_PERMISSION, Unavailable),
        (pynvml.NVML_ERROR_NOT_FOUND, Unavailable),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, Unavailable),
        (pynvml.NVML_ERROR_IN_USE, Unavailable),
        (pynvml.NVML_ERROR_NO_DATA, Unavailable),
        (pynvml.NVML_ERROR_UNKNOWN, Unavailable),
        (12345, Unavailable),
        (pynvml.NVML_ERROR_INVALID_ARGUMENT, BadHandle),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLost),
        (pynvml.NVML_ERROR_RESET_REQUIRED, GpuLost),
        (pynvml.NVML_ERROR_GPU_NOT_FOUND, GpuLost),
        (pynvml.NVML_ERROR_UNINITIALIZED, GpuLost),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, GpuLost),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, GpuLost),
    ],
)
def test_errors_are_graded_by_their_code(
    driver: NvmlDriver, library: NvmlLibrary, code: int, error: type[Unavailable | GpuLost]
) -> None:
    """What concerns one quantity or one GPU is told apart, for codes the binding has no name for too.

    What would concern the driver is the GPU's alone, as long as NVML can be asked how many there are.
    """
    library.fail(POWER, code)

    with pytest.raises(error, match=f"nvmlDeviceGetPowerUsage: .*NVML error {code}") as graded:
        driver.ask(GPU, POWER)
    assert type(graded.value) is error
    assert graded.value.code == code


WAYS: dict[str, Callable[[NvmlDriver], object]] = {
    "nvmlDeviceGetFieldValues": lambda driver: driver.fields(GPU, [(186, 0)]),
    "nvmlGpmQueryDeviceSupport": lambda driver: driver.activity(GPU, [2]),
    "nvmlDeviceGetSamples": lambda driver: driver.samples(GPU, 1, 0),
    "nvmlDeviceGetHandleByIndex": lambda driver: driver.ask(GPU, POWER),
}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, Unavailable),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLost),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, GpuLost),
    ],
)
@pytest.mark.parametrize("call", WAYS)
def test_every_way_of_asking_grades_its_errors(
    driver: NvmlDriver, library: NvmlLibrary, call: str, code: int, error: type[Exception]
) -> None:
    """None lets an error of the binding through."""
    library.fail(call, code)

    with pytest.raises(error, match=f"NVML error {code}"):
        WAYS[call](driver)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, Unavailable),
        (pynvml.NVML_ERROR_GPU_IS_LOST, Unavailable),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, DriverFailed),
    ],
)
def test_a_call_that_concerns_no_gpu_loses_none(
    driver: NvmlDriver, library: NvmlLibrary, code: int, error: type[Exception]
) -> None:
    """Its error is the driver's, or that of this one quantity."""
    library.fail("nvmlSystemGetDriverVersion", code)

    with pytest.raises(error, match=f"NVML error {code}"):
        driver.query("nvmlSystemGetDriverVersion")


def test_a_call_that_the_binding_lacks_is_unavailable_for_good(driver: NvmlDriver) -> None:
    """An older nvidia-ml-py costs one quantity, not the source."""
    with pytest.raises(Unavailable, match="not in the installed nvidia-ml-py") as lacking:
        driver.query("nvmlNoSuchCall")
    assert lacking.value.lasting


@pytest.mark.parametrize("call", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses_v3"])
def test_a_call_that_the_library_lacks_is_unavailable_for_good(
    driver: NvmlDriver, library: NvmlLibrary, call: str
) -> None:
    """An older driver costs one quantity: also where the binding raises what is no NVMLError."""
    library.missing.add(call)

    with pytest.raises(Unavailable) as lacking:
        driver.ask(GPU, call.removesuffix("_v3"))
    assert lacking.value.lasting


# Letting go.


def test_a_closed_driver_can_be_attached_again(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The library is initialised once at a time, and handles of before are not used."""
    driver.ask(GPU, UUID)
    driver.close()
    assert library.references == 0
    driver.connect()

    assert driver.ask(GPU, UUID) == "GPU-a"
    assert library.references == 1
    assert library.count("nvmlDeviceGetHandleByIndex") == 2


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_UNKNOWN])
def test_closing_is_quiet(driver: NvmlDriver, library: NvmlLibrary, code: int) -> None:
    """A stop must not fail for what the driver says to it."""
    library.fail("nvmlShutdown", code)

    driver.close()


def test_a_driver_that_was_never_attached_closes_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no library at all."""
    monkeypatch.setattr(pynvml, "nvmlLib", None)

    NvmlDriver().close()


# Another module of the same name, and another process.


def with_distribution(monkeypatch: pytest.MonkeyPatch, version: str, site: str, files: list[str]) -> None:
    """Let a distribution named pynvml be installed in `site`, while the module is loaded from /venv."""
    shim = SimpleNamespace(version=version, files=files, locate_file=lambda file: Path(site) / file)
    monkeypatch.setattr(nvml, "distribution", lambda name: shim)


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

    nvml.refuse_shadowing_pynvml()


class Child:
    """A process that ends with a status, or does not end."""

    def __init__(self, status: int | None) -> None:
        self.status, self.killed = status, False

    def wait(self, timeout: float) -> int:
        if self.status is None:
            raise subprocess.TimeoutExpired("python", timeout)
        return self.status

    def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize(("status", "attaches"), [(0, True), (1, False), (-11, False), (None, False)])
def test_a_new_process_tells_whether_it_attaches(
    monkeypatch: pytest.MonkeyPatch, status: int | None, attaches: bool
) -> None:
    """This interpreter loads the library as it lies on disk now, and counts; one that hangs is not waited for."""
    commands: list[list[str]] = []
    child = Child(status)

    def start(command: list[str], **_: object) -> Child:
        commands.append(command)
        return child

    monkeypatch.setattr(subprocess, "Popen", start)

    assert nvml.attaches_in_a_new_process() is attaches
    assert commands == [[sys.executable, "-c", "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()"]]
    assert child.killed is (status is None)


def test_a_process_that_cannot_start_does_not_attach(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no reason to restart."""

    def start(*_: object, **__: object) -> None:
        raise OSError("cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", start)

    assert not nvml.attaches_in_a_new_process()
