"""Handles behind the door to NVML, and the epoch that changes when they are given up."""

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from solpi_exporter.gpu.driver import BadHandle, Device, GpuLost, Unavailable
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.recording import recording_of
from tests.nvml_library import NvmlLibrary, install

GPU, OTHER, INSTANCE = Device(0), Device(1), Device(0, 1)
UUID, NAME, POWER = "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPowerUsage"
HANDLE, MIG_HANDLE = "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMigDeviceHandleByIndex"

# Two GPUs, the first with a MIG instance in the second of its two places.
HOST: dict[str, Any] = {
    "- nvmlDeviceGetCount": 2,
    "0 nvmlDeviceGetUUID": "GPU-a",
    "0 nvmlDeviceGetName": "NVIDIA H200",
    "0 nvmlDeviceGetPowerUsage": 80145,
    "0 field 186 0": 80500,
    "0 gpm 2": 12.5,
    "0 samples 1": [[1_000_000, 40]],
    "0/0 nvmlDeviceGetUUID": {"error": pynvml.NVML_ERROR_NOT_FOUND},
    "0/1 nvmlDeviceGetUUID": "MIG-a",
    "0/1 nvmlDeviceGetGpuInstanceId": 7,
    "1 nvmlDeviceGetUUID": "GPU-b",
    "1 nvmlDeviceGetPowerUsage": 79000,
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    return install(monkeypatch, recording_of([(0.0, HOST)]))


@pytest.fixture
def driver(library: NvmlLibrary) -> NvmlDriver:
    driver = NvmlDriver()
    driver.connect()
    return driver


def test_a_handle_is_asked_for_once(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The first request brings a GPU up, which takes seconds without persistence mode."""
    for _ in range(3):
        driver.ask(GPU, NAME)
        driver.fields(GPU, [(186, 0)])
        driver.samples(GPU, 1, 0)
        driver.ask(INSTANCE, UUID)

    assert library.count(HANDLE) == library.count(MIG_HANDLE) == 1


def test_an_instance_is_found_by_its_position(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Its calls go to a handle of its own; an empty place is unavailable and keeps none."""
    assert driver.ask(INSTANCE, UUID) == "MIG-a"
    assert driver.ask(INSTANCE, "nvmlDeviceGetGpuInstanceId") == 7
    for _ in range(2):
        with pytest.raises(Unavailable):
            driver.ask(Device(0, 0), UUID)

    assert library.calls.count(f"0 {MIG_HANDLE} 1") == 1
    assert library.calls.count(f"0 {MIG_HANDLE} 0") == 2


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_the_handles_of_a_lost_gpu_are_asked_for_again(driver: NvmlDriver, library: NvmlLibrary, code: int) -> None:
    """A handle does not outlive a reset, nor do those of the GPU's instances; another GPU's are kept."""
    for device in (GPU, INSTANCE, OTHER):
        driver.ask(device, UUID)
    library.lose(0, code)
    with pytest.raises(GpuLost):
        driver.ask(GPU, UUID)
    library.bring_back(0)

    assert [driver.ask(device, UUID) for device in (GPU, INSTANCE, OTHER)] == ["GPU-a", "MIG-a", "GPU-b"]
    assert library.calls.count(f"- {HANDLE} 0") == library.count(MIG_HANDLE) == 2
    assert library.calls.count(f"- {HANDLE} 1") == 1


@pytest.mark.parametrize(
    ("call", "ask"),
    [
        ("nvmlDeviceGetFieldValues", lambda driver: driver.fields(GPU, [(186, 0)])),
        ("nvmlGpmQueryDeviceSupport", lambda driver: driver.activity(GPU, [2])),
        ("nvmlDeviceGetSamples", lambda driver: driver.samples(GPU, 1, 0)),
    ],
)
def test_a_loss_is_noticed_by_whatever_is_asked(
    driver: NvmlDriver, library: NvmlLibrary, call: str, ask: Callable[[NvmlDriver], object]
) -> None:
    """A GPU may be lost between two calls of one poll."""
    driver.ask(GPU, UUID)
    before = driver.epoch
    library.fail(call, pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(GpuLost):
        ask(driver)
    assert driver.epoch == before + 1

    driver.ask(GPU, UUID)
    assert library.count(HANDLE) == 2


def test_a_refused_identity_drops_the_handle(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """It needs nothing but the handle, so the handle is of before a reset, or of a driver that was reloaded."""
    driver.ask(GPU, UUID)
    library.bring_back(0)
    with pytest.raises(BadHandle):
        driver.ask(GPU, UUID)

    assert driver.ask(GPU, UUID) == "GPU-a"
    assert library.count(HANDLE) == 2


def test_another_call_that_is_refused_keeps_the_handle(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The fault may lie with its other arguments: a clock domain that a GPU does not know."""
    library.answers["0 nvmlDeviceGetClockInfo 3"] = {"error": pynvml.NVML_ERROR_INVALID_ARGUMENT}
    driver.ask(GPU, UUID)
    before = driver.epoch
    with pytest.raises(BadHandle):
        driver.ask(GPU, "nvmlDeviceGetClockInfo", 3)
    driver.ask(GPU, UUID)

    assert library.count(HANDLE) == 1
    assert driver.epoch == before


def epochs(driver: NvmlDriver, *devices: Device, polls: int = 3) -> list[int]:
    """Return by how much the epoch changes in each of a few polls, which go on with the next GPU after a loss."""
    changes = []
    for _ in range(polls):
        before = driver.epoch
        for device in devices:
            try:
                driver.ask(device, UUID)
                driver.ask(device, POWER)
            except (GpuLost, BadHandle):
                continue
        changes.append(driver.epoch - before)
    return changes


def test_the_epoch_changes_when_the_driver_is_attached(library: NvmlLibrary) -> None:
    """What was registered before is void, and each GPU that answers for the first time can be registered."""
    driver = NvmlDriver()
    before = driver.epoch
    driver.connect()

    assert driver.epoch == before + 1
    assert epochs(driver, GPU, OTHER) == [2, 0, 0]


@pytest.mark.parametrize("call", [None, UUID, POWER])
def test_the_epoch_changes_with_a_loss_and_with_the_return(
    driver: NvmlDriver, library: NvmlLibrary, call: str | None
) -> None:
    """Not while it lasts, also where a lost GPU still tells its UUID: each change costs events of all GPUs."""
    epochs(driver, GPU, OTHER)
    if call is None:
        library.lose(0)
    else:
        library.fail(call, pynvml.NVML_ERROR_GPU_IS_LOST, gpu=0)
    assert epochs(driver, GPU, OTHER) == [1, 0, 0]

    library.fail(call or UUID, 0, gpu=0)
    library.bring_back(0)
    assert epochs(driver, GPU, OTHER) == [1, 0, 0]

    library.lose(0)
    assert epochs(driver, GPU, OTHER) == [1, 0, 0]


def test_a_gpu_is_back_when_what_found_it_lost_is_refused_as_usual(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The call may be one that this GPU never answers."""
    library.fail("nvmlDeviceGetVbiosVersion", pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(GpuLost):
        driver.ask(GPU, "nvmlDeviceGetVbiosVersion")
    lost = driver.epoch

    library.fail("nvmlDeviceGetVbiosVersion", 0)
    with pytest.raises(Unavailable):
        driver.ask(GPU, "nvmlDeviceGetVbiosVersion")
    assert driver.epoch == lost + 1


def test_each_gpu_has_a_loss_of_its_own(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """One that is lost later is a change again."""
    epochs(driver, GPU, OTHER)
    library.lose(0)
    assert epochs(driver, GPU, OTHER) == [1, 0, 0]
    library.lose(1)
    assert epochs(driver, GPU, OTHER) == [1, 0, 0]


def test_a_driver_that_is_attached_anew_knows_of_no_loss(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A GPU that is back by then is one that answers for the first time."""
    epochs(driver, GPU, OTHER)
    library.lose(0)
    assert epochs(driver, GPU, OTHER) == [1, 0, 0]
    driver.close()
    library.bring_back(0)
    driver.connect()

    assert epochs(driver, GPU, OTHER) == [2, 0, 0]


def test_another_number_of_gpus_gives_up_all_handles(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """An index may mean another GPU then; the same number gives up none."""
    driver.query("nvmlDeviceGetCount")
    driver.ask(GPU, UUID)
    driver.query("nvmlDeviceGetCount")
    driver.ask(GPU, UUID)
    before = driver.epoch
    assert library.count(HANDLE) == 1

    library.answers["- nvmlDeviceGetCount"] = 1
    driver.query("nvmlDeviceGetCount")
    driver.ask(GPU, UUID)

    assert library.count(HANDLE) == 2
    assert driver.epoch > before


def test_an_identity_that_is_refused_is_a_loss(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Whatever the reason: its events have to be registered anew once it tells its UUID again."""
    epochs(driver, GPU, OTHER)
    library.fail(UUID, pynvml.NVML_ERROR_UNKNOWN, gpu=0)
    before = driver.epoch
    with pytest.raises(Unavailable):
        driver.ask(GPU, UUID)
    assert driver.epoch == before + 1

    library.fail(UUID, 0, gpu=0)
    driver.ask(GPU, UUID)

    assert driver.epoch == before + 2
