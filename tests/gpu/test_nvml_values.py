"""What comes through the door to NVML: the table against the binding, and a recording through the binding's structs."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from solpi_exporter.gpu import nvml
from solpi_exporter.gpu.driver import EVERY_LINK, Device, GpuLost, Unavailable
from solpi_exporter.gpu.fields import CLOCK_DOMAINS, FIELDS, MEMORY_V2, PERFORMANCE_STATE_UNKNOWN, TEMPERATURE_GPU
from solpi_exporter.gpu.fields import CLOCKS_EVENT_REASONS as REASONS
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.origins import Call, FieldValue
from solpi_exporter.gpu.reader import NO_INSTANCE, UTILIZATION_SAMPLES
from solpi_exporter.gpu.recording import Frame, Recording, key_of, load, recording_of
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.transfers import TRANSFERS
from tests.fakes import RECORDINGS
from tests.nvml_library import NvmlLibrary, install

GPU, OTHER = Device(0), Device(1)
REAL = RECORDINGS / "h200-nvml" / "recording.json"

CALLS = [field.origin for field in FIELDS if isinstance(field.origin, Call)]

# Two GPUs as an H200 answers, the first with a MIG instance in the second of its two places.
# What stands first is any number for each call of the table; most calls answer one, and the others follow.
FIRST: dict[str, Any] = {
    **{key_of(GPU, call.name, *call.args): 7 for call in CALLS},
    "- nvmlDeviceGetCount": 2,
    "- nvmlSystemGetDriverVersion": "580.95.05",
    "- nvmlSystemGetNVMLVersion": "13.580.95.05",
    "- nvmlSystemGetCudaDriverVersion": 13000,
    "0 nvmlDeviceGetUUID": "GPU-a",
    "0 nvmlDeviceGetName": "NVIDIA H200",
    "0 nvmlDeviceGetVbiosVersion": "96.00.A5.00.01",
    "0 nvmlDeviceGetPciInfo": {
        "busIdLegacy": "0000:00:06.0",
        "domain": 0,
        "bus": 0,
        "device": 6,
        "pciDeviceId": 0x233510DE,
        "pciSubSystemId": 0x18BE10DE,
        "busId": "00000000:00:06.0",
    },
    "0 nvmlDeviceGetUtilizationRates": {"gpu": 43, "memory": 10},
    f"0 nvmlDeviceGetMemoryInfo {MEMORY_V2}": {
        "version": MEMORY_V2,
        "total": 150754820096,
        "reserved": 638124032,
        "free": 150115713024,
        "used": 983040,
    },
    "0 nvmlDeviceGetPowerUsage": 80145,
    "0 nvmlDeviceGetTotalEnergyConsumption": 1 << 40,
    "0 nvmlDeviceGetClockInfo 0": 345,
    "0 nvmlDeviceGetClockInfo 2": 3201,
    "0 nvmlDeviceGetCurrentClocksEventReasons": 1,
    "0 nvmlDeviceGetComputeMode": 3,
    "0 nvmlDeviceGetMigMode": [0, 1],
    "0 nvmlDeviceGetEccMode": [1, 0],
    "0 nvmlDeviceGetTotalEccErrors 1 0": 3,
    "0 nvmlDeviceGetRemappedRows": [1, 2, 0, 1],
    "0 nvmlDeviceGetPcieReplayCounter": {"error": pynvml.NVML_ERROR_NO_PERMISSION},
    "0 nvmlDeviceGetComputeRunningProcesses": [
        {"pid": 4711, "usedGpuMemory": 520 << 20, "gpuInstanceId": NO_INSTANCE, "computeInstanceId": NO_INSTANCE},
        {"pid": 4712, "usedGpuMemory": None, "gpuInstanceId": 1, "computeInstanceId": 0},
    ],
    "0 nvmlDeviceGetMaxMigDeviceCount": 2,
    "0 field 186 0": 80500,
    f"0 field 138 {EVERY_LINK}": 1 << 33,
    "0 gpm 2": 12.5,
    "0 samples 1": [[1_000_000, 40], [1_200_000, 45]],
    "0/0 nvmlDeviceGetUUID": {"error": pynvml.NVML_ERROR_NOT_FOUND},
    "0/1 nvmlDeviceGetUUID": "MIG-a",
    "0/1 nvmlDeviceGetGpuInstanceId": 7,
    "1 nvmlDeviceGetUUID": "GPU-b",
    "1 nvmlDeviceGetComputeRunningProcesses": [],
    "1 samples 1": [],
}
SECOND = {"0 nvmlDeviceGetPowerUsage": 81000, "0 gpm 2": 50.0, "0 samples 1": [[1_400_000, 0]]}
FRAMES: list[Frame] = [(0.0, FIRST), (1.0, SECOND)]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    return install(monkeypatch, recording_of(FRAMES))


@pytest.fixture
def driver(library: NvmlLibrary) -> NvmlDriver:
    driver = NvmlDriver()
    driver.connect()
    return driver


@pytest.mark.parametrize("call", sorted({call.name for call in CALLS}))
def test_every_call_of_the_table_is_in_the_binding(call: str) -> None:
    """A misspelt call would be an unsupported quantity for ever."""
    assert callable(getattr(pynvml, call))


def test_the_table_writes_nvmls_numbers_right() -> None:
    """The numbers that the table spells out are those of the binding."""
    assert pynvml.nvmlMemory_v2 == MEMORY_V2
    assert pynvml.NVML_TEMPERATURE_GPU == TEMPERATURE_GPU
    assert pynvml.NVML_PSTATE_UNKNOWN == PERFORMANCE_STATE_UNKNOWN
    assert pynvml.NVML_GPU_UTILIZATION_SAMPLES == UTILIZATION_SAMPLES
    assert pynvml.NVML_GPU_INSTANCE_ID_ANY == NO_INSTANCE
    assert CLOCK_DOMAINS == {
        "graphics": pynvml.NVML_CLOCK_GRAPHICS,
        "sm": pynvml.NVML_CLOCK_SM,
        "memory": pynvml.NVML_CLOCK_MEM,
        "video": pynvml.NVML_CLOCK_VIDEO,
    }


@pytest.mark.parametrize(("bit", "reason"), REASONS.items(), ids=REASONS.values())
def test_the_table_names_the_bits_of_the_clocks_event_mask_as_the_binding_does(bit: int, reason: str) -> None:
    """The last two bits have kept their older name there."""
    name = "".join(word.capitalize() for word in reason.split("_"))

    assert getattr(pynvml, f"nvmlClocksEventReason{name}", getattr(pynvml, f"nvmlClocksThrottleReason{name}")) == bit


FIELD_NAMES = {
    74: "PERF_POLICY_POWER",
    76: "PERF_POLICY_SYNC_BOOST",
    82: "MEMORY_TEMP",
    138: "NVLINK_THROUGHPUT_DATA_TX",
    139: "NVLINK_THROUGHPUT_DATA_RX",
    186: "POWER_INSTANT",
    197: "PCIE_COUNT_TX_BYTES",
    198: "PCIE_COUNT_RX_BYTES",
    230: "GET_GPU_RECOVERY_ACTION",
    269: "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    270: "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    271: "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
}


@pytest.mark.parametrize(("number", "name"), FIELD_NAMES.items(), ids=FIELD_NAMES.values())
def test_field_values_have_nvmls_numbers(number: int, name: str) -> None:
    """A field's id is the one that the binding gives its name."""
    assert getattr(pynvml, f"NVML_FI_DEV_{name}") == number


