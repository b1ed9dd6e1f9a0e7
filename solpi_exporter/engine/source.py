"""An engine's log as a source: lines that are followed, read by a dialect, kept as the last thing each engine said.

The values stay while the log is silent, beside the time of the last report: vLLM falls silent when it idles. Before a
poll's values are shown they are saved, with the position in the log that they belong to: after a kill at any instant
the next daemon counts from what was last shown, and each line once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from solpi_exporter.clock import Clock
from solpi_exporter.engine.dialects.dialect import KINDS
from solpi_exporter.engine.envelope import Origin
from solpi_exporter.engine.listener import Listener
from solpi_exporter.engine.progress import LogReading
from solpi_exporter.engine.reading import EngineFacts, EngineReading, EngineTroubles
from solpi_exporter.engine.told import Told
from solpi_exporter.follow.lines import Block, LineCounters, Lines
from solpi_exporter.follow.position import Position

POLL_SECONDS = 0.1
POLL_BYTES = 64 << 20  # read in one poll, some twenty seconds of parsing at worst, within log_timeout
WHOLE_LOG = 1 << 62


@dataclass(slots=True)
class LogState:
    """Where a log was read to, and what came of it until there: all of one moment.

    `dialect` is the one recognised; `unfinished` are the lines that have come in part.
    """

    position: Position = field(default_factory=Position)
    counters: LineCounters = field(default_factory=LineCounters)
    matched: dict[str, int] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    dialect: str | None = None
    unfinished: list[Origin] = field(default_factory=list)


Save = Callable[[LogState, bool], bool]  # whether it is saved all the time; returns whether it need not be tried again


def _report_nothing(dialect: str) -> None:
    """Report to nobody."""


def _save_nothing(state: LogState, often: bool) -> bool:
    """Keep nothing."""
    return True


class LogSource:
    """The log of one server. `poll_bytes` bounds one poll; the rest follows with the next.

    The first poll reads to the end all the same, for half its time-out at most: after damage or a power cut, what was
    saved may be older than what was shown, and counters that fall would count again. While `is_dead` says that the
    server is known to be gone, its last values are not shown. Without `counters`, those are an endpoint's to tell.
    `report` is told the dialect when it is recognised.
    """

    interval = POLL_SECONDS

    def __init__(
        self,
        server: str,
        log: Lines,
        listener: Listener,
        clock: Clock,
        timeout: float,
        poll_bytes: int = POLL_BYTES,
        is_dead: Callable[[], bool] = lambda: False,
        saved: LogState | None = None,
        save: Save = _save_nothing,
        counters: bool = True,
        report: Callable[[str], None] = _report_nothing,
    ) -> None:
        self.name = source_name(server)
        self.timeout = timeout
        self._server = server
        self._log = log
        self._listener = listener
        self._recognised = listener.dialect.name if listener.dialect else None if saved is None else saved.dialect
        self._counters = counters
        self._report = report
        self._clock = clock
        self._poll_bytes = poll_bytes
        self._is_dead = is_dead
        self._save = save
        self._matched = {kind: 0 if saved is None else saved.matched.get(kind, 0) for kind in KINDS}
        self._told = Told() if saved is None else saved.told
        self._begun = False
        self._saved: tuple[Position, LineCounters] | None = None

    def poll(self) -> list[EngineReading | EngineFacts | EngineTroubles | LogReading]:
        """Read what is new; raise SourceError while there is nothing to follow."""
        self._read()
        position, counters = self._log.position(), replace(self._log.counters)
        if (position, counters) != self._saved and self._save(self._state(position), True):
            self._saved = position, counters
        progress = LogReading(self._server, counters, tuple(self._matched.items()), self._log.health())
        trouble = self._told.trouble(self._server)
        if self._is_dead():
            return [trouble, progress]
        engines = self._told.engines(self._server, counters=self._counters)
        return [*engines, *self._told.start(self._server, self._recognised or ""), trouble, progress]

    def close(self) -> None:
        """Save where we are, and let go of the log."""
        if self._begun:
            self._save(self._state(self._log.position()), False)
        self._log.close()

    def _read(self) -> None:
        deadline = self._clock.real() + self.timeout / 2
        for block in self._log.read(self._poll_bytes if self._begun else WHOLE_LOG):
            self._take(block)
            if not self._begun and self._clock.real() > deadline:
                break
        self._begun = True

    def _take(self, block: Block) -> None:
        if block.head:
            for heard in self._listener.hear_before(block.data, block.name):
                self._told.learn(heard.said)
        else:
            now, live = self._clock.time(), block.time is not None
            for said, time in self._listener.hear(block.data, block.name):
                self._matched[said.event.kind] += 1
                self._told.take(said, block.time if time is None else time, now, block.name, live=live)
        self._recognise()

    def _recognise(self) -> None:
        dialect = self._listener.dialect
        if dialect is not None and dialect.name != self._recognised:
            self._recognised = dialect.name
            self._report(dialect.name)

    def _state(self, position: Position) -> LogState:
        self._told.settle()
        unfinished = self._listener.unfinished
        return LogState(position, self._log.counters, self._matched, self._told, self._recognised, unfinished)


def source_name(server: str) -> str:
    """Return the name of a server's log as a source, under which its state is kept as well."""
    return f"engine_log/{server}"
