"""GPM's pairs of samples, with the real binding over a stand-in for the library."""

import threading
from math import nan

import pynvml
import pytest

from solpi_exporter.gpu import nvml_gpm
from solpi_exporter.gpu.driver import NOT_READY, BadHandle, Device, GpuLost, Unavailable
from solpi_exporter.gpu.fields import FIELDS
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.origins import Activity
from solpi_exporter.gpu.recording import Frame, recording_of
from solpi_exporter.gpu.transfers import TRANSFERS
from tests.nvml_library import NvmlLibrary, install

GPU, OTHER, INSTANCE = Device(0), Device(1), Device(0, 1)
SECONDS = 10.0  # after which a thread of a test is stuck

# Two GPUs, of which the first has two MIG instances. SM activity of the first rises by 10 a second.
FRAMES: list[Frame] = [
    (
        0.0,
        {
            "- nvmlDeviceGetCount": 2,
            "0 nvmlDeviceGetUUID": "GPU-a",
            "1 nvmlDeviceGetUUID": "GPU-b",
            "0/0 nvmlDeviceGetUUID": "MIG-a",
            "0/1 nvmlDeviceGetUUID": "MIG-b",
            "0/0 nvmlDeviceGetGpuInstanceId": 1,
            "0/1 nvmlDeviceGetGpuInstanceId": 7,
            "0 gpm 1": 90.0,
            "0 gpm 2": 0.0,
            "1 gpm 2": 55.5,
            "0/0 gpm 2": 11.0,
            "0/1 gpm 2": 77.0,
        },
    ),
    *((float(second), {"0 gpm 2": 10.0 * second}) for second in range(1, 5)),
]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    return install(monkeypatch, recording_of(FRAMES))


@pytest.fixture
def driver(library: NvmlLibrary) -> NvmlDriver:
    driver = NvmlDriver()
    driver.connect()
    return driver


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "GRAPHICS_UTIL"),
        (2, "SM_UTIL"),
        (3, "SM_OCCUPANCY"),
        (5, "ANY_TENSOR_UTIL"),
        (10, "DRAM_BW_UTIL"),
        (20, "PCIE_TX_PER_SEC"),
        (21, "PCIE_RX_PER_SEC"),
        (60, "NVLINK_TOTAL_RX_PER_SEC"),
        (61, "NVLINK_TOTAL_TX_PER_SEC"),
    ],
)
def test_metrics_have_nvmls_numbers(number: int, name: str) -> None:
    """A metric's id is the one that the binding gives its name."""
    assert getattr(pynvml, f"NVML_GPM_METRIC_{name}") == number


def test_no_further_metric_is_asked_for() -> None:
    """The ids whose names are pinned above are all that the tables have."""
    rows = {field.origin.id for field in FIELDS if isinstance(field.origin, Activity)}

    assert rows | {transfer.rate.id for transfer in TRANSFERS} == {1, 2, 3, 5, 10, 20, 21, 60, 61}


@pytest.mark.parametrize(("part", "number"), [("pcie_transmit", 20), ("pcie_receive", 21)])
def test_directions_over_pcie_are_seen_from_the_gpu(part: str, number: int) -> None:
    """The binding's TX is traffic from this GPU, which is what is transmitted."""
    assert next(one.rate.id for one in TRANSFERS if part in one.metric.name) == number


