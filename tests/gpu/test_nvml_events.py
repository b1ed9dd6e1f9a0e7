"""Awaited events, with the real binding over a stand-in for the library."""

import threading
from typing import Any

import pynvml
import pytest

from solpi_exporter.gpu import nvml, nvml_events
from solpi_exporter.gpu.driver import Device, DriverAbsent, DriverFailed, GpuLost, Unavailable, XidEvent
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.recording import recording_of
from tests.nvml_library import NvmlLibrary, install
from tests.nvml_objects import Event
from tests.serving import eventually

SECONDS = 10.0  # after which a thread of a test is stuck
XID = pynvml.nvmlEventTypeXidCriticalError

HOST: dict[str, Any] = {
    "- nvmlDeviceGetCount": 2,
    "0 nvmlDeviceGetUUID": "GPU-a",
    "1 nvmlDeviceGetUUID": "GPU-b",
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    return install(monkeypatch, recording_of([(0.0, HOST)]))


@pytest.fixture
def driver(library: NvmlLibrary) -> NvmlDriver:
    driver = NvmlDriver()
    attach(driver)
    return driver


def attach(driver: NvmlDriver) -> None:
    """Connect, and ask each GPU something, as the source does."""
    driver.connect()
    for gpu in (0, 1):
        driver.ask(Device(gpu), "nvmlDeviceGetUUID")


def masks(library: NvmlLibrary) -> dict[int, int]:
    """Return what the one event set waits for, by GPU."""
    (registered,) = library.sets.values()
    return {device.gpu: mask for device, mask in registered.masks.items()}


def test_the_first_wait_registers_every_gpu_for_xids_alone(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Other kinds of events, of which an H200 has a dozen, would only wake the thread."""
    assert driver.wait_xid(1.0) is None

    assert masks(library) == {0: XID, 1: XID}


def test_no_event_in_time_is_none(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """NVML calls it an error; the set stays as it is, and the time that is waited is what was asked for."""
    driver.wait_xid(0.0)

    assert driver.wait_xid(1.5) is None
    assert [key for key in library.calls if "Wait" in key] == ["- nvmlEventSetWait 0", "- nvmlEventSetWait 1500"]
    assert library.count("nvmlEventSetCreate") == 1
    assert library.count("nvmlEventSetFree") == 0


def test_an_event_is_of_the_gpu_whose_handle_it_carries(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The handle of an event is another object than the one that was registered; what it points to is the same."""
    driver.wait_xid(0.0)
    library.happen(1, 79)
    library.happen(0, 63)

    assert driver.wait_xid(1.0) == XidEvent(1, "GPU-b", 79)
    assert driver.wait_xid(1.0) == XidEvent(0, "GPU-a", 63)
    assert driver.wait_xid(1.0) is None


def test_waits_that_go_on_do_not_register_again(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """What happens between two waits is kept by the set for the next."""
    driver.wait_xid(0.0)
    library.happen(0, 13)
    library.happen(0, 13)

    assert [driver.wait_xid(0.0) for _ in range(3)] == [XidEvent(0, "GPU-a", 13)] * 2 + [None]
    assert library.count("nvmlDeviceRegisterEvents") == 2


def test_a_changed_epoch_registers_anew(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A GPU that has come back knows nothing of the registration of before: one set is given up for the next."""
    driver.wait_xid(0.0)
    library.lose(1)
    with pytest.raises(GpuLost):
        driver.ask(Device(1), "nvmlDeviceGetUUID")
    driver.wait_xid(0.0)
    assert masks(library) == {0: XID}

    library.bring_back(1)
    driver.ask(Device(1), "nvmlDeviceGetUUID")
    driver.wait_xid(0.0)
    library.happen(1, 31)

    assert masks(library) == {0: XID, 1: XID}
    assert driver.wait_xid(0.0) == XidEvent(1, "GPU-b", 31)


def test_a_gpu_that_stays_lost_costs_no_events_of_the_others(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A poll that finds it still lost leaves the set, and what waits in it, alone."""
    library.lose(1)
    with pytest.raises(GpuLost):
        driver.ask(Device(1), "nvmlDeviceGetUUID")
    driver.wait_xid(0.0)
    library.happen(0, 48)
    with pytest.raises(GpuLost):
        driver.ask(Device(1), "nvmlDeviceGetUUID")

    assert driver.wait_xid(0.0) == XidEvent(0, "GPU-a", 48)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, Unavailable),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLost),
        (pynvml.NVML_ERROR_UNINITIALIZED, DriverFailed),
    ],
)
def test_a_wait_that_fails_gives_the_set_back_and_makes_it_anew(
    driver: NvmlDriver, library: NvmlLibrary, code: int, error: type[Exception]
) -> None:
    """A set that has failed once is not waited for again."""
    driver.wait_xid(0.0)
    library.fail("nvmlEventSetWait", code)
    with pytest.raises(error, match=f"nvmlEventSetWait.*NVML error {code}"):
        driver.wait_xid(1.0)
    assert library.sets == {}

    library.fail("nvmlEventSetWait", 0)
    driver.wait_xid(0.0)
    library.happen(0, 94)

    assert driver.wait_xid(0.0) == XidEvent(0, "GPU-a", 94)


