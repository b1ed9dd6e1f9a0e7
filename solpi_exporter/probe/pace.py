"""When the next cycle is due: at a phase of its own on every host, and never so often that it costs too much."""

import random

from solpi_exporter.probe.guard import STARTING
from solpi_exporter.probe.plan import MAX_SHARE, Used

RETRY_SECONDS = 15.0  # after a cycle that was left out: most reasons pass,
STARTING_SECONDS = 1.0  # and that at the start at once


class Pace:
    """Begins with `interval` seconds.

    The second cycle comes at a random instant within the interval: hosts that start together do not probe together.
    """

    def __init__(self, interval: float) -> None:
        self._usual = interval
        self._phase: float | None = random.uniform(0.1, 1.0) * interval  # noqa: S311 - a phase, no secret
        self._interval = interval

    @property
    def interval(self) -> float:
        """Seconds from the begin of the last cycle to the next one."""
        return self._interval

    def skipped(self, reason: str) -> None:
        """Take note that a cycle was left out."""
        self._interval = min(self._usual, STARTING_SECONDS if reason == STARTING else RETRY_SECONDS)

    def begun(self) -> None:
        """Take note that a cycle begins: one that fails is not tried again sooner than another one."""
        self._interval = self._usual

    def measured(self, used: Used | None) -> None:
        """Take note of a cycle, and of what it used of a GPU."""
        dear = 0.0 if used is None else used.cycle / MAX_SHARE
        self._interval = max(self._usual if self._phase is None else self._phase, dear)
        self._phase = None
