"""Many quantities at the least cost, and what was refused."""

from typing import Any

import pytest

from solpi_exporter.gpu.asker import RETRY_SECONDS, Asker
from solpi_exporter.gpu.driver import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    Device,
    DriverFailed,
    GpuLost,
    Unavailable,
)
from solpi_exporter.gpu.origins import Activity, Call, FieldValue, Origin
from tests.fakes import FakeDriver

NOT_FOUND = 6
GPU = Device(0)
POWER, LIMIT = Call("power"), Call("limit", (1,))
INSTANT, MEMORY = FieldValue(186), FieldValue(82)
SM, DRAM = Activity(2), Activity(10)


def full() -> dict[str, Any]:
    return {"power": 1, "limit 1": 2, "field 186 0": 3, "field 82 0": 4, "gpm 2": 5.0, "gpm 10": 6.0}


class Desk:
    """An asker before one GPU of a fake driver."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.answers = full() if answers is None else answers
        self.driver = FakeDriver([self.answers])
        self.asker = Asker(self.driver)

    def ask(self, now: float, *origins: Origin) -> dict[Origin, Any]:
        self.driver.calls.clear()
        return self.asker.answers(GPU, origins, now)

    @property
    def calls(self) -> list[str]:
        return [call for _, call in self.driver.calls]


def test_every_answer_stands_under_its_origin() -> None:
    """Calls with their arguments, field values, and GPM's means from its second call on."""
    desk = Desk()
    desk.ask(0.0, SM)

    assert desk.ask(1.0, POWER, LIMIT, INSTANT, MEMORY, SM, DRAM) == {
        POWER: 1,
        LIMIT: 2,
        INSTANT: 3,
        MEMORY: 4,
        SM: 5.0,
        DRAM: 6.0,
    }


def test_a_poll_asks_for_everything_once() -> None:
    """Each call once however many rows want it, all field values in one call, all of GPM in one."""
    desk = Desk()

    desk.ask(0.0, POWER, SM, INSTANT, POWER, LIMIT, DRAM, MEMORY, POWER, SM)

    assert sorted(desk.calls) == ["gpm", "limit", "nvmlDeviceGetFieldValues", "power"]


def test_nothing_is_asked_where_nothing_is_wanted() -> None:
    """Neither field values nor GPM are called for an empty list."""
    desk = Desk()

    assert desk.ask(0.0) == {}
    assert desk.calls == []
    assert desk.asker.has_gpm is None


@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
def test_what_a_gpu_does_not_have_is_never_asked_again(code: int) -> None:
    """A refusal may cost a millisecond."""
    desk = Desk({"power": Unavailable("power", code)})
    assert desk.ask(0.0, POWER) == {}

    desk.answers["power"] = 1

    assert desk.ask(1e6, POWER) == {}
    assert desk.calls == []


def test_what_is_not_permitted_is_asked_again_after_a_minute() -> None:
    """Permissions change while we run."""
    desk = Desk({"power": Unavailable("power", NO_PERMISSION)})
    desk.ask(0.0, POWER)
    desk.answers["power"] = 1

    assert desk.ask(RETRY_SECONDS - 0.1, POWER) == {}
    assert desk.calls == []
    assert desk.ask(RETRY_SECONDS, POWER) == {POWER: 1}


@pytest.mark.parametrize("code", [UNKNOWN, NOT_FOUND, 27])
def test_what_has_no_answer_now_is_asked_at_the_next_poll(code: int) -> None:
    """An odd error and an empty buffer say nothing of the next time."""
    desk = Desk({"power": Unavailable("power", code)})
    assert desk.ask(0.0, POWER) == {}

    desk.answers["power"] = 1

    assert desk.ask(0.1, POWER) == {POWER: 1}


def test_one_refusal_leaves_the_others_alone() -> None:
    """Each quantity is there or absent on its own; so are the same call's other arguments."""
    desk = Desk(full() | {"power": Unavailable("power"), "limit 2": Unavailable("limit")})

    assert desk.ask(0.0, POWER, LIMIT, Call("limit", (2,)), INSTANT) == {LIMIT: 2, INSTANT: 3}
    assert desk.ask(1.0, POWER, LIMIT, Call("limit", (2,)), INSTANT) == {LIMIT: 2, INSTANT: 3}
    assert desk.calls == ["limit", "nvmlDeviceGetFieldValues"]