def test_a_registration_that_fails_is_tried_again(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """It leaves no set behind."""
    call = "nvmlEventSetCreate"
    library.fail(call, pynvml.NVML_ERROR_UNKNOWN)
    for _ in range(2):
        with pytest.raises(Unavailable):
            driver.wait_xid(1.0)
    assert library.sets == {}

    library.fail(call, 0)
    assert driver.wait_xid(1.0) is None


def test_an_event_of_an_unknown_device_is_none(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """No GPU is guessed."""
    driver.wait_xid(0.0)
    for one in library.sets.values():
        one.events += [Event(library.new_address(), XID, 79), Event(0, XID, 79)]

    assert driver.wait_xid(1.0) is None
    assert driver.wait_xid(1.0) is None


def test_an_event_of_another_kind_is_no_xid(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Its data would be something else."""
    driver.wait_xid(0.0)
    for one in library.sets.values():
        one.masks[Device(0)] |= pynvml.nvmlEventTypePState
    library.happen(0, 2, pynvml.nvmlEventTypePState)

    assert driver.wait_xid(1.0) is None


@pytest.mark.parametrize(
    "call",
    ["nvmlDeviceGetUUID", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"],
)
def test_a_gpu_that_cannot_be_registered_is_left_out(driver: NvmlDriver, library: NvmlLibrary, call: str) -> None:
    """The others are waited for."""
    library.fail(call, pynvml.NVML_ERROR_NO_PERMISSION, gpu=0)
    driver.wait_xid(0.0)

    assert masks(library) == {1: XID}


def test_a_gpu_without_xids_is_left_out(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A registration for no kind at all would be refused, or be one that never wakes."""
    library.answers["0 nvmlDeviceGetSupportedEventTypes"] = pynvml.nvmlEventTypePState
    driver.wait_xid(0.0)

    assert masks(library) == {1: XID}


@pytest.mark.parametrize("mask", [0, pynvml.nvmlEventTypeClock])
def test_a_host_without_xids_says_so_for_good(driver: NvmlDriver, library: NvmlLibrary, mask: int) -> None:
    """Under WSL and vGPU no GPU reports events: not a failure, and no set is kept once the driver is closed."""
    for gpu in (0, 1):
        library.answers[f"{gpu} nvmlDeviceGetSupportedEventTypes"] = mask

    for _ in range(2):
        with pytest.raises(Unavailable, match="no GPU of this host reports XID events") as refused:
            driver.wait_xid(1.0)
        assert refused.value.lasting
        assert len(library.sets) <= 1
    driver.close()
    assert library.sets == {}


def test_gpus_that_were_registered_once_do_not_count(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A set for no GPU at all would wait for nothing, unnoticed."""
    driver.wait_xid(0.0)
    driver.close()
    attach(driver)
    library.fail("nvmlDeviceRegisterEvents", pynvml.NVML_ERROR_NO_PERMISSION)

    with pytest.raises(Unavailable, match="no GPU of this host"):
        driver.wait_xid(0.0)


def test_a_wait_before_the_driver_is_attached_is_absence(library: NvmlLibrary) -> None:
    """It is bounded, and touches no library."""
    with pytest.raises(DriverAbsent, match="no NVIDIA driver is attached"):
        NvmlDriver().wait_xid(0.0)

    assert library.calls == []


def test_a_wait_begins_as_soon_as_the_driver_is_attached(library: NvmlLibrary) -> None:
    """The thread of the events may be started before the one that attaches."""
    driver = NvmlDriver()
    told: list[XidEvent | None] = []
    thread = threading.Thread(target=lambda: told.append(driver.wait_xid(0.5)))
    thread.start()

    attach(driver)
    thread.join(SECONDS)

    assert told == [None]


def test_a_gpu_of_which_nothing_is_known_is_not_touched(library: NvmlLibrary) -> None:
    """It may hang, and with it the registration of all others; it is registered once it has answered."""
    driver = NvmlDriver()
    driver.connect()
    driver.ask(Device(0), "nvmlDeviceGetUUID")
    driver.wait_xid(0.0)
    assert masks(library) == {0: XID}

    driver.ask(Device(1), "nvmlDeviceGetUUID")
    driver.wait_xid(0.0)

    assert masks(library) == {0: XID, 1: XID}


def test_while_all_gpus_are_lost_nothing_is_waited_for(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """That is no failure, after which the next wait would come late: one that is back is registered at once."""
    for gpu in (0, 1):
        library.lose(gpu)
        with pytest.raises(GpuLost):
            driver.ask(Device(gpu), "nvmlDeviceGetUUID")
    assert driver.wait_xid(0.0) is None

    library.bring_back(1)
    driver.ask(Device(1), "nvmlDeviceGetUUID")
    driver.wait_xid(0.0)

    assert masks(library) == {1: XID}


def test_after_a_close_there_is_no_driver(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The set is given back before the library is shut down, and nothing is asked after it."""
    driver.wait_xid(0.0)
    driver.close()

    with pytest.raises(DriverAbsent):
        driver.wait_xid(0.0)
    assert library.calls[-2:] == ["- nvmlEventSetFree", "- nvmlShutdown"]


def test_a_driver_that_is_attached_again_is_registered_again(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Handles and sets of before a shutdown are void."""
    driver.wait_xid(0.0)
    driver.close()
    attach(driver)
    driver.wait_xid(0.0)
    library.happen(1, 74)

    assert driver.wait_xid(0.0) == XidEvent(1, "GPU-b", 74)


class Waiting:
    """A wait inside the library, which returns when it is released."""

    def __init__(self, driver: NvmlDriver, library: NvmlLibrary) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        library.hooks["nvmlEventSetWait"] = self._hang
        self.thread = threading.Thread(target=driver.wait_xid, args=(1.0,))
        self.thread.start()
        assert self.entered.wait(SECONDS)

    def _hang(self) -> None:
        self.entered.set()
        assert self.released.wait(SECONDS)

    def end(self) -> None:
        self.released.set()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


def test_a_close_does_not_shut_the_library_down_under_a_wait(
    driver: NvmlDriver, library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would crash the process: a wait that does not return in time keeps the library, and the close ends."""
    monkeypatch.setattr(nvml, "STOP_SECONDS", 0.01)
    waiting = Waiting(driver, library)

    driver.close()

    assert library.references == 1
    assert len(library.sets) == 1
    waiting.end()
    with pytest.raises(DriverAbsent):
        driver.wait_xid(0.0)


def test_a_close_waits_for_a_wait_that_returns(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Set and library go once nobody is in there."""
    waiting = Waiting(driver, library)
    closing = threading.Thread(target=driver.close)
    closing.start()
    assert library.references == 1

    waiting.end()
    closing.join(SECONDS)

    assert library.references == 0
    assert library.sets == {}


class Hanging:
    """A call of GPU 1 that does not return until it is let go."""

    def __init__(self, library: NvmlLibrary, call: str) -> None:
        self._library = library
        self._released = threading.Event()
        library.hooks[call] = self._hang

    def _hang(self) -> None:
        if self._library.calls[-1].startswith("1 "):
            assert self._released.wait(SECONDS)

    def end(self) -> None:
        self._released.set()


@pytest.mark.parametrize("call", ["nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"])
def test_a_gpu_that_hangs_while_it_is_registered_costs_no_other_its_xids(
    driver: NvmlDriver, library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It is left out in time, not asked again while it hangs, and registered once its call has returned."""
    monkeypatch.setattr(nvml_events, "PATIENCE", 0.02)
    hanging = Hanging(library, call)

    driver.wait_xid(0.0)
    library.happen(0, 79)
    assert driver.wait_xid(0.0) == XidEvent(0, "GPU-a", 79)
    driver.epoch += 1
    driver.wait_xid(0.0)
    assert library.count("nvmlDeviceGetSupportedEventTypes") == 3

    hanging.end()

    def is_counted() -> bool:
        library.happen(1, 31)
        return driver.wait_xid(0.0) == XidEvent(1, "GPU-b", 31)

    assert eventually(is_counted)


def test_nothing_is_freed_under_a_registration_that_hangs(
    driver: NvmlDriver, library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call works on the set, and in the library: either would crash the process."""
    monkeypatch.setattr(nvml_events, "PATIENCE", 0.02)
    hanging = Hanging(library, "nvmlDeviceRegisterEvents")
    driver.wait_xid(0.0)

    driver.close()

    assert library.count("nvmlEventSetFree") == 0
    assert library.references == 1
    hanging.end()
