"""One GPU or MIG instance: what is due, what is kept, and the totals."""

from typing import Any

import pytest

from solpi_exporter.gpu.driver import NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, Device, GpuLost, Unavailable
from solpi_exporter.gpu.reader import Reader
from solpi_exporter.gpu.reading import GpuProcess, GpuReading
from tests.fakes import FakeClock, FakeDriver, values

UUID = "GPU-a"
ON = ("0", UUID, "")
WHOLE_GPU = Device(0)
NO_INSTANCE = 0xFFFFFFFF


def h200() -> dict[str, Any]:
    return {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetPciInfo": {"busId": "00000000:00:06.0"},
        "nvmlDeviceGetVbiosVersion": "96.00",
        "nvmlDeviceGetUtilizationRates": {"gpu": 43, "memory": 10},
        "nvmlDeviceGetMemoryInfo": {"total": 4000, "used": 1000, "free": 2900, "reserved": 100},
        "nvmlDeviceGetTotalEnergyConsumption": 5000,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "field 186 0": 80_500,
    }


class Card:
    """One device, read when a test says so."""

    def __init__(self, answers: dict[str, Any], device: Device = WHOLE_GPU, interval: float = 5.0) -> None:
        self.answers, self.device, self.clock = answers, device, FakeClock()
        self.driver = FakeDriver([answers, answers])
        if device.instance is not None:
            self.driver = FakeDriver([h200()], instances={0: [{}, answers]})
        self.reader = Reader(self.driver, self.clock, UUID, interval, max(15.0, 3 * interval))

    def read(self, *, after: float = 0.0) -> GpuReading:
        self.clock.now += after
        self.driver.calls.clear()
        return self.reader.read(self.device)

    def shown(self, *, after: float = 0.0) -> dict[str, dict[tuple[str, ...], Any]]:
        return values(list(self.read(after=after).samples()))

    def asked(self, call: str) -> bool:
        return any(call == one for _, one in self.driver.calls)


@pytest.fixture
def card() -> Card:
    return Card(h200())


def test_rows_are_in_base_units_under_index_and_uuid(card: Card) -> None:
    """Calls and field values alike; a whole GPU has an empty instance."""
    shown = card.shown()

    assert shown["solpi_gpu_utilization_ratio"] == {ON: 0.43}
    assert shown["solpi_gpu_power_instant_watts"] == {ON: 80.5}
    assert shown["solpi_gpu_info"] == {(*ON, "NVIDIA H200", "00000000:00:06.0", "96.00"): 1.0}


def test_each_tier_is_asked_on_its_period(card: Card) -> None:
    """Every poll, every 15 s, every minute, once; and everything is shown at every poll."""
    asked: dict[str, list[int]] = {}
    for second in range(0, 125, 5):
        shown = card.shown(after=5.0)
        assert shown["solpi_gpu_energy_joules_total"] == {ON: 5.0}
        assert shown["solpi_gpu_power_limit_watts"] == {ON: 700.0}
        assert shown["solpi_gpu_pcie_link_max_width"] == {ON: 16.0}
        for _, call in card.driver.calls:
            asked.setdefault(call, []).append(second)

    assert asked["nvmlDeviceGetUtilizationRates"] == list(range(0, 125, 5))
    assert asked["nvmlDeviceGetTotalEnergyConsumption"] == list(range(0, 125, 15))
    assert asked["nvmlDeviceGetEnforcedPowerLimit"] == [0, 60, 120]
    assert asked["nvmlDeviceGetMaxPcieLinkWidth"] == [0]


def test_a_poll_that_comes_a_little_early_asks_what_is_due(card: Card) -> None:
    """Milliseconds do not make 15 s into 20; nor the 10 s of the sample buffer into 15."""
    card.answers["samples 1"] = []
    card.read()
    card.read(after=5.0)
    card.read(after=4.99)
    assert card.asked("nvmlDeviceGetSamples")
    card.read(after=5.0)

    assert card.asked("nvmlDeviceGetTotalEnergyConsumption")


