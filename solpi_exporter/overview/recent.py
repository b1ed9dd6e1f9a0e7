"""What engines did within the last minute: the difference of two of their totals.

`Recent` is a value, and each snapshot makes the next one: who reads it from another thread has one that stands still.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from solpi_exporter.board import Snapshot
from solpi_exporter.engine.reading import EngineReading
from solpi_exporter.metric import Distribution

WINDOW_SECONDS = 60.0
MIN_WINDOW_SECONDS = 30.0

_NOTHING = Distribution((), (), 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Totals:
    """An engine's totals at one instant; they hold until the next that is known."""

    time: float
    latency: Distribution | None
    preemptions: float | None

    def follows(self, before: "Totals") -> bool:
        """Whether both are of one run of the engine: after a new start, totals fall back."""
        fell = (self.preemptions or 0.0) < (before.preemptions or 0.0)
        return not fell and (self.latency or _NOTHING).count >= (before.latency or _NOTHING).count


@dataclass(frozen=True, slots=True)
class Lately:
    """What an engine did within the window; None is not known. `latency` is the time between two tokens, in seconds."""

    latency: Distribution | None = None
    preemptions: float | None = None


@dataclass(frozen=True, slots=True)
class Recent:
    """The totals of each engine's last minute, by server and engine."""

    totals: Mapping[tuple[str, str], tuple[Totals, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def extended(self, snapshot: Snapshot) -> "Recent":
        """Return it with what the board says now, and without what is too old or no longer there."""
        now: dict[tuple[str, str], Totals] = {}
        for time, reading in snapshot.readings(EngineReading):
            if reading.inter_token_latency is not None or reading.preemptions is not None:
                totals = Totals(time, reading.inter_token_latency, reading.preemptions)
                now.setdefault((reading.server, reading.engine), totals)
        return Recent({engine: _extended(self.totals.get(engine, ()), one) for engine, one in now.items()})

    def lately(self, server: str, engine: str) -> Lately:
        """Return what an engine did; nothing is known before half a minute."""
        totals = self.totals.get((server, engine), ())
        if not totals or totals[-1].time - totals[0].time < MIN_WINDOW_SECONDS:
            return Lately()
        start, end = totals[0], totals[-1]
        latency = None if end.latency is None or start.latency is None else end.latency.since(start.latency)
        counted = None not in (start.preemptions, end.preemptions)
        return Lately(latency, (end.preemptions or 0.0) - (start.preemptions or 0.0) if counted else None)


def _extended(totals: tuple[Totals, ...], new: Totals) -> tuple[Totals, ...]:
    """Return totals of one run, of which at most the first is older than the window."""
    if totals and not new.follows(totals[-1]):
        return (new,)
    if totals and new.time <= totals[-1].time:
        return totals
    extended = (*totals, new)
    inside = next(index for index, one in enumerate(extended) if one.time > new.time - WINDOW_SECONDS)
    return extended[max(0, inside - 1) :]