def test_no_further_field_value_is_asked_for() -> None:
    """The ids whose names are pinned above are all that the tables have."""
    rows = {field.origin.id for field in FIELDS if isinstance(field.origin, FieldValue)}

    assert rows | {transfer.counter.id for transfer in TRANSFERS} == FIELD_NAMES.keys()


@pytest.mark.parametrize(
    ("call", "args", "answer"),
    [
        ("nvmlDeviceGetName", (), "NVIDIA H200"),
        ("nvmlDeviceGetPciInfo", (), FIRST["0 nvmlDeviceGetPciInfo"]),
        ("nvmlDeviceGetUtilizationRates", (), {"gpu": 43, "memory": 10}),
        ("nvmlDeviceGetMemoryInfo", (MEMORY_V2,), FIRST[f"0 nvmlDeviceGetMemoryInfo {MEMORY_V2}"]),
        ("nvmlDeviceGetTotalEnergyConsumption", (), 1 << 40),
        ("nvmlDeviceGetComputeMode", (), 3),
        ("nvmlDeviceGetMigMode", (), [0, 1]),
        ("nvmlDeviceGetEccMode", (), [1, 0]),
        ("nvmlDeviceGetRemappedRows", (), [1, 2, 0, 1]),
        ("nvmlDeviceGetComputeRunningProcesses", (), FIRST["0 nvmlDeviceGetComputeRunningProcesses"]),
    ],
)
def test_answers_become_plain(driver: NvmlDriver, call: str, args: tuple[int, ...], answer: object) -> None:
    """Structs, text, tuples and the binding's friendly objects become what a recording can hold."""
    told = driver.ask(GPU, call, *args)

    assert told == answer
    assert type(told) is type(answer)