def test_a_kept_row_is_the_last_answer(card: Card) -> None:
    """It changes when it is asked, and is withdrawn when it is not answered then."""
    card.read()
    card.answers["nvmlDeviceGetTotalEnergyConsumption"] = 9000
    assert card.shown(after=5.0)["solpi_gpu_energy_joules_total"] == {ON: 5.0}
    assert card.shown(after=10.0)["solpi_gpu_energy_joules_total"] == {ON: 9.0}
    card.answers["nvmlDeviceGetTotalEnergyConsumption"] = Unavailable("energy", UNKNOWN)

    assert "solpi_gpu_energy_joules_total" not in card.shown(after=15.0)


def test_a_gpu_that_came_back_is_asked_everything_again(card: Card) -> None:
    """Also what it had refused for good, and what is asked once; its counters have begun anew, not wrapped."""
    limit = card.answers.pop("nvmlDeviceGetEnforcedPowerLimit")
    card.answers["field 197 0"] = 1000
    card.read()
    card.read(after=5.0)
    card.answers |= {"nvmlDeviceGetEnforcedPowerLimit": limit, "nvmlDeviceGetMaxPcieLinkWidth": 8, "field 197 0": 7}
    card.reader.attach()
    card.read(after=5.0)

    shown = card.shown(after=5.0)

    assert shown["solpi_gpu_power_limit_watts"] == {ON: 700.0}
    assert shown["solpi_gpu_pcie_link_max_width"] == {ON: 8.0}
    assert shown["solpi_gpu_pcie_transmit_bytes_total"] == {ON: 0.0}


def test_what_a_gpu_does_not_support_is_absent(card: Card) -> None:
    """No zero stands for it, at no poll, and it is asked for once."""
    for second in range(0, 180, 5):
        shown = card.shown(after=5.0)
        assert "solpi_gpu_ecc_enabled" not in shown
        assert "solpi_gpu_temperature_celsius" not in shown
        assert "solpi_gpu_processes" not in shown
        assert card.asked("nvmlDeviceGetComputeRunningProcesses") == (second == 0)
        assert card.asked("nvmlDeviceGetEccMode") == (second == 0)


def test_a_number_that_is_no_measurement_is_absent(card: Card) -> None:
    """More than all, and NVML's sentinels; neither is clamped."""
    card.answers["nvmlDeviceGetUtilizationRates"] = {"gpu": 255, "memory": 10}
    card.answers["nvmlDeviceGetMemoryInfo"]["used"] = (1 << 64) - 1
    card.answers["nvmlDeviceGetPerformanceState"] = 32  # NVML's "unknown"
    shown = card.shown()

    for name in ("utilization_ratio", "memory_used_bytes", "performance_state"):
        assert f"solpi_gpu_{name}" not in shown
    assert shown["solpi_gpu_memory_controller_utilization_ratio"] == {ON: 0.1}
    assert shown["solpi_gpu_memory_free_bytes"] == {ON: 2900.0}


def test_every_series_follows_a_change_of_index(card: Card) -> None:
    """Info, and what is asked rarely, are told under the new one alone; identity is asked for no other reason."""
    card.read()
    card.read(after=5.0)
    assert not card.asked("nvmlDeviceGetName")

    card.device = Device(1)
    reading = card.read(after=5.0)

    assert reading.index == 1
    assert {one.labels[0] for one in reading.samples()} == {"1"}
    assert values(list(reading.samples()))["solpi_gpu_pcie_link_max_width"] == {("1", UUID, ""): 16.0}


def test_a_gpu_that_refuses_everything_is_lost() -> None:
    """As in a container from which its GPUs were taken; the message says what helps."""
    everything = Card({})

    with pytest.raises(GpuLost, match="container") as error:
        everything.read()
    assert error.value.code == UNKNOWN


def ring(*stamps: int) -> list[tuple[int, int]]:
    return [(stamp * 1_000_000, 80) for stamp in stamps]


@pytest.mark.parametrize(
    ("has", "seconds"),
    [
        ({"samples 1", "gpm 1"}, 4.0),  # 80 % of five samples of a second
        ({"gpm 1"}, 3.0),  # 60 % of 5 s, since GPM's first mean
        (set(), 4.3),  # 43 % of 10 s
    ],
)
def test_busy_seconds_have_the_best_origin_there_is(has: set[str], seconds: float) -> None:
    """The driver's samples, else GPM, else utilisation."""
    card = Card(h200() | {key: value for key, value in {"samples 1": ring(1), "gpm 1": 60.0}.items() if key in has})
    card.read()
    card.read(after=5.0)
    if "samples 1" in has:
        card.answers["samples 1"] = ring(1, 2, 3, 4, 5, 6)
    shown = card.shown(after=5.0)

    assert shown["solpi_gpu_busy_seconds_total"] == {ON: pytest.approx(seconds)}
    assert ("solpi_gpu_utilization_samples_ratio" in shown) == ("samples 1" in has)


