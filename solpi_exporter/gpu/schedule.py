"""When each tier of the table is due: the cheap at every poll, the dear seldom."""

from solpi_exporter.gpu.origins import Tier

PERIODS = {Tier.FAST: 0.0, Tier.MEAN: 5.0, Tier.DEAR: 15.0, Tier.SLOW: 60.0, Tier.RARE: 3600.0}
EARLY = 0.5  # seconds: polls come a little sooner or later, and what is due by then should not wait for the next


class Schedule:
    """One device's tiers; times are monotonic seconds."""

    def __init__(self) -> None:
        self._due = dict.fromkeys(Tier, 0.0)

    def take(self, now: float) -> tuple[Tier, ...]:
        """Return the tiers that are due, which are then due again after their periods."""
        tiers = tuple(tier for tier in Tier if now >= self._due[tier] - EARLY)
        for tier in tiers:
            self._due[tier] = now + PERIODS[tier]
        return tiers

    def retry(self, tier: Tier, now: float) -> None:
        """Make a tier due within a minute, since a part of it was refused for now."""
        self._due[tier] = min(self._due[tier], now + PERIODS[Tier.SLOW])
