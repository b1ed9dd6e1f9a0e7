"""All GPUs on each poll: what fails or hangs takes nothing else along, and its state says why."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from solpi_exporter.gpu.driver import (
    NO_PERMISSION,
    RESET_REQUIRED,
    UNKNOWN,
    VERSION_MISMATCH,
    BadHandle,
    DriverAbsent,
    DriverFailed,
    GpuLost,
    Unavailable,
)
from solpi_exporter.gpu.mig import LIST_SECONDS
from solpi_exporter.gpu.reading import ExpectedGpus, GpuReading, GpuState, NvmlReading
from solpi_exporter.gpu.reference import METRICS
from solpi_exporter.gpu.remembered import RememberedGpus
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.source import NeedsRestart, SourceError
from tests.fakes import FakeClock, FakeDriver, values

PATIENCE = 0.2  # seconds of real time for a call that hangs


def card(uuid: str, busy: int = 50) -> dict[str, Any]:
    return {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetPciInfo": {"busId": "00000000:00:06.0"},
        "nvmlDeviceGetUtilizationRates": {"gpu": busy, "memory": 10},
        "nvmlDeviceGetPowerUsage": 700_500,
        "nvmlDeviceGetTotalEnergyConsumption": 5_000,
    }


class Host:
    """Some GPUs, polled when a test says so, and what was reported of them."""

    def __init__(self, *cards: dict[str, Any], remembered: RememberedGpus | None = None) -> None:
        self.driver = FakeDriver(list(cards))
        self.clock = FakeClock()
        self.told: list[tuple[int, str, str]] = []
        self.healed = False
        self.looks = 0
        self.source = GpuSource(self.driver, self.clock, 5.0, PATIENCE, remembered, self._heals, self._report)

    def poll(self, *, after: float = 5.0) -> list[Any]:
        self.clock.now += after
        return self.source.poll()

    def states(self) -> dict[str, GpuState]:
        return {one.uuid: one.state for one in self.poll() if isinstance(one, GpuReading)}

    def shown(self) -> dict[str, dict[tuple[str, ...], Any]]:
        return values([sample for reading in self.poll() for sample in reading.samples()])

    def failure(self) -> SourceError:
        with pytest.raises(SourceError) as raised:
            self.poll()
        return raised.value

    def _heals(self) -> bool:
        self.looks += 1
        return self.healed

    def _report(self, reading: GpuReading, reason: str) -> None:
        self.told.append((reading.index, reading.state.value, reason))


def states_of(error: SourceError) -> dict[str, GpuState]:
    return {one.uuid: one.state for one in error.readings if isinstance(one, GpuReading)}


@pytest.fixture
def hang() -> Iterator[Callable[[], None]]:
    """Return a call that does not come back before the test is over."""
    over = threading.Event()

    def wait() -> None:
        over.wait(30.0)

    yield wait
    over.set()


def test_values_are_in_base_units_under_index_and_uuid() -> None:
    """Percent becomes a ratio and milliwatts watts; the labels are NVML's index and the UUID."""
    shown = Host(card("GPU-a", busy=43)).shown()

    on = ("0", "GPU-a", "")
    assert shown["solpi_gpu_utilization_ratio"] == {on: 0.43}
    assert shown["solpi_gpu_power_watts"] == {on: 700.5}
    assert shown["solpi_gpu_info"] == {(*on, "NVIDIA H200", "00000000:00:06.0", ""): 1.0}
    assert shown["solpi_gpu_up"] == {on: 1.0}


def test_everything_it_yields_is_in_its_table_of_metrics() -> None:
    """The reference is complete."""
    host = Host(card("GPU-a"))
    host.driver.system["nvmlSystemGetCudaDriverVersion"] = 12080

    assert set(host.shown()) <= {metric.name for metric in METRICS}


@pytest.mark.parametrize("call", ["nvmlDeviceGetUUID", "nvmlDeviceGetPowerUsage"])
@pytest.mark.parametrize(
    ("code", "state"), [(15, GpuState.LOST), (28, GpuState.LOST), (RESET_REQUIRED, GpuState.RESET_REQUIRED)]
)
def test_a_lost_gpu_leaves_the_others_alone(call: str, code: int, state: GpuState) -> None:
    """Its readings go and its state says why; its neighbour is as complete as before."""
    lost, well = card("GPU-a"), card("GPU-b")
    host = Host(lost, well)
    host.poll()

    lost[call] = GpuLost("fell off the bus", code)
    shown = host.shown()

    a, b = ("0", "GPU-a", ""), ("1", "GPU-b", "")
    assert shown["solpi_gpu_up"] == {a: 0.0, b: 1.0}
    assert shown["solpi_gpu_utilization_ratio"] == {b: 0.5}
    assert shown["solpi_gpu_state"][(*a, state.value)] == 1.0
    assert shown["solpi_gpu_state"][(*a, "ok")] == 0.0
    assert host.told == [(0, state.value, "fell off the bus")]


