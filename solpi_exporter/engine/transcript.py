"""What a log reports, as plain objects: for `solpi-exporter read`, and for tests that hold it against what is expected.

Values only, by the names that their metrics have; of the log's own text nothing but what a metric may show.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from solpi_exporter.engine.dialects.dialect import (
    KINDS,
    Capacity,
    Event,
    Iteration,
    Preemption,
    Setting,
    Shutdown,
    Stats,
    Transfer,
    Trouble,
)
from solpi_exporter.engine.listener import Heard, Listener
from solpi_exporter.engine.quantities import ROWS
from solpi_exporter.engine.stamp import stamp_time

LONGEST_LINE = 1 << 20
PREFIX = "solpi_engine_"

_METRICS = {attribute: (metric.name.removeprefix(PREFIX), labels) for attribute, metric, labels in ROWS}
_INFO = ("version", "model")


@dataclass(slots=True)
class Transcript:
    """Reads one log; `lines` counts them all, `kinds` those that were recognised."""

    listener: Listener
    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def read(self, file: IO[bytes], name: str, now: float) -> Iterator[dict[str, Any]]:
        """Yield an object for each line that reports something; raise OSError.

        `now` is a time after the last line was written (Unix seconds): stamps have no year. A last line without a
        newline is not complete, and is passed over.
        """
        for line in _lines(file):
            self.lines += 1
            for heard in self.listener.hear(line, name):
                self.kinds[heard.said.event.kind] += 1
                yield described(heard, self.lines, now)

    def summary(self) -> dict[str, Any]:
        """Return what was recognised, and how many lines were passed over."""
        dialect = self.listener.dialect
        return {
            "dialect": None if dialect is None else dialect.name,
            "lines": self.lines,
            "passed_over": self.lines - self.kinds.total(),
            "kinds": {kind: self.kinds[kind] for kind in KINDS},
        }


def described(heard: Heard, line: int, now: float) -> dict[str, Any]:
    """Return one line's report as an object; a time or an engine that it does not tell is None."""
    event = heard.said.event
    time = stamp_time(heard.said.stamp, now) if heard.time is None else heard.time
    engine = getattr(event, "engine", None) or None
    return {"line": line, "time": time, "engine": engine, "kind": event.kind, **_values(event)}


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines; of one that is too long for the daemon, nothing but its end."""
    while line := file.readline(LONGEST_LINE):
        if not line.endswith(b"\n") and len(line) == LONGEST_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE)
            line = b"\n"
        yield line if line.endswith(b"\n") else b"\n"


def _values(event: Event) -> dict[str, Any]:
    match event:
        case Stats(values=values, counted=counted) | Transfer(values=values, counted=counted):
            return _named({**values, **{name: amount for name, amount in counted.items() if amount}})
        case Iteration(seconds=seconds, values=values):
            return _named(values if seconds is None else {**values, "iterations": 1.0, "iteration_seconds": seconds})
        case Preemption(count=count, at_least=at_least):
            return _named({"preemptions_at_least": at_least} if at_least else {"preemptions": count})
        case Capacity():
            return _capacity(event)
        case Setting(values=facts):
            return _facts(facts)
        case Trouble(what):
            return {"errors_total": {what: 1}}
        case Shutdown():
            return {}


def _capacity(event: Capacity) -> dict[str, Any]:
    told = {"kv_cache_capacity_tokens": event.tokens, "max_concurrency": event.concurrency}
    named = _named({name: value for name, value in told.items() if value is not None})
    blocks = {} if event.blocks is None else {"kv_cache_capacity_blocks": event.blocks}
    return {**named, **blocks, **_facts(event.facts)}


def _named(values: Mapping[str, float]) -> dict[str, Any]:
    """Return values under their metrics' names; of a metric with a label, by that."""
    named: dict[str, Any] = {}
    for attribute, value in values.items():
        name, labels = _METRICS[attribute]
        if labels:
            named.setdefault(name, {})[labels[0]] = value
        else:
            named[name] = value
    return named


def _facts(facts: Mapping[str, str]) -> dict[str, Any]:
    info = _chosen(facts, _INFO)
    settings = _chosen(facts, (name for name in facts if name not in _INFO))
    return {name: values for name, values in (("info", info), ("setting_info", settings)) if values}


def _chosen(facts: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: facts[name] for name in names if name in facts}
