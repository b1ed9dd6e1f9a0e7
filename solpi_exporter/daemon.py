"""The composition root: settings become sources, sources get runners, runners fill the board, the board is served.

The main loop only looks after the rest: polls that hang, the engine's own token, threads that have died.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from solpi_exporter import __version__
from solpi_exporter.board import Board, Entry, State
from solpi_exporter.clock import Clock, SystemClock
from solpi_exporter.collector import BoardCollector
from solpi_exporter.config import ServerSettings, Settings, listen_address
from solpi_exporter.derived import TokenWindow
from solpi_exporter.engine.endpoint import EndpointSource
from solpi_exporter.engine.journal import JournalFollower
from solpi_exporter.engine.lines import Lines
from solpi_exporter.engine.source import DIALECTS, POLL_BYTES, LogSource
from solpi_exporter.engine.tail import Tailer
from solpi_exporter.engine.vllm import VLLM
from solpi_exporter.engine.watch import DirectoryWatcher
from solpi_exporter.exposition import TEXT, Exposition
from solpi_exporter.gpu.driver import Driver, NvmlDriver
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.probe.source import ProbeSource, open_bench, torch_is_there
from solpi_exporter.runner import Runner
from solpi_exporter.source import Source
from solpi_exporter.statedir import StateDir
from solpi_exporter.web import Pages, WebServer

TICK_SECONDS = 1.0
STOP_SECONDS = 1.5  # for all threads together; a stop is over within two
EVERYTHING = 1 << 62
ONE_SHOT_LOG_SECONDS = 600.0  # a log of gigabytes is read to its end
REPORT = "this is a bug: please report the traceback"


@dataclass(frozen=True, slots=True)
class World:
    """What the daemon meets outside: the clock, the driver. The demo and the tests bring their own."""

    clock: Clock = field(default_factory=SystemClock)
    driver: Driver = field(default_factory=NvmlDriver)


class Daemon:
    """Everything that runs, put together. `one_shot` reads logs from their beginning, to their end, in one poll."""

    def __init__(self, settings: Settings, log: FilteringBoundLogger, world: World, *, one_shot: bool = False) -> None:
        self._log = log
        self._clock = world.clock
        self._broken = False
        self._quiet = threading.Lock()
        self._resources = ExitStack()
        if settings.state_dir is not None:
            self._resources.callback(StateDir(Path(settings.state_dir)).close)
        self.board = Board()
        servers = settings.engine.server if settings.engine.enabled else ()
        sources = list(_sources(settings, servers, world, self._quiet, one_shot=one_shot))
        for source in sources:
            self.board.add(source.name, source.timeout)
        for name, state in _set_aside(settings, servers):
            self.board.set_aside(name, state)
        self._runners = [Runner(source, self.board, self._clock, log) for source in sources]
        gpus = {server.name: [str(gpu) for gpu in server.gpus] for server in servers}
        self._window = TokenWindow(gpus, max(15.0, settings.engine.endpoint_interval))
        self._exposition = Exposition(
            BoardCollector(self.board.snapshot, self._derived), self._version, self._clock, self._quiet
        )

    def once(self) -> tuple[str, int]:
        """Poll every source once, each in a thread of its own; return the exposition and the exit status."""
        threads = [threading.Thread(target=runner.poll_and_close, daemon=True) for runner in self._runners]
        for thread in threads:
            thread.start()
        begun = self._clock.real()
        for thread, runner in zip(threads, self._runners, strict=True):
            thread.join(max(0.0, begun + runner.source.timeout - self._clock.real()))
        polled = {entry.source: any(entry.polls.values()) for entry in self._entries()}
        died = [
            runner.source.name
            for thread, runner in zip(threads, self._runners, strict=True)
            if not thread.is_alive() and not polled[runner.source.name]
        ]
        if died:
            self._log.critical("thread_died", threads=died, remedy=REPORT)
        self._expire(force=True)
        return self._exposition.render(TEXT)[0].decode(), int(bool(died))

    def bind(self, listen: str) -> WebServer:
        """Take the address; raise OSError where it cannot be had."""
        return WebServer(*listen_address(listen), Pages(self._exposition, self._landing, self.pending, self._break))

    def serve(self, web: WebServer, stop: threading.Event) -> int:
        """Run until `stop`; return the exit status: 0 when asked to stop, 1 when something broke that never should."""
        threads = [
            threading.Thread(target=runner.run, args=(stop,), name=runner.source.name, daemon=True)
            for runner in self._runners
        ]
        for thread in threads:
            thread.start()
        web.start()
        status = self._watch([*threads, web.thread], stop)
        stop.set()
        web.stop(STOP_SECONDS / 2)
        for thread in threads:
            thread.join(STOP_SECONDS / 2 / len(threads))
        self._resources.close()
        self._log.info("stopped", status=status)
        return status

    def pending(self) -> list[str]:
        """Return the sources that have not been polled yet; the probe, whose first run is long, does not count."""
        return [entry.source for entry in self._entries() if entry.state is State.PENDING and entry.source != "probe"]

    def _watch(self, threads: list[threading.Thread], stop: threading.Event) -> int:
        while not self._clock.wait(stop, TICK_SECONDS):
            self._expire()
            self._window.observe(self.board.snapshot())
            dead = [thread.name for thread in threads if not thread.is_alive()]
            if dead and not stop.is_set():
                self._log.critical("thread_died", threads=dead, remedy=REPORT)
                return 1
            if self._broken:
                return 1
        return 0

    def _break(self, error: BaseException) -> None:
        """Take note of a fault of our own in answering a request; the main loop ends the process for it."""
        self._log.critical("answer_failed", error=repr(error), exc_info=error, remedy=REPORT)
        self._broken = True

    def _expire(self, *, force: bool = False) -> None:
        """Mark hung sources; with `force`, every source whose poll is still in flight."""
        now = EVERYTHING if force else self._clock.real()
        for name in self.board.expire(now):
            self._log.error("source_hung", source=name, remedy="its values are withdrawn until the call returns")

    def _derived(self) -> Iterator[Any]:
        for token in self._window.tokens:
            yield from token.samples()

    def _entries(self) -> tuple[Entry, ...]:
        return self.board.snapshot().entries

    def _version(self) -> int:
        return self.board.snapshot().version

    def _landing(self) -> dict[str, Any]:
        now = self._clock.time()
        return {"version": __version__, "sources": [_row(entry, now) for entry in self._entries()]}


def _row(entry: Entry, now: float) -> dict[str, str]:
    return {"name": entry.source, "state": entry.state.value, "age": _age(entry.success_time, now)}


def _age(time: float | None, now: float) -> str:
    if time is None:
        return "never"
    seconds = round(max(0.0, now - time))
    return f"{seconds} s ago" if seconds < 120 else f"{timedelta(seconds=seconds)} ago"


def _sources(
    settings: Settings, servers: Sequence[ServerSettings], world: World, quiet: threading.Lock, *, one_shot: bool
) -> Iterator[Source]:
    """Yield what is to be polled, in the order of precedence: an endpoint is more exact than a log."""
    if settings.gpu.enabled:
        yield GpuSource(world.driver, world.clock, settings.gpu.interval, settings.gpu.timeout)
    engine = settings.engine
    endpoints = {
        server.name: EndpointSource(
            server.name,
            server.metrics_url,
            engine.endpoint_interval,
            engine.endpoint_timeout,
            show_histograms=engine.histograms,
        )
        for server in servers
        if server.metrics_url is not None
    }
    yield from endpoints.values()
    for server in servers:
        if server.logs or server.journal is not None:
            yield _log_source(settings, server, world.clock, endpoints.get(server.name), one_shot=one_shot)
    if _probe_state(settings) is None:
        probe = settings.probe
        bench = partial(open_bench, probe.device, probe.shape, probe.batches)
        yield ProbeSource(bench, probe.batches, quiet, world.clock, probe.interval)


def _log_source(
    settings: Settings, server: ServerSettings, clock: Clock, endpoint: EndpointSource | None, *, one_shot: bool
) -> LogSource:
    beginning = one_shot or settings.engine.read_from == "beginning"
    dialect = VLLM if server.dialect == "auto" else DIALECTS[server.dialect]
    log: Lines
    if server.journal is not None:
        log = JournalFollower(server.journal, from_beginning=beginning, follow=not one_shot, clock=clock)
    else:
        watcher = DirectoryWatcher()
        log = Tailer(server.logs, from_beginning=beginning, start=dialect.start, watcher=watcher, clock=clock)
    return LogSource(
        server.name,
        log,
        dialect,
        clock,
        timeout=ONE_SHOT_LOG_SECONDS if one_shot else settings.engine.log_timeout,
        poll_bytes=EVERYTHING if one_shot else POLL_BYTES,
        is_dead=lambda: endpoint is not None and endpoint.refused,
    )


def _set_aside(settings: Settings, servers: Sequence[ServerSettings]) -> Iterator[tuple[str, State]]:
    if not settings.gpu.enabled:
        yield "gpu", State.OFF
    if not servers:
        yield "engine", State.ABSENT if settings.engine.enabled else State.OFF
    state = _probe_state(settings)
    if state is not None:
        yield "probe", state


def _probe_state(settings: Settings) -> State | None:
    """Return why the probe does not run, None where it does."""
    match settings.probe.enabled:
        case False:
            return State.OFF
        case "auto" if not torch_is_there():
            return State.ABSENT
    return None
