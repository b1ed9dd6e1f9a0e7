"""A recording through the driver interface."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from solpi_exporter.demo.recording import frames_of, load_device
from solpi_exporter.gpu.driver import (
    GPU_IS_LOST,
    NO_DATA,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    Device,
    GpuLost,
    Unavailable,
)
from solpi_exporter.gpu.reading import GpuReading
from solpi_exporter.gpu.recording import Frame, recording_of
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.source import GpuSource
from tests.fakes import RECORDINGS, FakeClock, load_json, values

GPU = Device(0)
SAMPLES = load_json(RECORDINGS / "h200-nvml" / "readings.json")
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"


class Player:
    """Plays frames, at the second and in the round that a test says."""

    def __init__(self, *frames: Frame) -> None:
        self.now, self.round = 0.0, 0
        self.driver = ReplayDriver(recording_of(frames), lambda: self.now, lambda: self.round)

    def at(self, now: float, round_: int = 0) -> ReplayDriver:
        self.now, self.round = now, round_
        return self.driver


def h200(position: Callable[[], float]) -> ReplayDriver:
    return ReplayDriver(recording_of([(SAMPLES[0]["t"] - 1.0, load_device()), *frames_of(SAMPLES)]), position)


def test_an_instant_is_answered_by_the_last_frame_before_it() -> None:
    """Between two frames the earlier one holds; before the first, the first."""
    player = Player((1.0, {"0 power": 10, "- count": 1, "0 field 5 0": 3}), (2.0, {"0 power": 20}))

    assert [player.at(now).ask(GPU, "power") for now in (0.0, 1.5, 2.0, 9.0)] == [10, 10, 20, 20]
    assert player.driver.query("count") == 1
    assert player.driver.fields(GPU, [(5, 0), (6, 0)]) == {(5, 0): 3}


def test_what_was_not_recorded_is_not_supported() -> None:
    """Neither calls nor GPM nor samples are invented; field values are left out."""
    driver = Player((0.0, {"0 power": 1})).driver
    asked: list[Callable[[], Any]] = [
        lambda: driver.ask(GPU, "power", 1),
        lambda: driver.ask(Device(0, 0), "power"),
        lambda: driver.query("power"),
        lambda: driver.activity(GPU, [1, 2]),
        lambda: driver.samples(GPU, 1, 0),
    ]
    for ask in asked:
        with pytest.raises(Unavailable) as error:
            ask()
        assert error.value.code == NOT_SUPPORTED
    assert driver.fields(GPU, [(186, 0)]) == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (GPU_IS_LOST, GpuLost),
        (RESET_REQUIRED, GpuLost),
        (28, GpuLost),
        (NO_PERMISSION, Unavailable),
        (UNKNOWN, Unavailable),
    ],
)
@pytest.mark.parametrize("what", ["power", "samples 1", "gpm 1", "field 5 0"])
def test_a_recorded_error_is_raised(what: str, code: int, kind: type[Exception]) -> None:
    """While it holds, with its code; a field value that is refused is left out, as NVML does."""
    player = Player((0.0, {f"0 {what}": {"error": code}}), (5.0, {f"0 {what}": [] if "samples" in what else 1}))
    ask: dict[str, Callable[[], Any]] = {
        "power": lambda: player.driver.ask(GPU, "power"),
        "samples 1": lambda: player.driver.samples(GPU, 1, 0),
        "gpm 1": lambda: player.driver.activity(GPU, [1]),
        "field 5 0": lambda: player.driver.fields(GPU, [(5, 0)]),
    }
    if what == "field 5 0" and kind is Unavailable:
        assert player.driver.fields(GPU, [(5, 0)]) == {}
    else:
        with pytest.raises(kind) as error:
            ask[what]()
        assert getattr(error.value, "code", None) == code

    player.now = 5.0
    ask[what]()


def test_activity_is_the_mean_since_the_last_call() -> None:
    """Nothing at the first call; then all that was recorded meanwhile, however much, for each device apart."""
    frames = [(float(second), {"0 gpm 1": second * 10.0, "0/1 gpm 1": 7.0}) for second in range(6)]
    player = Player(*frames)

    assert player.at(0.0).activity(GPU, [1, 2]) == {}
    assert player.at(2.0).activity(GPU, [1, 2]) == {1: 15.0}
    assert player.at(5.0).activity(GPU, [1]) == {1: 40.0}
    assert player.at(5.5).activity(GPU, [1]) == {1: 50.0}
    assert player.at(5.5).activity(Device(0, 1), [1]) == {}
    assert player.at(1.0, 1).activity(GPU, [1]) == {1: 10.0}


def test_a_mean_leaves_out_what_was_no_number() -> None:
    """Errors and beginnings count neither as 0 nor at all."""
    player = Player(
        (0.0, {"0 gpm 1": {"error": NO_DATA}, "0 gpm 2": {"error": NO_DATA}}),
        (1.0, {"0 gpm 1": 10.0, "0 gpm 2": 10.0}),
        (2.0, {"0 gpm 1": {"error": NO_PERMISSION}}),
        (3.0, {"0 gpm 1": {"error": NO_DATA}}),
        (4.0, {"0 gpm 1": 30.0, "0 gpm 2": {"error": NOT_SUPPORTED}}),
    )
    player.at(0.0).activity(GPU, [1])

    assert player.at(3.0).activity(GPU, [1]) == {}
    player.at(0.0).activity(GPU, [1])
    assert player.at(4.0).activity(GPU, [1, 2]) == {1: 20.0}


def test_the_buffer_holds_what_was_recorded_until_now() -> None:
    """Once each, by the cursor; nothing of the future, and nothing that failed to be read."""
    player = Player(
        (1.0, {"0 samples 1": [[10, 1], [20, 2]]}),
        (2.0, {"0 samples 1": {"error": UNKNOWN}}),
        (3.0, {"0 samples 1": [(30, 3)]}),
    )

    assert player.at(1.0).samples(GPU, 1, 0) == [(10, 1), (20, 2)]
    assert player.at(1.9).samples(GPU, 1, 10) == [(20, 2)]
    assert player.at(3.0).samples(GPU, 1, 10) == [(20, 2), (30, 3)]
    assert player.at(9.0).samples(GPU, 1, 30) == []


@pytest.mark.parametrize("step", [1, 3, 7])
def test_the_clock_of_the_buffer_goes_on_over_rounds(step: int) -> None:
    """Stamps ascend strictly by the distance at which they were recorded; the end of a round is not lost."""
    frames = [(float(second), {"0 samples 1": [[second * 1_000_000, second]]}) for second in range(1, 11)]
    frames[0][1]["0 samples 1"][:0] = [[second * 1_000_000, 0] for second in range(-5, 1)]  # as a buffer is found
    player, stamps = Player((0.0, {}), *frames), [-6_000_000]
    for second in range(0, 35, step):
        stamps += [stamp for stamp, _ in player.at(second % 10, second // 10).samples(GPU, 1, stamps[-1])]

    assert {after - before for before, after in pairwise(stamps)} == {1_000_000}


@pytest.mark.parametrize("key", [ENERGY, "field 74 0", "field 271 0"])
def test_totals_go_on_over_rounds(key: str) -> None:
    """By what they gained in a round; what is not a total is as it was."""
    player = Player((0.0, {f"0 {key}": 100, "0 power": 5}), (9.0, {f"0 {key}": 130, "0 power": 7}))

    def asked(now: float, round_: int) -> float | None:
        driver = player.at(now, round_)
        if key == ENERGY:
            return float(driver.ask(GPU, key))
        number = int(key.split()[1])
        return driver.fields(GPU, [(number, 0)])[number, 0]

    assert [asked(now, round_) for round_ in range(3) for now in (0.0, 9.0)] == [100, 130, 130, 160, 160, 190]
    assert player.at(0.0, 2).ask(GPU, "power") == 5


@pytest.mark.parametrize("answers", [(100, {"error": 15}), ({"error": 6}, 100), (100, 30)])
def test_totals_never_fall_over_rounds(answers: tuple[Any, Any]) -> None:
    """Also where one end of the recording is an error, or the driver was loaded anew in it."""
    player = Player(
        *[(float(second), {f"0 {ENERGY}": answer}) for second, answer in enumerate((*answers[:1], 100, *answers[1:]))]
    )

    assert player.at(1.0, 0).ask(GPU, ENERGY) == 100
    assert player.at(1.0, 3).ask(GPU, ENERGY) == 100


def test_a_replayed_driver_needs_nothing() -> None:
    """It is there at once, keeps its handles, and no error happens in it."""
    driver = Player((0.0, {})).driver
    driver.connect()

    assert driver.epoch == 1
    assert driver.wait_xid(1.0) is None
    driver.close()


@pytest.mark.parametrize(("phase", "low", "high"), [("eager_b1", 0.40, 0.44), ("graph_b1", 0.98, 0.99)])
@pytest.mark.parametrize("interval", [1.0, 5.0])
def test_busy_seconds_of_the_recording_are_those_of_its_phases(
    phase: str, low: float, high: float, interval: float
) -> None:
    """From the driver's samples: whatever the distance of the polls, the share is the one that was recorded."""
    times = [sample["t"] + 0.1 for sample in SAMPLES if sample["phase"] == phase][2:]
    clock = FakeClock(now=times[0])
    source = GpuSource(h200(clock.monotonic), clock, interval, 10.0)
    source.poll()
    while clock.now + interval <= times[-1]:
        clock.now += interval
        reading = next(one for one in source.poll() if isinstance(one, GpuReading))

    assert reading.busy is not None
    assert low <= reading.busy.seconds / (reading.busy.time - times[0]) <= high


def test_the_recorded_h200_shows_every_family_that_was_recorded() -> None:
    """One poll at full load, written out."""
    load = next(sample for sample in SAMPLES if sample["phase"] == "matmul")
    source = GpuSource(h200(lambda: load["t"]), FakeClock(), 5.0, 10.0)

    shown = values([sample for reading in source.poll() for sample in reading.samples()])

    on = ("0", load_device()["0 nvmlDeviceGetUUID"], "")
    assert shown["solpi_gpu_memory_total_bytes"] == {on: 150754820096.0}
    assert shown["solpi_gpu_clock_hertz"].keys() == {(*on, "sm"), (*on, "memory")}
    assert shown["solpi_gpu_temperature_celsius"].keys() == {(*on, "gpu"), (*on, "memory")}
    assert shown["solpi_gpu_ecc_enabled"] == {(*on, "current"): 1.0, (*on, "pending"): 1.0}
    assert shown["solpi_gpu_power_limit_watts"] == {on: 700.0}
    assert shown["solpi_gpu_energy_joules_total"][on] == load["energy_mj"] / 1000