def test_a_lost_gpu_comes_back_after_a_reset() -> None:
    """It is asked everything anew, its totals go on, and both changes are told once."""
    host = Host(card("GPU-a", busy=100))
    host.poll()
    before = host.shown()["solpi_gpu_busy_seconds_total"][("0", "GPU-a", "")]
    host.driver.gpus[0]["nvmlDeviceGetUUID"] = GpuLost("gone")
    for _ in range(3):
        assert host.shown()["solpi_gpu_busy_seconds_total"] == {("0", "GPU-a", ""): before}

    host.driver.gpus[0]["nvmlDeviceGetUUID"] = "GPU-a"
    shown = host.shown()

    assert shown["solpi_gpu_busy_seconds_total"][("0", "GPU-a", "")] >= before
    assert shown["solpi_gpu_energy_joules_total"] == {("0", "GPU-a", ""): 5.0}
    assert [state for _, state, _ in host.told] == ["lost", "ok"]


def test_a_handle_of_before_a_hot_reset_costs_no_poll() -> None:
    """The refused handle is dropped by the driver, and the GPU asked again at once."""
    refusals: list[Exception | str] = [BadHandle("invalid argument", 2), "GPU-a"]
    host = Host(card("GPU-a"))
    host.poll()

    def uuid() -> Any:
        return refusals.pop(0) if len(refusals) > 1 else refusals[0]

    host.driver.gpus[0]["nvmlDeviceGetUUID"] = uuid

    assert host.states() == {"GPU-a": GpuState.OK}


def test_a_call_that_never_returns_costs_only_its_gpu(hang: Callable[[], None]) -> None:
    """The GPU is hung; the others are read in every poll, and only the first one waits for it."""
    host = Host(card("GPU-a"), card("GPU-b"), card("GPU-c"))
    host.poll()
    host.driver.gpus[1]["nvmlDeviceGetPowerUsage"] = hang

    expected = {"GPU-a": GpuState.OK, "GPU-b": GpuState.HUNG, "GPU-c": GpuState.OK}
    assert host.states() == expected
    calls = len(host.driver.calls)
    assert host.states() == expected
    assert (1, "nvmlDeviceGetUUID") not in host.driver.calls[calls:]


def test_a_call_that_comes_back_after_all_ends_the_hang() -> None:
    """The GPU is read again by the first poll after its call has returned."""
    over, back = threading.Event(), threading.Event()

    def late() -> int:
        over.wait(30.0)
        back.set()
        return 700_500

    host = Host(card("GPU-a"))
    host.poll()
    host.driver.gpus[0]["nvmlDeviceGetPowerUsage"] = late
    assert host.states() == {"GPU-a": GpuState.HUNG}

    over.set()
    assert back.wait(10.0)
    host.driver.gpus[0]["nvmlDeviceGetPowerUsage"] = 700_500
    pause = threading.Event()
    assert any(host.states() == {"GPU-a": GpuState.OK} or pause.wait(0.05) for _ in range(100))


def test_many_hung_gpus_cost_one_patience(hang: Callable[[], None]) -> None:
    """What the first one uses up is not waited for again by each of the others."""
    host = Host(*(card(f"GPU-{index}") for index in range(4)))
    host.poll()
    for one in host.driver.gpus[:3]:
        one["nvmlDeviceGetUUID"] = hang

    hung = {"GPU-0": GpuState.HUNG, "GPU-1": GpuState.HUNG, "GPU-2": GpuState.HUNG}
    assert host.states() == {**hung, "GPU-3": GpuState.OK}


def test_a_driver_that_hangs_is_told_as_such(hang: Callable[[], None]) -> None:
    """The source fails in time, every known GPU is hung, and the next poll does not wait again."""
    host = Host(card("GPU-a"))
    host.poll()
    host.driver.system["nvmlDeviceGetCount"] = hang

    for _ in range(2):
        failure = host.failure()
        assert "does not answer" in str(failure)
        assert states_of(failure) == {"GPU-a": GpuState.HUNG}


