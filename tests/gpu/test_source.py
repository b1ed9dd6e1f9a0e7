"""Every GPU on each poll."""

from typing import Any

import pytest

from solpi_exporter.gpu.driver import DriverAbsent, DriverFailed, GpuLost, Unavailable
from solpi_exporter.gpu.source import BUSY, METRICS, GpuReading, GpuSource, NvmlReading
from tests.fakes import FakeClock, FakeDriver, values


def gpu(uuid: str, busy: int = 50) -> dict[str, Any]:
    return {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetPciInfo": {"busId": "00000000:00:06.0"},
        "nvmlDeviceGetUtilizationRates": {"gpu": busy, "memory": 10},
        "nvmlDeviceGetPowerUsage": 700_500,
    }


def source_of(driver: FakeDriver, clock: FakeClock | None = None) -> GpuSource:
    return GpuSource(driver, clock or FakeClock(), interval=5.0, timeout=10.0)


def gpus(source: GpuSource) -> list[GpuReading]:
    return [reading for reading in source.poll() if isinstance(reading, GpuReading)]


def samples(source: GpuSource) -> dict[str, dict[tuple[str, ...], Any]]:
    return values([sample for reading in source.poll() for sample in reading.samples()])


class Card:
    """One fully busy GPU, polled when a test says so."""

    def __init__(self) -> None:
        self.answers = gpu("GPU-a", busy=100)
        self.clock = FakeClock()
        self.source = source_of(FakeDriver([self.answers]), self.clock)

    def poll(self, *, after: float = 0.0) -> GpuReading:
        self.clock.now += after
        return gpus(self.source)[0]


@pytest.fixture
def card() -> Card:
    return Card()


def test_values_are_in_base_units_under_index_and_uuid() -> None:
    """Percent becomes a ratio and milliwatts watts; the labels are NVML's index and the UUID."""
    shown = samples(source_of(FakeDriver([gpu("GPU-a", busy=43)])))

    assert shown["solpi_gpu_utilization_ratio"] == {("0", "GPU-a"): 0.43}
    assert shown["solpi_gpu_power_watts"] == {("0", "GPU-a"): 700.5}
    assert shown["solpi_gpu_info"] == {("0", "GPU-a", "NVIDIA H200", "00000000:00:06.0", ""): 1.0}
    assert shown["solpi_gpu_up"] == {("0", "GPU-a"): 1.0}


def test_what_a_gpu_does_not_support_is_absent() -> None:
    """No zero stands for a quantity that was not measured."""
    shown = samples(source_of(FakeDriver([gpu("GPU-a")])))

    assert "solpi_gpu_energy_joules_total" not in shown
    assert "solpi_gpu_ecc_enabled" not in shown


def test_everything_it_yields_is_in_its_table_of_metrics() -> None:
    """The reference is complete."""
    source = source_of(FakeDriver([gpu("GPU-a")], {"nvmlSystemGetCudaDriverVersion": 12080}))

    yielded = {sample.metric for reading in source.poll() for sample in reading.samples()}

    assert yielded <= set(METRICS)


def test_each_call_is_made_once_a_poll() -> None:
    """Two rows from one call cost one call."""
    driver = FakeDriver([gpu("GPU-a")])

    source_of(driver).poll()

    assert driver.calls.count((0, "nvmlDeviceGetUtilizationRates")) == 1


@pytest.mark.parametrize("call", ["nvmlDeviceGetUUID", "nvmlDeviceGetPowerUsage"])
def test_a_lost_gpu_leaves_the_others_alone(call: str) -> None:
    """Its readings go and it is down; its neighbour is as complete as before."""
    lost, well = gpu("GPU-a"), gpu("GPU-b")
    source = source_of(FakeDriver([lost, well]))
    source.poll()

    lost[call] = GpuLost("fell off the bus")
    shown = samples(source)

    assert shown["solpi_gpu_up"] == {("0", "GPU-a"): 0.0, ("1", "GPU-b"): 1.0}
    assert shown["solpi_gpu_utilization_ratio"] == {("1", "GPU-b"): 0.5}


def test_a_gpu_that_never_gave_its_uuid_is_not_named() -> None:
    """Without a UUID there is no series to show; the count of GPUs still tells of it."""
    shown = samples(source_of(FakeDriver([{"nvmlDeviceGetUUID": Unavailable("no permission")}, gpu("GPU-b")])))

    assert shown["solpi_gpu_up"] == {("1", "GPU-b"): 1.0}
    assert shown["solpi_gpus_present"] == {(): 2.0}


def test_busy_seconds_integrate_utilisation() -> None:
    """By the trapezoid rule over the true distance of polls: 0 to 100 % in 4 s is 2 s, 100 % for 5 s is 5 s."""
    clock, card = FakeClock(), gpu("GPU-a", busy=0)
    source = source_of(FakeDriver([card]), clock)
    assert gpus(source)[0].busy_seconds == 0.0

    card["nvmlDeviceGetUtilizationRates"] = {"gpu": 100, "memory": 0}
    clock.now += 4.0
    assert gpus(source)[0].busy_seconds == 2.0

    clock.now += 5.0
    assert gpus(source)[0].busy_seconds == 7.0


