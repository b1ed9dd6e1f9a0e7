"""The time of a line that only its own stamp tells."""

import time
from datetime import datetime

import pytest

from solpi_exporter.engine.stamp import stamp_time


@pytest.mark.parametrize(
    ("stamp", "now", "then"),
    [
        ("12-31 23:59:59", "2027-01-01T00:00:10", "2026-12-31T23:59:59"),
        ("01-01 00:00:05", "2027-01-01T00:00:10", "2027-01-01T00:00:05"),
        ("01-01 00:00:05", "2026-12-31T23:59:59", "2026-12-31T23:59:59"),
        ("02-29 12:00:00", "2029-03-01T00:00:00", "2028-02-29T12:00:00"),
        ("11-29 15:00:00", "2026-11-29T14:00:00", "2026-11-29T14:00:00"),
    ],
    ids=["year before", "this year", "a second ahead over the year", "leap day", "a zone ahead"],
)
def test_a_stamp_gets_the_latest_year_that_does_not_lie_ahead(
    monkeypatch: pytest.MonkeyPatch, stamp: str, now: str, then: str
) -> None:
    """Around New Year too; a stamp that lies ahead within a day is a zone's doing and is now."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    result = stamp_time(stamp, datetime.fromisoformat(f"{now}+00:00").timestamp())

    assert result == datetime.fromisoformat(f"{then}+00:00").timestamp()


@pytest.mark.parametrize(
    ("stamp", "now", "then"),
    [
        ("10-25 01:59:59", "2026-10-25T00:30:00", "2026-10-24T23:59:59"),
        ("10-25 02:30:00", "2026-10-25T00:45:00", "2026-10-25T00:30:00"),
        ("10-25 02:30:00", "2026-10-25T01:45:00", "2026-10-25T01:30:00"),
        ("10-25 03:00:00", "2026-10-25T02:10:00", "2026-10-25T02:00:00"),
        ("03-29 01:59:59", "2026-03-29T01:30:00", "2026-03-29T00:59:59"),
        ("03-29 03:00:01", "2026-03-29T01:30:00", "2026-03-29T01:00:01"),
        ("2026-10-25 02:30:00", "2027-05-01T00:00:00", "2026-10-25T01:30:00"),
    ],
    ids=["before", "the first of two", "the second of two", "after", "before the gap", "after the gap", "with a year"],
)
def test_summer_time(monkeypatch: pytest.MonkeyPatch, stamp: str, now: str, then: str) -> None:
    """Of the hour that comes twice, it is the later one that does not lie ahead."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()

    result = stamp_time(stamp, datetime.fromisoformat(f"{now}+00:00").timestamp())

    assert result == datetime.fromisoformat(f"{then}+00:00").timestamp()


@pytest.mark.parametrize("stamp", ["", "13-01 00:00:00", "2026-02-30 00:00:00", "02-30 12:00:00", "11-29", "noon"])
def test_what_is_no_time_is_not_known(stamp: str) -> None:
    """No time is made up for it."""
    assert stamp_time(stamp, 1.8e9) is None
