"""How long the probe is held back after it spoilt the process: over restarts, so that a bad GPU makes no crash loop."""

from collections.abc import Callable
from dataclasses import dataclass

STATE = "probe"  # the name under which it is kept
DELAYS = (60.0, 300.0, 900.0, 3600.0)  # seconds; the last one from then on


@dataclass(frozen=True, slots=True)
class Setbacks:
    """How many there were since a cycle went well, and until when the probe is held back (Unix seconds)."""

    count: int = 0
    until: float = 0.0

    def another(self, now: float) -> "Setbacks":
        """Return what is to be kept after one more."""
        return Setbacks(self.count + 1, now + DELAYS[min(self.count, len(DELAYS) - 1)])

    def left(self, now: float) -> float:
        """Return for how many seconds more; never longer than the longest delay, since a clock may be set back."""
        return min(max(0.0, self.until - now), DELAYS[-1])


@dataclass(slots=True)
class SetbackKeeper:
    """Keeps them: `save` is told of each change, before anything else can happen, and returns whether it will last."""

    setbacks: Setbacks
    save: Callable[[Setbacks], bool]

    def happened(self, now: float) -> bool:
        """Take note of one more; return whether another process will know of it."""
        return self._keep(self.setbacks.another(now))

    def is_over(self) -> None:
        """Take note that a cycle went well."""
        if self.setbacks.count:
            self._keep(Setbacks())

    def _keep(self, setbacks: Setbacks) -> bool:
        self.setbacks = setbacks
        return self.save(setbacks)
