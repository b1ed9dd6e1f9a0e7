"""Time as an argument: the daemon runs on the system's clock, the demo on a faster one, tests on a fake."""

import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

MIN_WAIT = 0.05  # real seconds


class Clock(Protocol):
    """What anything here may ask of time."""

    def time(self) -> float:
        """Return the wall clock in Unix seconds, for values that leave the process."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, for every interval and age."""
        ...

    def real(self) -> float:
        """Return monotonic seconds as the machine counts them, for how long a call takes and whether it hangs."""
        ...

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait until `stop` is set or `seconds` have passed; return whether `stop` is set."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The clock of the machine."""

    def time(self) -> float:
        """Return Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return the system's monotonic seconds."""
        return time.monotonic()

    def real(self) -> float:
        """Return the same."""
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait in real time."""
        return stop.wait(seconds)


@dataclass(frozen=True, slots=True)
class FastClock:
    """A clock whose intervals pass `speed` times as fast; its wall clock stays true.

    Everything that is integrated or waited for runs on the fast seconds, so that a replayed hour yields the
    figures of that hour; only time stamps remain those of the reader's watch. Waits have a floor in real time: what
    is polled ten times a second must not become a busy loop that takes the GIL from the probe.
    """

    speed: float
    origin: float = field(default_factory=time.monotonic)

    def time(self) -> float:
        """Return Unix seconds, not accelerated."""
        return time.time()

    def monotonic(self) -> float:
        """Return accelerated seconds since the clock was made."""
        return (time.monotonic() - self.origin) * self.speed

    def real(self) -> float:
        """Return seconds that are not accelerated."""
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait `seconds` of accelerated time."""
        return stop.wait(max(seconds / self.speed, min(seconds, MIN_WAIT)))
