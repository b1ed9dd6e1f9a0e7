"""When each tier is due."""

from solpi_exporter.gpu.origins import Tier
from solpi_exporter.gpu.schedule import PERIODS, Schedule


def times(tier: Tier, interval: float, polls: int) -> list[float]:
    schedule = Schedule()
    return [number * interval for number in range(polls) if tier in schedule.take(1000.0 + number * interval)]


def test_everything_is_due_at_first() -> None:
    """A GPU is read whole by the first poll."""
    assert schedule_of(0.0) == tuple(Tier)


def schedule_of(now: float) -> tuple[Tier, ...]:
    return Schedule().take(now)


def test_tiers_come_due_after_their_periods() -> None:
    """At the polls that are next, or nearly."""
    assert times(Tier.FAST, 1.0, 4) == [0.0, 1.0, 2.0, 3.0]
    assert times(Tier.MEAN, 1.0, 12) == [0.0, 5.0, 10.0]
    assert times(Tier.DEAR, 5.0, 8) == [0.0, 15.0, 30.0]
    assert times(Tier.MEAN, 4.99, 4) == [0.0, 4.99, 9.98, 14.97]


def test_what_is_refused_for_now_is_due_within_a_minute() -> None:
    """Of a tier that comes once an hour."""
    schedule = Schedule()
    schedule.take(0.0)
    schedule.retry(Tier.RARE, 0.0)

    assert Tier.RARE not in schedule.take(PERIODS[Tier.SLOW] - 1)
    assert Tier.RARE in schedule.take(PERIODS[Tier.SLOW])