def test_bytes_become_text_whatever_they_hold() -> None:
    """Releases before 12 return bytes, and a board's name need not be UTF-8."""
    assert nvml.plain([b"NVIDIA H200", (b"\xff",)]) == ["NVIDIA H200", ["\ufffd"]]


def test_no_processes_are_an_empty_list(driver: NvmlDriver) -> None:
    """That is known, and differs from what cannot be had."""
    assert driver.ask(OTHER, "nvmlDeviceGetComputeRunningProcesses") == []


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (pynvml.NVML_VALUE_TYPE_DOUBLE, 80.5),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 4_000_000_000),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, 1 << 40),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 1 << 63),
        (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, -(1 << 40)),
        (pynvml.NVML_VALUE_TYPE_SIGNED_INT, -5),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, 65535),
    ],
)
def test_a_field_value_is_read_as_its_own_type(
    driver: NvmlDriver, library: NvmlLibrary, value_type: int, value: float
) -> None:
    """Each element says which member of the union it has filled; the other bytes mean nothing."""
    library.value_types[186] = value_type
    library.answers["0 field 186 0"] = value

    assert driver.fields(GPU, [(186, 0)]) == {(186, 0): value}


def test_field_values_are_asked_in_one_call_and_fail_one_by_one(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """Each has a return code of its own; what has an error, or a type that is not known, is left out."""
    library.answers |= {"0 field 82 0": {"error": pynvml.NVML_ERROR_NO_PERMISSION}, "0 field 230 0": 1}
    library.value_types[230] = pynvml.NVML_VALUE_TYPE_COUNT

    wanted = [(186, 0), (82, 0), (230, 0), (138, EVERY_LINK), (138, 0)]
    assert driver.fields(GPU, wanted) == {(186, 0): 80500, (138, EVERY_LINK): 1 << 33}
    assert library.count("nvmlDeviceGetFieldValues") == 1


def test_of_a_sample_buffer_comes_what_is_new(driver: NvmlDriver, library: NvmlLibrary) -> None:
    """The time stamp of the newest entry is where the next read begins."""
    assert driver.samples(GPU, 1, 0) == [(1_000_000, 40), (1_200_000, 45)]
    library.now = 1.0
    assert driver.samples(GPU, 1, 1_200_000) == [(1_400_000, 0)]


def test_a_buffer_without_anything_new_is_empty(driver: NvmlDriver) -> None:
    """NVML says either that there are none, or, as an error, that none are found."""
    assert driver.samples(OTHER, 1, 0) == []
    assert driver.samples(GPU, 1, 1_200_000) == []


def test_a_buffer_that_a_gpu_lacks_is_unavailable(driver: NvmlDriver) -> None:
    """An empty list would claim an idle GPU."""
    with pytest.raises(Unavailable) as lacking:
        driver.samples(GPU, 5, 0)
    assert lacking.value.lasting


def parsed(key: str) -> tuple[Device | None, str, tuple[int, ...]]:
    place, what, *args = key.split()
    device = None if place == "-" else Device(*map(int, place.split("/")))
    return device, what, tuple(map(int, args))


def told(driver: NvmlDriver | ReplayDriver, device: Device | None, what: str, args: tuple[int, ...]) -> object:
    """Return what a driver says to a key, with errors as a recording writes them."""
    try:
        if device is None:
            return driver.query(what, *args)
        if what == "field":
            return driver.fields(device, [(args[0], args[1])])
        if what == "gpm":
            return driver.activity(device, args)
        return driver.samples(device, args[0], 0) if what == "samples" else driver.ask(device, what, *args)
    except (Unavailable, GpuLost) as error:
        return {"error": error.code, "lost": isinstance(error, GpuLost)}


@pytest.mark.parametrize("path", [None, REAL], ids=["written here", "of an H200"])
def test_a_recording_says_the_same_through_nvml_and_by_itself(
    monkeypatch: pytest.MonkeyPatch, path: Path | None
) -> None:
    """Every answer of every instant goes into the library's structs and comes out of the binding as it went in."""
    recording: Recording = recording_of(FRAMES) if path is None else load(path.read_text())
    library = install(monkeypatch, recording)
    driver, replay = NvmlDriver(), ReplayDriver(recording, lambda: library.now)
    driver.connect()

    times = sorted({time for track in recording.tracks.values() for time in track.times})
    for library.now in times:
        for device, what, args in map(parsed, recording.tracks):
            expected = told(replay, device, what, args)
            assert told(driver, device, what, args) == (pytest.approx(expected) if what == "gpm" else expected)