def test_a_missing_field_value_is_asked_again_after_a_minute() -> None:
    """Its own return code is not passed on, so that nobody knows whether it would ever answer."""
    desk = Desk()
    instant = desk.answers.pop("field 186 0")
    assert desk.ask(0.0, INSTANT, MEMORY) == {MEMORY: 4}
    desk.answers["field 186 0"] = instant

    assert desk.ask(RETRY_SECONDS - 0.1, INSTANT, MEMORY) == {MEMORY: 4}
    assert desk.ask(RETRY_SECONDS, INSTANT, MEMORY) == {INSTANT: 3, MEMORY: 4}


def test_field_values_that_are_all_silent_cost_no_call() -> None:
    """Nothing is left to ask for."""
    desk = Desk({})
    desk.ask(0.0, INSTANT, MEMORY)

    desk.ask(5.0, INSTANT, MEMORY)

    assert desk.calls == []


def test_field_values_may_be_refused_as_a_whole() -> None:
    """A driver without the call answers every other question, and is not asked again."""
    desk = Desk(full() | {"field 186 0": Unavailable("fields", FUNCTION_NOT_FOUND)})

    assert desk.ask(0.0, POWER, INSTANT, MEMORY) == {POWER: 1}
    assert desk.ask(1e6, POWER, INSTANT, MEMORY) == {POWER: 1}
    assert desk.calls == ["power"]


def test_whether_there_is_gpm_is_told_by_the_first_call() -> None:
    """Not known before; its first answer has no means yet, and says that there will be some."""
    desk = Desk()
    assert desk.asker.has_gpm is None

    assert desk.ask(0.0, SM) == {}

    assert desk.asker.has_gpm is True


def test_a_gpu_before_hopper_has_no_gpm() -> None:
    """It is asked once."""
    desk = Desk({"power": 1})

    desk.ask(0.0, POWER, SM, DRAM)
    desk.ask(1e6, POWER, SM, DRAM)

    assert desk.asker.has_gpm is False
    assert desk.calls == ["power"]


def test_gpm_that_was_there_and_is_refused_is_still_had() -> None:
    """Some containers lose the permission after minutes: the rest goes on, and a minute later it is asked again."""
    desk = Desk()
    desk.ask(0.0, SM)
    desk.answers["gpm 2"] = Unavailable("GPM", NO_PERMISSION)

    assert desk.ask(5.0, POWER, SM) == {POWER: 1}
    assert desk.asker.has_gpm is True
    desk.answers["gpm 2"] = 7.0
    assert desk.ask(10.0, POWER, SM) == {POWER: 1}
    assert desk.ask(5.0 + RETRY_SECONDS, POWER, SM) == {POWER: 1, SM: 7.0}


def test_a_gpm_metric_without_a_value_is_absent() -> None:
    """The others are there; it is asked for along with them, which costs nothing."""
    desk = Desk()
    desk.ask(0.0, SM, DRAM)
    dram = desk.answers.pop("gpm 10")

    assert desk.ask(1.0, SM, DRAM) == {SM: 5.0}
    desk.answers["gpm 10"] = dram
    assert desk.ask(2.0, SM, DRAM) == {SM: 5.0, DRAM: 6.0}


@pytest.mark.parametrize("key", ["power", "field 186 0", "gpm 2"])
@pytest.mark.parametrize("error", [GpuLost("fell off the bus"), DriverFailed("uninitialised")])
def test_what_concerns_more_than_one_quantity_is_passed_on(key: str, error: Exception) -> None:
    """Whether the GPU or the driver is gone is not decided here."""
    desk = Desk(full() | {key: error})

    with pytest.raises(type(error)):
        desk.ask(0.0, POWER, INSTANT, SM)


def test_a_device_that_answers_nothing_is_mute() -> None:
    """But not one that has refused everything for good, or of which nothing was asked."""
    desk = Desk({"power": Unavailable("power", UNKNOWN), "limit": Unavailable("limit", UNKNOWN)})
    desk.ask(0.0, POWER, LIMIT)
    assert desk.asker.is_mute

    desk.answers["power"] = Unavailable("power", NOT_SUPPORTED)
    desk.ask(1.0, POWER)
    assert not desk.asker.is_mute
    desk.ask(2.0)
    assert not desk.asker.is_mute