def test_the_origin_of_busy_seconds_is_kept() -> None:
    """A buffer that becomes unsupported, as under MIG, stops the counter; another origin would count otherwise."""
    card = Card(h200() | {"samples 1": ring(1), "gpm 1": 60.0})
    card.read()
    card.answers["samples 1"] = ring(1, 2)
    assert card.read(after=10.0).busy is not None
    del card.answers["samples 1"]
    card.reader.attach()

    for _ in range(3):
        shown = card.shown(after=5.0)

    assert shown["solpi_gpu_busy_seconds_total"] == {ON: pytest.approx(0.8)}
    assert shown["solpi_gpu_utilization_samples_ratio"][ON].count == 1


def test_an_origin_is_not_chosen_for_a_passing_error() -> None:
    """What the buffer refuses now it may give later."""
    card = Card(h200() | {"samples 1": Unavailable("samples", UNKNOWN)})
    assert card.read().busy is None

    card.answers["samples 1"] = ring(1)

    assert card.read(after=1.0).busy is not None
    assert "solpi_gpu_utilization_samples_ratio" in card.shown()


def test_an_origin_that_is_refused_again_and_again_is_given_up() -> None:
    """As under WSL, which answers some calls with an unknown error for ever."""
    card = Card(h200() | {"samples 1": Unavailable("samples", UNKNOWN)})
    for _ in range(2):
        assert card.read(after=5.0).busy is None

    assert card.read(after=5.0).busy is not None


def test_the_histogram_stays_while_the_buffer_is_empty() -> None:
    """A total is as true as it was: an idle GPU of some drivers has no samples."""
    card = Card(h200() | {"samples 1": ring(1, 2, 3)})
    card.read()
    card.answers["samples 1"] = []

    for _ in range(5):
        assert "solpi_gpu_utilization_samples_ratio" in card.shown(after=5.0)


def test_transfers_are_told_with_gpm_and_without() -> None:
    """Rates of GPM, which are not asked for as counters; counters where there is no GPM."""
    with_gpm, without = Card(h200() | {"gpm 20": 2.0}), Card(h200() | {"field 197 0": 7})
    for card in (with_gpm, without):
        card.read()
        card.read(after=5.0)
    without.answers["field 197 0"] = 9

    assert with_gpm.shown(after=5.0)["solpi_gpu_pcie_transmit_bytes_total"] == {ON: 20.0 * 2**20}
    assert without.shown(after=5.0)["solpi_gpu_pcie_transmit_bytes_total"] == {ON: 2.0}


def process(pid: int, instance: int = NO_INSTANCE, memory: int | None = 5) -> dict[str, Any]:
    return {"pid": pid, "usedGpuMemory": memory, "gpuInstanceId": instance}


def test_a_whole_gpu_does_not_count_what_runs_in_its_instances(card: Card) -> None:
    """Its own processes only; a memory that the driver does not tell is None."""
    card.answers["nvmlDeviceGetComputeRunningProcesses"] = [process(1), process(2, 7), process(3, memory=None)]

    assert card.read().processes == (GpuProcess(1, 5), GpuProcess(3, None))


def test_processes_that_are_refused_now_are_told_later(card: Card) -> None:
    """None at the time, which is not none at all."""
    card.answers["nvmlDeviceGetComputeRunningProcesses"] = Unavailable("processes", NO_PERMISSION)
    assert card.read().processes is None
    card.answers["nvmlDeviceGetComputeRunningProcesses"] = []

    assert card.read(after=5.0).processes is None
    assert card.shown(after=60.0)["solpi_gpu_processes"] == {ON: 0.0}


