"""What a server's log has told so far: the last report of each engine, what was counted, what was said at the start.

It is kept over a restart with the position in the log: what was told before that will not be told again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from solpi_exporter.engine.dialects.dialect import (
    ALL,
    TROUBLES,
    Capacity,
    Iteration,
    Preemption,
    Said,
    Setting,
    Shutdown,
    Stats,
    Transfer,
    Trouble,
    Values,
)
from solpi_exporter.engine.reading import EngineFacts, EngineReading, EngineTroubles
from solpi_exporter.engine.stamp import stamp_time

# Counters that are the log's alone; of all others an endpoint, where one is configured, is the one origin.
LOGS_OWN = frozenset({"preemptions_at_least", "iterations", "iteration_seconds"})
DEATH = "engine_dead"  # after which the last reports are those of a server that is no more
KNOWN = frozenset(one.name for one in fields(EngineReading))  # what another version kept may be none of these
LARGEST = frozenset({"preemptions_at_least"})  # told as totals, by schedulers that each count their own


class Report(NamedTuple):  # made for every report of a history
    """An engine's last report: attributes of EngineReading, and the log that it is from.

    `written` is when that was, None where only its `stamp` tells, as it is read `now` (all Unix seconds).
    """

    values: Mapping[str, float]
    written: float | None
    stamp: str
    now: float
    log: str = ""

    @property
    def time(self) -> float | None:
        """When it was written, None if not known. Worked out when asked for: of a long history, few are."""
        return stamp_time(self.stamp, self.now) if self.written is None else self.written


@dataclass(slots=True)
class Told:
    """Reports, capacities and counters by engine, facts by name, process ids by role, trouble by kind.

    `last` is the engine that a line without a name speaks of; one that is `dead` reports nothing until one starts.
    `watched` are the engines whose start was seen, so that what they count from there is known. `started` are those
    that have started since the server did, and `fresh` the facts that were told since one of them has.
    """

    facts: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    capacities: dict[str, Capacity] = field(default_factory=dict)
    counted: dict[str, dict[str, float]] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    last: str = "0"
    dead: bool = False
    watched: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)

    def take(self, said: Said, written: float | None, now: float, log: str = "", *, live: bool = True) -> None:
        """Take in what one line says; `written` is when, None for a past that only its own stamp tells."""
        match said.event:
            case Stats(engine, values, counted, partial):
                self._name(engine, partial=partial)
                self._report(self.last, Report(values, written, said.stamp, now, log), live=live, add=partial)
                self._count(self.last, counted)
            case Iteration(engine, seconds, values):
                engine = engine or self.last
                self._report(engine, Report(values, written, said.stamp, now, log), live=live, add=True)
                self._count(engine, {} if seconds is None else {"iterations": 1.0, "iteration_seconds": seconds})
            case Transfer(_, counted, values):
                self._report(self.last, Report(values, written, said.stamp, now, log), live=live, add=True)
                self._count(self.last, counted)
            case Preemption(engine, count, at_least):
                self._count(engine, {"preemptions_at_least": at_least} if at_least else {"preemptions": count})
                self._note_trouble("preemption")
            case Trouble(what):
                self._note_trouble(what)
                if what == DEATH:
                    self.reports.clear()
                    self.dead = True
            case Shutdown():
                self.reports.clear()
            case Setting() | Capacity() as told:
                self.learn(said)
                if isinstance(told, Setting) and told.engine is not None and told.engine not in self.watched:
                    self.watched.append(told.engine)
        if said.pid is not None:
            self.pids[said.role] = said.pid

    def learn(self, said: Said) -> None:
        """Take in what a line says of the start, and nothing else: all of what was written before we came."""
        match said.event:
            case Capacity() as capacity:
                self._measure(capacity)
            case Setting(values, server, engine):
                self._begin(server=server, engine=engine)
                self._note(values, own=engine is not None)
        if said.pid is not None:
            self.pids[said.role] = said.pid

    def settle(self) -> None:
        """Read the values of the last reports, which a dialect may have left unread, so that they can be kept."""
        for engine, report in self.reports.items():
            if not isinstance(report.values, dict):
                self.reports[engine] = report._replace(values=dict(report.values))

    # What a line changes.

    def _name(self, engine: str, *, partial: bool) -> None:
        """Note whom a line speaks of. One that does not say so speaks of the one engine, or of all that there are."""
        if engine:
            self.last = engine
        elif not partial:
            self.last = ALL if len(self.capacities) > 1 else "0"

    def _report(self, engine: str, new: Report, *, live: bool, add: bool) -> None:
        last = self.reports.get(engine)
        if self.dead:
            return
        if last is None:
            self.reports[engine] = new
        elif live or new.log == last.log or (new.time or 0.0) >= (last.time or 0.0):
            self.reports[engine] = new._replace(values={**last.values, **new.values}) if add else new

    def _count(self, engine: str, amounts: Values) -> None:
        for name, amount in amounts.items():
            if name in LARGEST and not amount and engine not in self.watched:
                continue  # the engine has counted before we came, and does not say how far
            totals = self.counted.setdefault(engine, {})
            before = totals.get(name, 0.0)
            totals[name] = max(before, amount) if name in LARGEST else before + amount

    def _note_trouble(self, what: str) -> None:
        self.troubles[what] = self.troubles.get(what, 0) + 1

    def _measure(self, told: Capacity) -> None:
        """Take in a size; what one line leaves open, another one may have told."""
        known = self.capacities.get(told.engine, Capacity(told.engine))
        self.capacities[told.engine] = Capacity(
            told.engine,
            tokens=min(filter(None, (known.tokens, told.tokens)), default=None),  # each rank tells its own
            blocks=known.blocks if told.blocks is None else told.blocks,
            concurrency=known.concurrency if told.concurrency is None else told.concurrency,
        )
        self._note(told.facts)
        self.dead = False

    def _note(self, facts: Mapping[str, str], *, own: bool = False) -> None:
        """Take in facts; an engine's `own` are those of its start line, and end with it."""
        self.facts.update(facts)
        if not own:
            self.fresh += [name for name in facts if name not in self.fresh]

    def _begin(self, *, server: bool, engine: str | None) -> None:
        """Forget what a server, or an engine, that starts had said before."""
        if server or engine is not None:
            self.dead = False
        if server:
            for each in (self.facts, self.reports, self.capacities, self.pids, self.started, self.fresh, self.watched):
                each.clear()
            self.last = "0"
            for totals in self.counted.values():
                self._reset(totals)
        if engine is not None:
            self._begin_engine(engine)

    def _begin_engine(self, engine: str) -> None:
        """Forget what the engine before it had said; one that starts for a second time, without its server, all else.

        The server tells some of its settings before its engines start, and engines start one after the other.
        """
        self.reports.pop(engine, None)
        self.capacities.pop(engine, None)
        self._reset(self.counted.get(engine, {}))
        if engine in self.started:
            self.facts = {name: self.facts[name] for name in self.fresh if name in self.facts}
            self.started.clear()
        self.started.append(engine)
        self.fresh.clear()

    @staticmethod
    def _reset(totals: dict[str, float]) -> None:
        """Let those begin anew that the engine itself counts from its start."""
        for name in LARGEST & totals.keys():
            totals[name] = 0.0

    # What is known now.

    def engines(self, server: str, *, counters: bool) -> Iterator[EngineReading]:
        """Yield what each engine said last; without `counters`, only those that no endpoint has.

        Nor is there a sum of all engines then: beside the endpoint's one for each it would count twice.
        """
        for engine in sorted(self.reports.keys() | self.capacities.keys() | self.counted.keys()):
            if engine == ALL and not counters:
                continue
            report, capacity = self.reports.get(engine), self.capacities.get(engine)
            known: dict[str, Any] = {} if report is None else {n: v for n, v in report.values.items() if n in KNOWN}
            totals: dict[str, Any] = dict(self.counted.get(engine, {}))
            yield EngineReading(
                server=server,
                engine=engine,
                kv_cache_capacity_tokens=self._capacity_tokens(capacity),
                max_concurrency=None if capacity is None else capacity.concurrency,
                mean_token_seconds=_mean_token_seconds(known),
                last_report_time=None if report is None else report.time,
                **known,
                **{n: v for n, v in totals.items() if n in KNOWN and (counters or n in LOGS_OWN)},
            )

    def start(self, server: str, software: str) -> Iterator[EngineFacts]:
        """Yield what was said at the start, and in whose words, if anything is known."""
        if self.facts or self.pids or software:
            settings = {name: value for name, value in self.facts.items() if name not in ("version", "model")}
            yield EngineFacts(
                server,
                software,
                self.facts.get("version"),
                self.facts.get("model"),
                tuple(settings.items()),
                tuple(self.pids.values()),
            )

    def trouble(self, server: str) -> EngineTroubles:
        """Return how often the log spoke of each kind of trouble."""
        return EngineTroubles(server, {what: float(self.troubles.get(what, 0)) for what in TROUBLES})

    def _capacity_tokens(self, capacity: Capacity | None) -> float | None:
        block_size = self.facts.get("block_size")
        if capacity is None or capacity.tokens is not None or capacity.blocks is None or block_size is None:
            return None if capacity is None else capacity.tokens
        return capacity.blocks * int(block_size)


def _mean_token_seconds(values: Mapping[str, float]) -> float | None:
    """Return the mean time between a request's tokens: Little's law over the log's interval; None when idle."""
    running, rate = values.get("running"), values.get("generation_tokens_per_second")
    return running / rate if running and rate else None
