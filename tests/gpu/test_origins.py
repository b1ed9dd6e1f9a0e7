"""What a row is made of: origins and conversions."""

from math import inf, nan
from typing import Any

import pytest

from solpi_exporter.gpu.origins import (
    BLANK,
    Activity,
    Call,
    FieldValue,
    Unit,
    mega,
    member,
    milli,
    nano,
    number,
    percent,
)


@pytest.mark.parametrize(
    ("unit", "raw", "value"),
    [
        (percent, 57, 0.57),
        (percent, 0, 0.0),
        (percent, 100, 1.0),
        (milli, 253181, 253.181),
        (mega, 1980, 1.98e9),
        (nano, 6570511104, 6.570511104),
    ],
)
def test_conversions_to_base_units_are_exact(unit: Unit, raw: float, value: float) -> None:
    """57 % is 0.57 and not 0.5700000000000001."""
    assert unit(raw) == value


@pytest.mark.parametrize("raw", [100.5, 101, 255, -1, nan, inf])
def test_a_share_of_more_than_all_is_no_share(raw: float) -> None:
    """It is absent; clamped, it would pass for a GPU that is full."""
    assert percent(raw) is None
    assert list(number(percent)(raw)) == []


@pytest.mark.parametrize("raw", [BLANK, 0x7FFFFFFFFFFFFFF0, 0xFFFFFFFFFFFFFFFF, inf, nan])
def test_a_sentinel_is_not_a_value(raw: float) -> None:
    """NVML's numbers for "none" are of a size that nothing is measured at."""
    assert list(number()(raw)) == []
    assert list(member("used")({"used": raw})) == []


def test_the_largest_that_is_measured_is_a_value() -> None:
    """A memory of 2^61 bytes would be told."""
    assert list(number()(1 << 61)) == [((), float(1 << 61))]


@pytest.mark.parametrize(
    ("convert", "answer", "value"),
    [
        (number(milli, "x"), 1500, [(("x",), 1.5)]),
        (member("gpu", percent), {"gpu": 43, "memory": 1}, [((), 0.43)]),
        (member(1, float, "pending"), [1, 0], [(("pending",), 0.0)]),
    ],
)
def test_rows_take_the_answer_a_member_or_an_element(convert: Any, answer: Any, value: Any) -> None:
    """A struct's member by name, a list's element by position."""
    assert list(convert(answer)) == value


def test_equal_origins_are_one() -> None:
    """Two rows of one call share its answer, and calls that differ in an argument do not."""
    assert len({Call("a", (1,)), Call("a", (1,)), Call("a", (2,)), Call("a")}) == 3
    assert len({FieldValue(1), FieldValue(1, 0), FieldValue(1, 5), Activity(1)}) == 3


def test_an_origin_names_itself_for_the_reference() -> None:
    """By NVML's name of it."""
    origins = (Call("nvmlDeviceGetName", (1,)), FieldValue(186), Activity(2))

    assert [str(one) for one in origins] == ["nvmlDeviceGetName", "field value 186", "GPM metric 2"]