def test_an_instance_has_its_own_rows_and_processes() -> None:
    """Memory, GPM and what runs in it, under its GPU instance id; bus and VBIOS are its GPU's."""
    answers = h200() | {
        "nvmlDeviceGetGpuInstanceId": 7,
        "nvmlDeviceGetName": "NVIDIA H200 MIG 1g.18gb",
        "nvmlDeviceGetComputeRunningProcesses": [process(2, 7)],
        "gpm 1": 50.0,
        "gpm 20": 1.0,
    }
    card = Card(answers, Device(0, 1))
    card.read()
    card.read(after=5.0)
    shown = card.shown(after=5.0)

    on = ("0", UUID, "7")
    assert {labels[:3] for series in shown.values() for labels in series} == {on}
    assert shown["solpi_gpu_info"] == {(*on, "NVIDIA H200 MIG 1g.18gb", "00000000:00:06.0", "96.00"): 1.0}
    assert shown["solpi_gpu_busy_seconds_total"] == {on: 2.5}
    assert shown["solpi_gpu_processes"] == {on: 1.0}
    memory = {f"solpi_gpu_memory_{kind}_bytes" for kind in ("total", "used", "free", "reserved")}
    others = ("up", "info", "graphics_active_ratio", "busy_seconds_total", "processes")
    assert shown.keys() == memory | {f"solpi_gpu_{name}" for name in others}


def test_an_instance_may_be_silent() -> None:
    """Its GPU's state is not concluded from it."""
    shown = Card({"nvmlDeviceGetGpuInstanceId": 7}, Device(0, 1)).shown()

    assert shown.keys() == {"solpi_gpu_up", "solpi_gpu_info"}


@pytest.mark.parametrize("interval", [5.0, 6.0, 9.0, 11.0, 30.0, 60.0])
def test_busy_seconds_are_whole_at_every_interval(interval: float) -> None:
    """The buffer holds 14 s: it is read before it runs over, and left to GPM's means where polls are rarer."""
    card = Card(h200() | {"gpm 1": 100.0}, interval=interval)
    card.answers["samples 1"] = lambda: [
        (round((card.clock.now - 14.0 + 0.2 * step) * 1e6), 100) for step in range(1, 71)
    ]
    card.read()
    card.read(after=interval)
    first = card.read(after=interval).busy
    for _ in range(12):
        last = card.read(after=interval).busy

    assert first is not None
    assert last is not None
    assert last.gaps == first.gaps
    assert last.seconds - first.seconds == pytest.approx(last.time - first.time, abs=0.5)


def test_means_over_an_outage_are_not_shown() -> None:
    """GPM's first mean after a hang begins before it; the next one is of its own time."""
    card = Card(h200() | {"gpm 2": 90.0})
    card.read()
    assert "solpi_gpu_sm_active_ratio" in card.shown(after=5.0)

    assert "solpi_gpu_sm_active_ratio" not in card.shown(after=60.0)
    assert "solpi_gpu_sm_active_ratio" in card.shown(after=5.0)


def test_an_identity_that_is_refused_for_now_is_asked_again() -> None:
    """Model, bus and VBIOS would stay unknown for good; a refusal for good is not repeated."""
    card = Card(h200() | {"nvmlDeviceGetName": Unavailable("name", UNKNOWN)})
    card.read()
    card.answers["nvmlDeviceGetName"] = "NVIDIA H200"

    assert "NVIDIA H200" in next(iter(card.shown(after=60.0)["solpi_gpu_info"]))
    card.read(after=120.0)
    assert not card.asked("nvmlDeviceGetName")


def test_a_buffer_that_is_refused_for_good_is_left_alone() -> None:
    """Also where it worked before, as when MIG is switched on."""
    card = Card(h200() | {"samples 1": ring(1)})
    card.read()
    card.answers["samples 1"] = Unavailable("samples", NOT_SUPPORTED)
    card.read(after=10.0)

    card.read(after=10.0)

    assert not card.asked("nvmlDeviceGetSamples")


def test_a_gpu_without_anything_cheap_is_not_lost() -> None:
    """What a GPU does not support says nothing of how it fares."""
    card = Card({"nvmlDeviceGetClockInfo": 345})

    for _ in range(3):
        assert card.read(after=1.0).up


def test_a_number_that_stands_for_none_is_absent() -> None:
    """NVML has one for values of 32 bits as well."""
    card = Card(h200() | {"field 186 0": 0xFFFFFFFF})

    assert "solpi_gpu_power_instant_watts" not in card.shown()
