"""An engine's log as a source: lines that are followed, read by a dialect, kept as the last thing each engine said.

The values stay while the log is silent, beside the time of the last report: vLLM falls silent when it idles.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from solpi_exporter.clock import Clock
from solpi_exporter.engine.dialect import Capacity, Dialect, Event, Setting, Stats
from solpi_exporter.engine.reading import EngineFacts, EngineReading
from solpi_exporter.engine.vllm import VLLM
from solpi_exporter.follow.lines import Block, Lines
from solpi_exporter.metric import Kind, Metric, Sample

DIALECTS: Mapping[str, Dialect] = MappingProxyType({"vllm": VLLM})

POLL_SECONDS = 0.1
POLL_BYTES = 64 << 20  # read in one poll, some twenty seconds of parsing at worst, within log_timeout

# What a server says before its engine's start line, which therefore does not end it.
TOLD_BEFORE = ("version", "block_size")

_SERVER = ("server",)
LINES = Metric("solpi_log_lines_total", "Complete lines read from a server's log.", Kind.COUNTER, _SERVER)
BYTES = Metric("solpi_log_bytes_total", "Bytes read from a server's log.", Kind.COUNTER, _SERVER)
MATCHED = Metric("solpi_log_matched_lines_total", "Lines that reported something.", Kind.COUNTER, (*_SERVER, "kind"))
LAG = Metric("solpi_log_lag_bytes", "Bytes written to a server's log and not yet read.", labels=_SERVER)
ROTATIONS = Metric(
    "solpi_log_rotations_total", "Files replaced by a new one or cut to nothing.", Kind.COUNTER, (*_SERVER, "how")
)
TRUNCATED = Metric(
    "solpi_log_truncated_lines_total", "Lines above 1 MiB, which are passed over.", Kind.COUNTER, _SERVER
)

METRICS = (LINES, BYTES, MATCHED, LAG, ROTATIONS, TRUNCATED)


@dataclass(frozen=True, slots=True)
class LogReading:
    """How the following of one server's log fares."""

    server: str
    lines: int
    bytes: int
    lag: int | None
    truncated_lines: int
    matched: tuple[tuple[str, int], ...]
    rotations: tuple[tuple[str, int], ...]

    def samples(self) -> Iterator[Sample]:
        """Yield the counters and the lag."""
        yield LINES.sample(self.lines, self.server)
        yield BYTES.sample(self.bytes, self.server)
        if self.lag is not None:
            yield LAG.sample(self.lag, self.server)
        yield TRUNCATED.sample(self.truncated_lines, self.server)
        for kind, count in self.matched:
            yield MATCHED.sample(count, self.server, kind)
        for how, count in self.rotations:
            yield ROTATIONS.sample(count, self.server, how)


class LogSource:
    """The log of one server. `poll_bytes` bounds one poll; the rest follows with the next.

    While `is_dead` says that the server is known to be gone, its last values are not shown.
    """

    interval = POLL_SECONDS

    def __init__(
        self,
        server: str,
        log: Lines,
        dialect: Dialect,
        clock: Clock,
        timeout: float,
        poll_bytes: int = POLL_BYTES,
        is_dead: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = f"engine_log/{server}"
        self.timeout = timeout
        self._server = server
        self._log = log
        self._dialect = dialect
        self._clock = clock
        self._poll_bytes = poll_bytes
        self._is_dead = is_dead
        self._matched = Counter({event.kind: 0 for event in (Stats, Capacity, Setting)})
        self._facts: dict[str, str] = {}
        self._pids: dict[str, int] = {}
        self._stats: dict[str, tuple[Mapping[str, float], float]] = {}
        self._capacity: dict[str, Capacity] = {}

    def poll(self) -> list[EngineReading | EngineFacts | LogReading]:
        """Read what is new; raise SourceError while there is nothing to follow."""
        for block in self._log.read(self._poll_bytes):
            self._take(block)
        if self._is_dead():
            return [self._progress()]
        return [*self._engines(), *self._told(), self._progress()]

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()

    def _take(self, block: Block) -> None:
        for line in block.data.split(b"\n"):
            if any(marker in line for marker in self._dialect.markers):
                said = self._dialect.parse(line.decode(errors="replace"))
                if said is not None and not (block.head and isinstance(said.event, Stats)):
                    self._matched[said.event.kind] += not block.head
                    self._apply(said.event, block.time)
                    if said.pid is not None:
                        self._pids[said.role] = said.pid

    def _apply(self, event: Event, written: float | None) -> None:
        match event:
            case Stats():
                time = stamp_time(event.stamp, self._clock.time()) if written is None else written
                # History may be read in any order; what is seen being written holds, also after the clock was set back.
                if written is not None or time >= self._stats.get(event.engine, ({}, time))[1]:
                    self._stats[event.engine] = (event.values, time)
            case Capacity():
                self._capacity[event.engine] = event
            case Setting(values, server, engine):
                if server:
                    self._facts.clear()
                    self._stats.clear()
                    self._capacity.clear()
                    self._pids.clear()
                if engine is not None:
                    self._stats.pop(engine, None)
                    self._capacity.pop(engine, None)
                    self._facts = {name: self._facts[name] for name in TOLD_BEFORE if name in self._facts}
                self._facts.update(values)

    def _engines(self) -> Iterator[EngineReading]:
        for engine in sorted(self._stats.keys() | self._capacity.keys()):
            values, time = self._stats.get(engine, ({}, None))
            known: dict[str, Any] = dict(values)
            yield EngineReading(
                server=self._server,
                engine=engine,
                kv_cache_capacity_tokens=self._capacity_tokens(engine),
                mean_token_seconds=_mean_token_seconds(values),
                last_report_time=time,
                **known,
            )

    def _capacity_tokens(self, engine: str) -> float | None:
        capacity = self._capacity.get(engine)
        block_size = self._facts.get("block_size")
        if capacity is None or capacity.tokens is not None or capacity.blocks is None or block_size is None:
            return None if capacity is None else capacity.tokens
        return capacity.blocks * int(block_size)

    def _told(self) -> Iterator[EngineFacts]:
        if self._facts or self._pids:
            settings = {name: value for name, value in self._facts.items() if name not in ("version", "model")}
            yield EngineFacts(
                self._server,
                self._facts.get("version"),
                self._facts.get("model"),
                tuple(settings.items()),
                tuple(self._pids.values()),
            )

    def _progress(self) -> LogReading:
        counters = self._log.counters
        return LogReading(
            self._server,
            counters.lines,
            counters.bytes,
            self._log.lag(),
            counters.truncated_lines,
            tuple(self._matched.items()),
            tuple(counters.rotations.items()),
        )


def _mean_token_seconds(values: Mapping[str, float]) -> float | None:
    """Return the mean time between a request's tokens: Little's law over the log's interval; None when idle."""
    running, rate = values.get("running"), values.get("generation_tokens_per_second")
    return running / rate if running and rate else None


def stamp_time(stamp: str, now: float) -> float:
    """Return the Unix time of a line that was not seen being written, by its own stamp `MM-DD HH:MM:SS`.

    The stamp has neither year nor zone: the host's zone and the latest year that does not lie ahead are taken.
    """
    this_year = datetime.fromtimestamp(now).astimezone().year
    for year in (this_year + 1, this_year, this_year - 1):
        try:
            moment = datetime.strptime(f"{year}-{stamp}", "%Y-%m-%d %H:%M:%S").astimezone()
        except ValueError:  # 29 February of another year
            continue
        if moment.timestamp() <= now + timedelta(days=1).total_seconds():
            return min(moment.timestamp(), now)
    return now
