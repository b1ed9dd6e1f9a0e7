"""How figures are written."""

from collections.abc import Callable

import pytest

from solpi_exporter.overview.figures import age, count, milliseconds, percent


@pytest.mark.parametrize("write", [percent, milliseconds, count])
def test_what_is_not_known_is_a_dash(write: Callable[[float | None], str]) -> None:
    """And 0, which was measured, is a figure."""
    assert write(None) == "\N{EN DASH}"
    assert write(0.0)[0] == "0"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (percent(0.98434), "98.4 %"),
        (milliseconds(0.0186234), "18.62 ms"),
        (milliseconds(0.0000062, 3), "0.006 ms"),
        (milliseconds(2.5), "2,500.00 ms"),
        (count(1234567.0), "1,234,567"),
    ],
)
def test_figures_have_one_unit_and_a_fixed_precision(written: str, text: str) -> None:
    """So that those below one another can be compared."""
    assert written == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-0.2, "0 s"), (119.0, "119 s"), (120.0, "2 min"), (7199.0, "119 min"), (7200.0, "2 h"), (200000.0, "2 d")],
)
def test_an_age_is_in_the_largest_unit_of_which_there_are_two(seconds: float, text: str) -> None:
    """A clock that was set back makes nothing younger than now."""
    assert age(seconds) == text
