"""A driver's answers on their way into a file, and out of it again."""

from typing import Any

import pytest

from solpi_exporter.gpu.driver import (
    GPU_IS_LOST,
    NO_DATA,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    Device,
    GpuLost,
    Unavailable,
    XidEvent,
)
from solpi_exporter.gpu.record import RecordingDriver
from solpi_exporter.gpu.recording import Frame, dump, load
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.source import GpuSource
from tests.fakes import FakeClock, FakeDriver

FIRST, SECOND = "GPU-4f1c8c2e-9d35-1b5e-a3a1-6ef3b1c7d201", "GPU-0a77b3d4-2c1e-77aa-90fe-33b0c5e8f102"
SLICE = "MIG-1b2c3d4e-5f60-5172-8394-a5b6c7d8e9f0"
GPU = Device(0)


@pytest.fixture
def answers() -> dict[str, Any]:
    return {
        "nvmlDeviceGetUUID": FIRST,
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUtilizationRates": {"gpu": 50, "memory": 10},
        "nvmlDeviceGetMemoryInfo": {"total": 4000, "used": 1000, "free": 2900, "reserved": 100},
        "nvmlDeviceGetTotalEnergyConsumption": 5000,
        "nvmlDeviceGetComputeRunningProcesses": [{"pid": 7, "usedGpuMemory": 5, "gpuInstanceId": 0xFFFFFFFF}],
        "field 186 0": 80_500,
        "gpm 1": 60.0,
        "gpm 20": 2.5,
        "samples 1": [(1_000_000, 50)],
    }


@pytest.fixture
def driver(answers: dict[str, Any]) -> FakeDriver:
    return FakeDriver([answers])


def test_every_answer_is_passed_on_and_noted(driver: FakeDriver) -> None:
    """Under its key, until it is taken as a frame."""
    recording = RecordingDriver(driver)

    assert recording.query("nvmlDeviceGetCount") == 1
    assert recording.ask(GPU, "nvmlDeviceGetMemoryInfo", 5)["used"] == 1000
    assert recording.fields(GPU, [(186, 0)]) == {(186, 0): 80_500}
    assert recording.samples(GPU, 1, 0) == [(1_000_000, 50)]
    assert recording.frame() == {
        "- nvmlDeviceGetCount": 1,
        "0 nvmlDeviceGetMemoryInfo 5": {"total": 4000, "used": 1000, "free": 2900, "reserved": 100},
        "0 field 186 0": 80_500,
        "0 samples 1": [(1_000_000, 50)],
    }
    assert recording.frame() == {}


def test_gpm_is_noted_from_its_first_call(driver: FakeDriver) -> None:
    """Which has no answer yet; then to a thousandth."""
    driver.gpus[0]["gpm 1"] = 60.123456
    recording = RecordingDriver(driver)

    assert recording.activity(GPU, [1]) == {}
    assert recording.frame() == {"0 gpm 1": {"error": NO_DATA}}
    assert recording.activity(GPU, [1]) == {1: 60.123456}
    assert recording.frame() == {"0 gpm 1": 60.123}


def test_what_is_missing_among_others_is_noted(driver: FakeDriver) -> None:
    """Else an earlier value would seem to hold."""
    recording = RecordingDriver(driver)
    recording.fields(GPU, [(186, 0), (82, 0)])

    assert recording.frame() == {"0 field 186 0": 80_500, "0 field 82 0": {"error": NOT_SUPPORTED}}


@pytest.mark.parametrize("error", [Unavailable("no", NO_PERMISSION), GpuLost("gone", GPU_IS_LOST)])
def test_an_error_is_passed_on_and_noted(
    driver: FakeDriver, answers: dict[str, Any], error: Unavailable | GpuLost
) -> None:
    """By its code, for every kind of question."""
    recording = RecordingDriver(driver)
    driver.system["nvmlSystemGetDriverVersion"] = error
    for key in ("nvmlDeviceGetName", "field 186 0", "gpm 1", "samples 1"):
        answers[key] = error
    for ask in (
        lambda: recording.query("nvmlSystemGetDriverVersion"),
        lambda: recording.ask(GPU, "nvmlDeviceGetName"),
        lambda: recording.fields(GPU, [(186, 0)]),
        lambda: recording.activity(GPU, [1]),
        lambda: recording.samples(GPU, 1, 0),
    ):
        with pytest.raises(type(error)):
            ask()

    noted = {"error": error.code}
    keys = ("- nvmlSystemGetDriverVersion", "0 nvmlDeviceGetName", "0 field 186 0", "0 gpm 1", "0 samples 1")
    assert recording.frame() == dict.fromkeys(keys, noted)


