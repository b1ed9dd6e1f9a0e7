"""When the probe must not run."""

import re
from dataclasses import fields, replace
from typing import Any

import pynvml
import pytest

from solpi_exporter.gpu.fields import CLOCKS_EVENT_REASONS, RECOVERY_ACTION
from solpi_exporter.probe.guard import (
    GB,
    NOT_READ,
    REASONS,
    RECOVERIES,
    SETTLED_SECONDS,
    THROTTLING,
    Conditions,
    Skip,
    skip,
)

FOOTPRINT = 3 * GB

# An H200 beside a server, on which everything is known and nothing speaks against a run.
WELL = Conditions(
    free=15 * GB,
    total=150 * GB,
    compute_mode=0,
    mps=False,
    mig_changing=False,
    recovery_action=0,
    row_remap_pending=False,
    clock_reasons=frozenset(),
    still=3600.0,
)


def found(footprint: float = FOOTPRINT, **conditions: Any) -> Skip | None:
    return skip(replace(WELL, **conditions), footprint)


def reason(footprint: float = FOOTPRINT, **conditions: Any) -> str | None:
    one = found(footprint, **conditions)
    return None if one is None else one.reason


def test_a_well_gpu_is_measured() -> None:
    """With everything known there is no reason to skip."""
    assert found() is None


@pytest.mark.parametrize("condition", [field.name for field in fields(Conditions)])
def test_what_is_not_known_never_skips(condition: str) -> None:
    """Neither one condition alone nor all of them."""
    unknown: dict[str, Any] = {condition: None}

    assert found(**unknown) is None
    assert skip(Conditions(), FOOTPRINT) is None


def test_memory_needs_room_for_the_probe_and_three_percent_of_a_large_card() -> None:
    """3 GB and 4.5 of 150: one byte less is too little."""
    assert reason(free=7.5 * GB) is None
    assert reason(free=7.5 * GB - 1) == "memory"


@pytest.mark.parametrize("total", [24 * GB, None])
def test_memory_needs_a_margin_of_a_gigabyte_at_least(total: float | None) -> None:
    """On a card of which 3 % are less, and on one of unknown size."""
    assert reason(free=4 * GB, total=total) is None
    assert reason(free=4 * GB - 1, total=total) == "memory"


def test_memory_that_is_held_already_is_not_asked_for_again() -> None:
    """Once nothing more is to be allocated, a full card is the engine's affair."""
    assert reason(footprint=0, free=0.0) is None


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_a_compute_mode_that_lets_nobody_beside_skips(mode: int) -> None:
    """Exclusive to a thread, prohibited, exclusive to a process."""
    assert reason(compute_mode=mode) == "compute_mode"


def test_a_compute_mode_of_a_later_driver_does_not_skip() -> None:
    """What it means is not known."""
    assert reason(compute_mode=4) is None


def test_an_mps_server_skips() -> None:
    """A client's fault is every client's."""
    assert reason(mps=True) == "mps"


def test_a_mig_mode_that_is_being_changed_skips() -> None:
    """A reset is due, which an open context would refuse."""
    assert reason(mig_changing=True) == "mig"


@pytest.mark.parametrize("action", [*RECOVERIES, 99])
def test_every_recovery_action_skips(action: int) -> None:
    """Also one that has no name here."""
    assert reason(recovery_action=action) == "recovery"


def test_every_recovery_action_of_nvml_has_its_remedy() -> None:
    """And its meaning in the metric's help: all that the binding has a name for."""
    prefix = "NVML_GPU_RECOVERY_ACTION_"
    codes = {getattr(pynvml, name) for name in dir(pynvml) if name.startswith(prefix)}
    meanings = re.findall(r"\b(\d) [a-z]", RECOVERY_ACTION.help)

    assert codes <= {pynvml.NVML_GPU_RECOVERY_ACTION_NONE, *RECOVERIES}
    assert [*map(int, meanings)] == [pynvml.NVML_GPU_RECOVERY_ACTION_NONE, *RECOVERIES]


def test_a_row_that_waits_for_its_remap_skips() -> None:
    """It takes a reset, as a recovery does."""
    assert reason(row_remap_pending=True) == "recovery"
    assert reason(row_remap_pending=True, recovery_action=None) == "recovery"


@pytest.mark.parametrize("active", THROTTLING)
def test_clocks_that_are_throttled_skip(active: str) -> None:
    """By heat, power or the board; the message names what holds them down."""
    one = found(clock_reasons=frozenset({active, "gpu_idle"}))

    assert one is not None
    assert one.reason == "throttled"
    assert active in one.message
    assert "gpu_idle" not in one.message


@pytest.mark.parametrize("active", sorted({*CLOCKS_EVENT_REASONS.values(), "other"} - {*THROTTLING}))
def test_a_reason_that_is_no_throttling_does_not_skip(active: str) -> None:
    """A GPU that idles, clocks that somebody has set, and what has no name."""
    assert reason(clock_reasons=frozenset({active})) is None


def test_the_reasons_for_throttling_are_named_as_the_gpu_half_names_them() -> None:
    """A name that it does not use would never be active."""
    assert set(THROTTLING) <= set(CLOCKS_EVENT_REASONS.values())


def test_a_neighbours_memory_that_moves_skips_for_two_minutes() -> None:
    """An engine that is starting takes longer over nothing."""
    assert SETTLED_SECONDS == 120.0
    assert reason(still=0.0) == "memory_moving"
    assert reason(still=119.9) == "memory_moving"
    assert reason(still=120.0) is None


# One condition for each reason.
EACH: dict[str, dict[str, Any]] = {
    "starting": {"state": NOT_READ},
    "gpu_state": {"state": "lost"},
    "recovery": {"recovery_action": 1},
    "mig": {"mig_changing": True},
    "compute_mode": {"compute_mode": 3},
    "mps": {"mps": True},
    "memory": {"free": 6.2 * GB},
    "throttled": {"clock_reasons": frozenset({"hw_slowdown"})},
    "memory_moving": {"still": 42.0},
}


def test_the_table_holds_every_reason_there_is() -> None:
    """Its names are label values."""
    assert list(REASONS) == list(EACH)


@pytest.mark.parametrize("name", EACH)
def test_of_several_reasons_the_first_of_the_table_is_told(name: str) -> None:
    """What lasts until somebody acts goes before what passes by itself."""
    later = list(EACH)[list(EACH).index(name) :]

    assert reason(**{key: value for one in reversed(later) for key, value in EACH[one].items()}) == name


@pytest.mark.parametrize(
    ("name", "told"),
    {
        "starting": ["was not read yet", "must be first", "wait"],
        "gpu_state": ["the GPU is lost", "must answer", "solpi_gpu_state"],
        "recovery": ["recovery action 1", "0 is none", "nvidia-smi --gpu-reset"],
        "mig": ["pending MIG mode", "nvidia-smi -mig"],
        "compute_mode": ["3 (exclusive to a process)", "0 only", "nvidia-smi -c 0"],
        "mps": ["none may", "echo quit | nvidia-cuda-mps-control"],
        "memory": ["6.2 GB", "7.5 GB must be", "--gpu-memory-utilization"],
        "throttled": ["hw_slowdown", "nothing may", "cooling"],
        "memory_moving": ["42 s ago", "less than 120", "tried again"],
    }.items(),
)
def test_a_message_has_value_limit_and_remedy(name: str, told: list[str]) -> None:
    """In one line, for somebody who was woken by it."""
    one = found(**EACH[name])

    assert one is not None
    assert [part for part in told if part not in one.message] == []
    assert "\n" not in one.message