def test_the_first_call_has_nothing_and_begins(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A mean needs two samples: the first call takes one, and has room for the next."""
    assert driver.activity(GPU, [1, 2]) == {}
    assert library.count("nvmlGpmSampleGet") == 1
    assert library.count("nvmlGpmMetricsGet") == 0


def test_each_call_tells_the_mean_since_the_one_before(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The newer sample of one mean is the older of the next: no time is left out, none is counted twice."""
    driver.activity(GPU, [1, 2])
    library.now = 2.0
    assert driver.activity(GPU, [1, 2]) == {1: 90.0, 2: 15.0}

    library.now = 3.0
    assert driver.activity(GPU, [1, 2]) == {1: 90.0, 2: 30.0}

    library.now = 4.0
    assert driver.activity(GPU, [2]) == {2: 40.0}


def test_a_call_costs_one_sample_and_two_are_kept_for_each_device(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The samples of a device are used in turns and no others are ever allocated."""
    for library.now in (0.0, 1.0, 2.0, 3.0):
        driver.activity(GPU, [2])
        driver.activity(OTHER, [2])

    assert library.count("nvmlGpmSampleGet") == 8
    assert library.count("nvmlGpmSampleAlloc") == len(library.samples) == 4


def test_devices_do_not_mix(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A device that is first asked between two calls for another has a beginning of its own."""
    driver.activity(GPU, [2])
    library.now = 1.0
    assert driver.activity(OTHER, [2]) == {}

    library.now = 2.0
    assert driver.activity(GPU, [2]) == {2: 15.0}
    assert driver.activity(OTHER, [2]) == {2: 55.5}


def test_a_metric_that_has_an_error_of_its_own_is_left_out(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Each metric has a return code; the others stand."""
    library.answers["0 gpm 2"] = {"error": pynvml.NVML_ERROR_NOT_SUPPORTED}
    driver.activity(GPU, [1, 2, 60])

    assert driver.activity(GPU, [1, 2, 60]) == {1: 90.0}


def test_what_is_not_a_number_is_left_out(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """NVML answers success with NaN for what an idle GPU has no mean of."""
    library.now = 4.0
    library.answers["0 gpm 2"] = nan
    driver.activity(GPU, [1, 2])

    assert driver.activity(GPU, [1, 2]) == {1: 90.0}


def test_a_gpu_without_gpm_lacks_it_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the support query denies is not asked for again, and costs no sample."""
    library = install(monkeypatch, recording_of([(0.0, {"- nvmlDeviceGetCount": 1, "0 nvmlDeviceGetUUID": "GPU-a"})]))
    driver = NvmlDriver()
    driver.connect()

    with pytest.raises(Unavailable, match="GPM: not on this GPU") as refused:
        driver.activity(GPU, [2])

    assert refused.value.lasting
    assert library.count("nvmlGpmSampleAlloc") == 0


def test_a_driver_without_gpm_lacks_it_for_good(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A library of before GPM does not export the query."""
    library.missing.add("nvmlGpmQueryDeviceSupport")

    with pytest.raises(Unavailable, match="GPM") as refused:
        driver.activity(GPU, [2])

    assert refused.value.lasting


@pytest.mark.parametrize("call", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_after_an_error_the_samples_are_given_back_and_begun_anew(
    driver: NvmlDriver, library: NvmlLibrary, call: str
) -> None:
    """A sample that failed is the beginning of no mean."""
    driver.activity(GPU, [2])
    library.fail(call, pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(Unavailable, match=r"GPM: Unknown Error \(NVML error 999\)"):
        driver.activity(GPU, [2])
    assert library.samples == {}

    library.fail(call, 0)
    assert driver.activity(GPU, [2]) == {}
    library.now = 1.0
    assert driver.activity(GPU, [2]) == {2: 10.0}


def test_a_first_sample_that_is_refused_is_given_back(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A GPU that refuses it on every poll, for want of permission, costs no memory."""
    library.fail("nvmlGpmSampleGet", pynvml.NVML_ERROR_NO_PERMISSION)

    for _ in range(3):
        with pytest.raises(Unavailable):
            driver.activity(GPU, [2])

    assert library.count("nvmlGpmSampleAlloc") == 6
    assert library.samples == {}


def test_half_a_pair_is_given_back(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """A second sample that cannot be allocated does not cost the first."""

    def refuse_the_second() -> None:
        if library.samples:
            library.fail("nvmlGpmSampleAlloc", pynvml.NVML_ERROR_MEMORY)

    library.hooks["nvmlGpmSampleAlloc"] = refuse_the_second
    with pytest.raises(Unavailable, match="Insufficient Memory"):
        driver.activity(GPU, [2])

    assert library.count("nvmlGpmSampleAlloc") == 2
    assert library.samples == {}


def test_closing_gives_every_sample_back(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The samples go before the library is shut down."""
    driver.activity(GPU, [2])
    driver.activity(OTHER, [2])

    driver.close()

    assert library.samples == {}
    assert library.calls[-1] == "- nvmlShutdown"


def test_a_gpu_that_is_lost_under_a_sample_is_lost(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """GPM's calls are graded as any other, and a GPU that came back begins anew."""
    driver.activity(GPU, [2])
    library.lose(0)
    with pytest.raises(GpuLost, match="GPM"):
        driver.activity(GPU, [2])
    library.bring_back(0)

    assert driver.activity(GPU, [2]) == {}
    assert len(library.samples) == 2


def test_a_gpu_that_was_lost_elsewhere_begins_anew(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """No mean is taken over a loss."""
    driver.activity(GPU, [2])
    library.lose(0)
    with pytest.raises(GpuLost):
        driver.ask(GPU, "nvmlDeviceGetUUID")
    library.bring_back(0)
    library.now = 2.0

    assert driver.activity(GPU, [2]) == {}


def test_a_refused_argument_keeps_the_handle(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Only the identity tells whether the handle is at fault."""
    library.fail("nvmlGpmSampleGet", pynvml.NVML_ERROR_INVALID_ARGUMENT)
    for _ in range(2):
        with pytest.raises(BadHandle):
            driver.activity(GPU, [2])

    assert library.count("nvmlDeviceGetHandleByIndex") == 1


def test_a_mig_instance_is_sampled_by_its_instance_id(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The sample is of the GPU's handle and the id of the GPU instance, not its position."""
    driver.activity(INSTANCE, [2])

    assert driver.activity(INSTANCE, [2]) == {2: 77.0}
    assert library.calls.count("0 nvmlGpmMigSampleGet 7") == 2
    assert library.count("nvmlGpmSampleGet") == 0


def test_a_device_does_not_wait_for_ever_for_one_that_hangs(
    driver: NvmlDriver, library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls on two devices at once have crashed processes: the second is not ready for as long as the first hangs."""
    monkeypatch.setattr(nvml_gpm, "PATIENCE_SECONDS", 0.01)
    driver.activity(OTHER, [2])
    entered, released = threading.Event(), threading.Event()
    hung = hanging(driver, library, entered, released)
    assert entered.wait(SECONDS)

    with pytest.raises(Unavailable, match="has not returned") as refused:
        driver.activity(OTHER, [2])
    assert refused.value.code == NOT_READY
    assert not refused.value.lasting

    released.set()
    hung.join(SECONDS)
    assert driver.activity(OTHER, [2]) == {2: 55.5}


def test_a_device_waits_for_another_that_is_in_the_driver(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Two threads take their turns."""
    driver.activity(OTHER, [2])
    entered, released = threading.Event(), threading.Event()
    busy = hanging(driver, library, entered, released)
    assert entered.wait(SECONDS)
    threading.Timer(0.01, released.set).start()

    assert driver.activity(OTHER, [2]) == {2: 55.5}
    busy.join(SECONDS)


def hanging(
    driver: NvmlDriver, library: NvmlLibrary, entered: threading.Event, released: threading.Event
) -> threading.Thread:
    """Return a thread that is inside a GPM call of the first GPU until it is released."""

    def hang() -> None:
        if library.calls[-1].startswith("0 "):
            entered.set()
            assert released.wait(SECONDS)

    library.hooks["nvmlGpmSampleGet"] = hang
    thread = threading.Thread(target=driver.activity, args=(GPU, [2]))
    thread.start()
    return thread
