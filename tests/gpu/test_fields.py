"""The table of GPU quantities and its conversions."""

import pytest

from solpi_exporter.gpu.fields import (
    CLOCKS_EVENT_REASONS,
    FIELDS,
    GPU,
    mega,
    member,
    milli,
    number,
    percent,
    performance_state,
    reasons,
)


@pytest.mark.parametrize(
    ("unit", "raw", "value"), [(percent, 57, 0.57), (milli, 253181, 253.181), (mega, 1980, 1.98e9)]
)
def test_conversions_to_base_units_are_exact(unit: object, raw: float, value: float) -> None:
    """57 % is 0.57 and not 0.5700000000000001."""
    assert unit(raw) == value  # type: ignore[operator]


def test_every_row_is_a_gpu_series_of_the_contract() -> None:
    """Each metric starts with the family's prefix and carries the GPU's labels first."""
    for field in FIELDS:
        assert field.metric.name.startswith("solpi_gpu_")
        assert field.metric.labels[:2] == GPU


def test_a_mask_is_spread_over_all_reasons() -> None:
    """Each reason has its 0 or 1, so that a reason that ends is seen to end."""
    values = dict(reasons(0x4 | 0x40))

    assert {labels[0] for labels, value in values.items() if value} == {"sw_power_cap", "hw_thermal_slowdown"}
    assert len(values) == len(CLOCKS_EVENT_REASONS) + 1


def test_a_bit_without_a_name_is_not_lost() -> None:
    """A newer driver's reason counts as other."""
    assert dict(reasons(0x400))[("other",)] == 1.0


def test_an_unknown_performance_state_is_no_number() -> None:
    """NVML's 32 means that it does not know; that is absence."""
    assert list(performance_state(32)) == []
    assert list(performance_state(0)) == [((), 0.0)]


def test_rows_take_members_and_elements() -> None:
    """A struct's member by name, a list's element by position, the answer itself."""
    assert list(member("gpu", percent)({"gpu": 43})) == [((), 0.43)]
    assert list(member(1, float, "pending")([1, 0])) == [(("pending",), 0.0)]
    assert list(number(milli, "x")(1500)) == [(("x",), 1.5)]