def test_a_driver_in_which_a_call_hangs_is_not_closed(hang: Callable[[], None]) -> None:
    """Shutting NVML down under a call in flight crashes the process."""
    host = Host(card("GPU-a"))
    host.poll()
    host.driver.gpus[0]["nvmlDeviceGetUUID"] = hang
    host.poll()

    host.source.close()

    assert not host.driver.closed


def test_no_driver_at_first_and_one_later() -> None:
    """The source is absent, is asked again at the next poll, and works once the driver is there."""
    host = Host(card("GPU-a"))
    host.driver.connects = [DriverAbsent("no driver"), DriverAbsent("no driver"), None]

    for _ in range(2):
        assert isinstance(host.failure(), DriverAbsent)

    assert host.states() == {"GPU-a": GpuState.OK}


def test_a_host_that_had_gpus_and_has_no_driver_has_failed() -> None:
    """What a state directory remembers makes the difference between absent and down."""
    remembered = RememberedGpus()
    remembered.note(1, {"GPU-a": 0})
    host = Host(remembered=remembered)
    host.driver.connects = [DriverAbsent("no driver")]

    failure = host.failure()

    assert isinstance(failure, DriverFailed)
    assert states_of(failure) == {"GPU-a": GpuState.DRIVER_ABSENT}
    assert ExpectedGpus(1) in failure.readings


def test_a_driver_that_fails_is_connected_anew() -> None:
    """After a driver-wide failure it is let go of, and the next poll begins with the connection."""
    host = Host(card("GPU-a"))
    host.driver.connects = [None, DriverFailed("not yet")]
    host.poll()

    host.driver.system["nvmlDeviceGetCount"] = DriverFailed("uninitialised", 1)
    assert states_of(host.failure()) == {"GPU-a": GpuState.LOST}
    assert host.driver.closed
    assert "not yet" in str(host.failure())


def test_a_mismatch_of_library_and_driver_is_told_and_waited_out() -> None:
    """While it lasts every GPU says so; a look whether a new process would do is taken once a minute."""
    host = Host(card("GPU-a"))
    host.poll()
    host.driver.system["nvmlDeviceGetCount"] = DriverFailed("mismatch", VERSION_MISMATCH)

    for _ in range(12):
        failure = host.failure()
        assert isinstance(failure, DriverFailed)
        assert states_of(failure) == {"GPU-a": GpuState.DRIVER_MISMATCH}

    assert host.looks == 1


def test_a_mismatch_that_is_over_needs_a_new_process() -> None:
    """A library that is mapped is never unloaded, so this one would go on failing."""
    host = Host(card("GPU-a"))
    host.driver.connects = [DriverFailed("mismatch", VERSION_MISMATCH)] * 20
    host.healed = True

    assert isinstance(host.failure(), DriverFailed)  # which is told before anybody looks, as that may take long
    assert isinstance(host.failure(), NeedsRestart)


def test_a_gpu_that_may_not_be_opened_has_a_state_under_its_index() -> None:
    """It never told its UUID; the others are read, and the count tells of it."""
    host = Host({"nvmlDeviceGetUUID": Unavailable("no permission", NO_PERMISSION)}, card("GPU-b"))

    shown = host.shown()

    assert shown["solpi_gpu_state"][("0", "", "", "no_permission")] == 1.0
    assert shown["solpi_gpu_up"] == {("1", "GPU-b", ""): 1.0, ("0", "", ""): 0.0}
    assert shown["solpi_gpus_present"] == {(): 2.0}


def test_a_gpu_of_which_every_call_is_refused_is_lost() -> None:
    """As after a reload of systemd in a container: it keeps its UUID and tells nothing else."""
    host = Host(card("GPU-a"))
    host.poll()
    for call in host.driver.gpus[0]:
        if call != "nvmlDeviceGetUUID":
            host.driver.gpus[0][call] = Unavailable("unknown error", UNKNOWN)

    assert host.states() == {"GPU-a": GpuState.LOST}
    assert "container" in host.told[0][2]


def test_no_gpus_is_a_reading() -> None:
    """A driver without GPUs is well, and says so."""
    readings = Host().poll()

    assert [type(one) for one in readings] == [NvmlReading]
    assert readings[0].present == 0


