"""What a server's log has told so far: the last report of each engine, and what was said at the start.

It is kept over a restart with the position in the log: what was told before that will not be told again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from solpi_exporter.engine.dialect import Capacity, Event, Said, Setting, Stats
from solpi_exporter.engine.reading import EngineFacts, EngineReading

DAY = 86400.0  # by which a zone may put a stamp ahead

# What a server says before its engine's start line, which therefore does not end it.
TOLD_BEFORE = ("version", "block_size")


@dataclass(frozen=True, slots=True)
class Report:
    """An engine's last report: attributes of EngineReading, and when it was written (Unix seconds)."""

    values: Mapping[str, float]
    time: float


@dataclass(slots=True)
class Told:
    """Reports and capacities by engine, facts by name, process ids by role."""

    facts: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    capacities: dict[str, Capacity] = field(default_factory=dict)

    def take(self, said: Said, written: float | None, now: float) -> None:
        """Take in what one line says; `written` is when, None for a past that only its own stamp tells."""
        self._apply(said.event, written, now)
        if said.pid is not None:
            self.pids[said.role] = said.pid

    def _apply(self, event: Event, written: float | None, now: float) -> None:
        match event:
            case Stats():
                time = stamp_time(event.stamp, now) if written is None else written
                last = self.reports.get(event.engine)
                # History may be read in any order; what is seen being written holds, also after the clock was set back.
                if written is not None or last is None or time >= last.time:
                    self.reports[event.engine] = Report(event.values, time)
            case Capacity():
                self.capacities[event.engine] = event
            case Setting(values, server, engine):
                self._begin(server=server, engine=engine)
                self.facts.update(values)

    def settle(self) -> None:
        """Read the values of the last reports, which a dialect may have left unread, so that they can be kept."""
        for engine, report in self.reports.items():
            if not isinstance(report.values, dict):
                self.reports[engine] = Report(dict(report.values), report.time)

    def _begin(self, *, server: bool, engine: str | None) -> None:
        """Forget what a server, or an engine, that starts had said before."""
        if server:
            for each in (self.facts, self.reports, self.capacities, self.pids):
                each.clear()
        if engine is not None:
            self.reports.pop(engine, None)
            self.capacities.pop(engine, None)
            self.facts = {name: self.facts[name] for name in TOLD_BEFORE if name in self.facts}

    def engines(self, server: str) -> Iterator[EngineReading]:
        """Yield what each engine said last."""
        for engine in sorted(self.reports.keys() | self.capacities.keys()):
            report = self.reports.get(engine)
            known: dict[str, Any] = {} if report is None else dict(report.values)
            yield EngineReading(
                server=server,
                engine=engine,
                kv_cache_capacity_tokens=self._capacity_tokens(engine),
                mean_token_seconds=_mean_token_seconds(known),
                last_report_time=None if report is None else report.time,
                **known,
            )

    def start(self, server: str) -> Iterator[EngineFacts]:
        """Yield what was said at the start, if anything was."""
        if self.facts or self.pids:
            settings = {name: value for name, value in self.facts.items() if name not in ("version", "model")}
            yield EngineFacts(
                server,
                self.facts.get("version"),
                self.facts.get("model"),
                tuple(settings.items()),
                tuple(self.pids.values()),
            )

    def _capacity_tokens(self, engine: str) -> float | None:
        capacity = self.capacities.get(engine)
        block_size = self.facts.get("block_size")
        if capacity is None or capacity.tokens is not None or capacity.blocks is None or block_size is None:
            return None if capacity is None else capacity.tokens
        return capacity.blocks * int(block_size)


def _mean_token_seconds(values: Mapping[str, float]) -> float | None:
    """Return the mean time between a request's tokens: Little's law over the log's interval; None when idle."""
    running, rate = values.get("running"), values.get("generation_tokens_per_second")
    return running / rate if running and rate else None


def stamp_time(stamp: str, now: float) -> float:
    """Return the Unix time of a line that was not seen being written, by its own stamp `MM-DD HH:MM:SS`.

    The stamp has neither year nor zone: the host's zone and the latest year that does not lie ahead are taken.
    """
    month, day, hour, minute, second = (int(stamp[begin : begin + 2]) for begin in range(0, 14, 3))
    this_year = datetime.fromtimestamp(now).year
    for year in (this_year + 1, this_year, this_year - 1):
        try:
            moment = datetime(year, month, day, hour, minute, second).timestamp()
        except ValueError:  # 29 February of another year
            continue
        if moment <= now + DAY:
            return min(moment, now)
    return now