def test_a_gap_counts_as_nothing(card: Card) -> None:
    """What a lost GPU did meanwhile is not known: the counter holds, goes on, and says that it left something out."""
    card.poll()
    card.poll(after=5.0)
    card.answers["nvmlDeviceGetUUID"] = GpuLost("gone")
    assert card.poll(after=5.0).busy_seconds == 5.0

    card.answers["nvmlDeviceGetUUID"] = "GPU-a"
    assert card.poll(after=5.0).busy_seconds == 5.0
    reading = card.poll(after=5.0)

    assert reading.busy_seconds == 10.0
    assert reading.gaps == 2


def test_a_poll_that_hung_is_a_gap(card: Card) -> None:
    """Ten minutes in which nobody looked are not ten minutes of load."""
    card.poll()
    card.poll(after=5.0)

    reading = card.poll(after=600.0)

    assert (reading.busy_seconds, reading.gaps) == (5.0, 1)


def test_slow_polls_at_short_intervals_are_no_gaps() -> None:
    """A driver that takes 0.4 s at an interval of 0.1 s has looked all the time."""
    clock = FakeClock()
    source = GpuSource(FakeDriver([gpu("GPU-a", busy=100)]), clock, interval=0.1, timeout=10.0)
    for _ in range(11):
        (reading,) = gpus(source)
        clock.now += 0.4

    assert reading.busy_seconds == pytest.approx(4.0)


def test_without_utilisation_there_are_no_busy_seconds(card: Card) -> None:
    """A GPU under MIG gives none: 0 s would read as idle, and as a token that is lost altogether."""
    del card.answers["nvmlDeviceGetUtilizationRates"]
    card.poll()

    reading = card.poll(after=5.0)

    assert reading.busy_seconds is None
    assert BUSY not in {sample.metric for sample in reading.samples()}


def test_busy_seconds_follow_the_uuid_not_the_index() -> None:
    """Indices may change over a reset; a counter belongs to its GPU."""
    clock = FakeClock()
    driver = FakeDriver([gpu("GPU-a", busy=100), gpu("GPU-b", busy=0)])
    source = source_of(driver, clock)
    source.poll()
    clock.now += 5.0
    source.poll()

    driver.gpus.reverse()
    clock.now += 5.0

    assert {reading.uuid: reading.busy_seconds for reading in gpus(source)} == {"GPU-a": 10.0, "GPU-b": 0.0}


def test_no_driver_at_first_and_one_later() -> None:
    """The source is absent, is asked again at the next poll, and works once the driver is there."""
    source = source_of(FakeDriver([gpu("GPU-a")], connects=[DriverAbsent("no driver"), None]))

    with pytest.raises(DriverAbsent):
        source.poll()

    assert len(gpus(source)) == 1


def test_a_gpu_that_leaves_the_list_is_told_as_lost() -> None:
    """NVML counts one GPU less; the one that is missing is down, under its UUID, whatever index it had."""
    driver = FakeDriver([gpu("GPU-a"), gpu("GPU-b")])
    source = source_of(driver)
    source.poll()

    del driver.gpus[0]
    shown = samples(source)

    assert shown["solpi_gpu_up"] == {("0", "GPU-b"): 1.0, ("0", "GPU-a"): 0.0}
    assert shown["solpi_gpus_present"] == {(): 1.0}


def test_a_driver_that_fails_is_connected_anew() -> None:
    """After a driver-wide failure it is let go of, and the next poll begins with the connection."""
    card = gpu("GPU-a")
    driver = FakeDriver([card], connects=[None, DriverFailed("mismatch")])
    source = source_of(driver)
    source.poll()

    driver.system["nvmlDeviceGetCount"] = DriverFailed("uninitialised")
    with pytest.raises(DriverFailed, match="uninitialised"):
        source.poll()
    assert driver.closed
    with pytest.raises(DriverFailed, match="mismatch"):
        source.poll()


def test_a_driver_that_cannot_count_has_failed() -> None:
    """It does not have zero GPUs."""
    driver = FakeDriver([], {"nvmlDeviceGetCount": Unavailable("unknown error")})

    with pytest.raises(DriverFailed, match="how many GPUs"):
        source_of(driver).poll()


@pytest.mark.parametrize(("nvml", "version"), [(13000, 13.0), (12080, 12.8), (12040, 12.4)])
def test_cuda_version_is_a_number_to_compare(nvml: int, version: float) -> None:
    """NVML's 12080 is CUDA 12.8."""
    reading = source_of(FakeDriver([], {"nvmlSystemGetCudaDriverVersion": nvml})).poll()[0]

    assert isinstance(reading, NvmlReading)
    assert reading.cuda_version == version


def test_closing_lets_go_of_the_driver() -> None:
    """Only of one that it had."""
    driver = FakeDriver([])
    source_of(driver).close()
    assert not driver.closed

    source = source_of(driver)
    source.poll()
    source.close()
    assert driver.closed