def test_every_uuid_is_masked_and_told_apart(driver: FakeDriver) -> None:
    """In texts, structs and lists, wherever it stands in them; the daemon itself gets the true one."""
    driver.gpus[0] |= {"struct": {"uuid": SECOND, "index": 1}, "list": [f"a {SLICE} b", 7, [FIRST]]}
    recording = RecordingDriver(driver)

    assert recording.ask(GPU, "nvmlDeviceGetUUID") == FIRST
    recording.ask(GPU, "struct")
    recording.ask(GPU, "list")
    recording.ask(GPU, "nvmlDeviceGetName")

    first, second = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
    assert recording.frame() == {
        "0 nvmlDeviceGetUUID": first,
        "0 struct": {"uuid": second, "index": 1},
        "0 list": ["a MIG-00000000-0000-0000-0000-000000000003 b", 7, [first]],
        "0 nvmlDeviceGetName": "NVIDIA H200",
    }
    assert recording.ask(GPU, "nvmlDeviceGetUUID") == FIRST
    assert recording.frame() == {"0 nvmlDeviceGetUUID": first}


@pytest.mark.parametrize("uuid", [FIRST, SLICE, f"MIG-{FIRST}/7/0", FIRST.upper()])
def test_every_form_of_a_uuid_is_masked(driver: FakeDriver, uuid: str) -> None:
    """Of GPUs and instances, also in the older form that names both."""
    driver.gpus[0]["nvmlDeviceGetUUID"] = uuid
    recording = RecordingDriver(driver)
    recording.ask(GPU, "nvmlDeviceGetUUID")

    (masked,) = recording.frame().values()
    assert masked.endswith("-00000000-0000-0000-0000-000000000001")


def test_the_rest_is_the_drivers(driver: FakeDriver) -> None:
    """Its epoch, its events, its beginning and its end."""
    event = XidEvent(0, FIRST, 79)
    driver.events.append(event)
    driver.epoch = 4
    recording = RecordingDriver(driver)
    recording.connect()

    assert recording.epoch == 4
    assert recording.wait_xid(1.0) == event
    assert recording.frame() == {}
    recording.close()
    assert driver.closed


Shown = dict[tuple[str, tuple[str, ...]], Any]


class Host:
    """Two GPUs, the first with a MIG instance, whose answers change from poll to poll; every error there is occurs."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.other = answers, {**answers, "nvmlDeviceGetUUID": SECOND}
        slice_ = {**answers, "nvmlDeviceGetUUID": SLICE, "nvmlDeviceGetGpuInstanceId": 7}
        answers["nvmlDeviceGetMaxMigDeviceCount"] = 2
        del self.other["samples 1"], self.other["gpm 20"]
        self.driver = FakeDriver([answers, self.other], {"nvmlSystemGetDriverVersion": "580"}, instances={0: [slice_]})

    def move_to(self, poll: int) -> None:
        stamp = 1_000_000 * (1 + 5 * poll)
        self.answers["samples 1"] = [(stamp + step * 1_000_000, (poll * 7 + step) % 101) for step in range(5)]
        self.answers["nvmlDeviceGetTotalEnergyConsumption"] = 5000 + poll * 100
        self.answers["field 186 0"] = 80_000 + poll
        self.answers["gpm 20"] = float(poll)
        self.answers["gpm 1"] = Unavailable("GPM", NO_PERMISSION) if 4 <= poll < 12 else 60.0 + poll % 2
        self.other["gpm 1"] = 30.0
        self.other["nvmlDeviceGetPowerUsage"] = Unavailable("power", UNKNOWN) if poll % 2 else 70_000
        self.other["nvmlDeviceGetUUID"] = GpuLost("gone") if 5 <= poll < 8 else SECOND
        self.other["field 186 0"] = GpuLost("gone, halfway") if poll == 10 else 90_000
        if poll == 14:
            self.other["nvmlDeviceGetUtilizationRates"] = {"gpu": 1, "memory": 1}


def polled(source: GpuSource) -> Shown:
    return {(one.metric.name, one.labels): one.value for reading in source.poll() for one in reading.samples()}


def test_a_recording_played_back_gives_the_same_readings(answers: dict[str, Any]) -> None:
    """Every sample of every poll, through the file, with nothing but the UUIDs changed."""
    host, clock = Host(answers), FakeClock()
    recording = RecordingDriver(host.driver)
    source = GpuSource(recording, clock, 5.0, 10.0)
    seen: list[Shown] = []
    frames: list[Frame] = []
    for poll in range(30):
        host.move_to(poll)
        seen.append(polled(source))
        frames.append((clock.now, recording.frame()))
        clock.now += 5.0
    text = dump(frames)

    again = FakeClock()
    player = GpuSource(ReplayDriver(load(text), again.monotonic), again, 5.0, 10.0)
    names = {FIRST: frames[0][1]["0 nvmlDeviceGetUUID"], SECOND: frames[0][1]["1 nvmlDeviceGetUUID"]}
    names[SLICE] = frames[0][1]["0/0 nvmlDeviceGetUUID"]
    for shown in seen:
        masked = {
            (name, tuple(names.get(label, label) for label in labels)): value for (name, labels), value in shown.items()
        }
        assert polled(player) == masked
        again.now += 5.0

    assert not any(uuid[4:] in text for uuid in names)
    assert ("solpi_gpu_up", ("1", SECOND, "")) in seen[6]
    assert len(set(names.values())) == 3
