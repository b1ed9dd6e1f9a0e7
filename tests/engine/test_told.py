"""What a server's log has told, and the time of a line that only its own stamp tells."""

import time
from datetime import datetime

import msgspec
import pytest

from solpi_exporter.engine.dialect import Capacity, Said, Setting, Stats
from solpi_exporter.engine.told import Told, stamp_time


def test_what_was_told_is_the_same_after_a_restart() -> None:
    """Reports with their times, capacities, facts and processes: as JSON, and back."""
    told = Told()
    told.take(Said(Setting({"version": "0.24.0", "block_size": "16"}, server=True), "APIServer", 7), 1.0, 2.0)
    told.take(Said(Stats("0", "11-29 15:45:33", {"running": 4.0, "generation_tokens_per_second": 100.0})), 1.5, 2.0)
    told.take(Said(Capacity("0", blocks=512.0), "EngineCore", 8), 1.5, 2.0)

    again = msgspec.json.decode(msgspec.json.encode(told), type=Told)

    assert again == told
    assert list(again.engines("s")) == list(told.engines("s"))
    assert [one.kv_cache_capacity_tokens for one in again.engines("s")] == [8192.0]
    assert list(again.start("s")) == list(told.start("s"))


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