def test_a_driver_that_cannot_count_has_failed() -> None:
    """It does not have zero GPUs."""
    host = Host()
    host.driver.system["nvmlDeviceGetCount"] = Unavailable("unknown error", UNKNOWN)

    assert "how many GPUs" in str(host.failure())


def test_a_gpu_that_leaves_the_list_is_told_as_lost() -> None:
    """NVML counts one GPU less; the one that is missing is down under its UUID, and one more is expected."""
    host = Host(card("GPU-a"), card("GPU-b"))
    host.poll()

    del host.driver.gpus[0]
    shown = host.shown()

    assert shown["solpi_gpu_up"] == {("0", "GPU-b", ""): 1.0, ("0", "GPU-a", ""): 0.0}
    assert (shown["solpi_gpus_present"], shown["solpi_gpus_expected"]) == ({(): 1.0}, {(): 2.0})


def test_totals_follow_the_uuid_not_the_index() -> None:
    """Indices may change over a reset; a counter belongs to its GPU."""
    host = Host(card("GPU-a", busy=100), card("GPU-b", busy=0))
    host.poll()
    host.poll()

    host.driver.gpus.reverse()
    busy = {one.uuid: one.busy.seconds for one in host.poll() if isinstance(one, GpuReading) and one.busy}

    assert busy == {"GPU-a": 10.0, "GPU-b": 0.0}


def instance(number: int) -> dict[str, Any]:
    return {
        "nvmlDeviceGetUUID": f"MIG-{number}",
        "nvmlDeviceGetGpuInstanceId": number,
        "nvmlDeviceGetName": "NVIDIA H200 MIG 1g.18gb",
        "nvmlDeviceGetMemoryInfo": {"total": 18e9, "used": 1e9, "free": 17e9, "reserved": 0},
        "gpm 1": 40.0,
    }


def test_mig_instances_are_devices_of_their_own() -> None:
    """Each has its UUID and gpu_instance; the GPU's power stands once; what MIG does not support is absent."""
    host = Host(card("GPU-a") | {"nvmlDeviceGetMaxMigDeviceCount": 7})
    del host.driver.gpus[0]["nvmlDeviceGetUtilizationRates"]
    host.driver.instances[0] = [instance(1), instance(2)]
    host.poll()

    shown = host.shown()

    assert set(shown["solpi_gpu_memory_used_bytes"]) == {("0", "MIG-1", "1"), ("0", "MIG-2", "2")}
    assert set(shown["solpi_gpu_power_watts"]) == {("0", "GPU-a", "")}
    assert shown["solpi_gpu_graphics_active_ratio"] == {("0", "MIG-1", "1"): 0.4, ("0", "MIG-2", "2"): 0.4}
    assert set(shown["solpi_gpu_busy_seconds_total"]) == {("0", "MIG-1", "1"), ("0", "MIG-2", "2")}
    assert "solpi_gpu_utilization_ratio" not in shown


def test_mig_that_is_switched_off_leaves_the_gpu() -> None:
    """Its instances go with the first poll that misses them, and the GPU is read as before."""
    host = Host(card("GPU-a") | {"nvmlDeviceGetMaxMigDeviceCount": 7})
    host.driver.instances[0] = [instance(1)]
    assert set(host.states()) == {"GPU-a", "MIG-1"}

    host.driver.instances.clear()

    assert host.states() == {"GPU-a": GpuState.OK}
    assert host.told == []


def test_new_mig_instances_are_found_within_a_minute() -> None:
    """They are not listed in every poll: that stalls hosts which have many."""
    host = Host(card("GPU-a") | {"nvmlDeviceGetMaxMigDeviceCount": 7})
    host.poll()
    host.driver.instances[0] = [instance(1)]

    assert set(host.states()) == {"GPU-a"}
    host.clock.now += LIST_SECONDS
    assert set(host.states()) == {"GPU-a", "MIG-1"}


@pytest.mark.parametrize(("nvml", "version"), [(13000, 13.0), (12080, 12.8), (12040, 12.4)])
def test_cuda_version_is_a_number_to_compare(nvml: int, version: float) -> None:
    """NVML's 12080 is CUDA 12.8."""
    host = Host()
    host.driver.system["nvmlSystemGetCudaDriverVersion"] = nvml

    assert host.poll()[0].cuda_version == version


def test_closing_lets_go_of_the_driver() -> None:
    """Only of one that it had."""
    host = Host()
    host.source.close()
    assert not host.driver.closed

    host = Host()
    host.poll()
    host.source.close()
    assert host.driver.closed
