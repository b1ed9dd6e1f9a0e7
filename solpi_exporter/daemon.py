"""The composition root: settings become sources, sources get runners, runners fill the board, the board is served.

The main loop only looks after the rest: polls that hang, the engine's own token, threads that have died, and what the
service manager is told.
"""

import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from solpi_exporter import __version__
from solpi_exporter.board import Board, Entry, State
from solpi_exporter.collector import BoardCollector
from solpi_exporter.config import Settings, listen_address
from solpi_exporter.derived import TokenWindow
from solpi_exporter.exposition import TEXT, Exposition
from solpi_exporter.gpu.reading import GpuState
from solpi_exporter.gpu.remembered import RememberedGpus
from solpi_exporter.gpu.xid import CatalogueReading
from solpi_exporter.kept import Kept
from solpi_exporter.neighbours import Neighbours
from solpi_exporter.overview.figures import FIGURES
from solpi_exporter.overview.page import overview
from solpi_exporter.overview.recent import Recent
from solpi_exporter.reloads import Reload
from solpi_exporter.runner import Runner
from solpi_exporter.source import Reading, Source
from solpi_exporter.sources import Sources, World, make_placer
from solpi_exporter.statedir import QUIESCED, RUNNING, StateDir
from solpi_exporter.web import Pages, Protection, WebServer

TICK_SECONDS = 2.0
STOP_SECONDS = 1.5  # for all threads together; a stop is over within two
EVERYTHING = 1 << 62
REPORT = "this is a bug: please report the traceback"
RESTART = 75  # EX_TEMPFAIL of sysexits.h: asks systemd (Restart=on-failure) for a new process, and is no fault of ours
ON_THE_DRIVER = frozenset({"gpu", "gpu_events", "probe"})  # sources that keep a GPU from being reset


class Daemon:
    """Everything that runs, put together.

    `one_shot` reads logs from their beginning, to their end, in one poll; `quiesced` leaves the driver alone.
    """

    def __init__(
        self,
        settings: Settings,
        log: FilteringBoundLogger,
        world: World,
        *,
        one_shot: bool = False,
        quiesced: bool = False,
    ) -> None:
        self._log = log
        self._clock = world.clock
        self._supervisor = world.supervisor
        self._reloads = world.reloads
        self._broken = False
        self._quiet = threading.Lock()
        self._resources = ExitStack()
        self._state: StateDir | None = None
        if settings.state_dir is not None and not one_shot:
            self._state = StateDir(Path(settings.state_dir), QUIESCED if quiesced else RUNNING)
            self._resources.callback(self._state.close)
        self.board = Board()
        self._kept = Kept(self._state, log, self._clock)
        self._remembered = RememberedGpus(self._kept, settings.gpu.expected)
        self._placer = make_placer(settings.engine.server if settings.engine.enabled else ())
        self._neighbours = Neighbours(self._clock)
        snapshot = self.board.snapshot
        sources = Sources(
            settings,
            world,
            log,
            self._quiet,
            snapshot,
            self._placer,
            self._kept,
            self._remembered,
            self._neighbours,
            one_shot=one_shot,
        )
        polled = list(self._listed(sources.polled(), quiesced=quiesced))
        for name, state in sources.set_aside():
            self.board.set_aside(name, state)
        self._runners = [Runner(source, self.board, self._clock, log) for source in polled]
        self._window = TokenWindow(max(15.0, settings.engine.endpoint_interval))
        self._recent = Recent()
        self._placement = self._placer.place(snapshot())
        self._joined = 0  # the board's version at the last join
        self._exposition = Exposition(
            BoardCollector(self.board.snapshot, self._derived), self._version, self._clock, self._quiet
        )

    def once(self) -> tuple[str, int]:
        """Poll every source once, each in a thread of its own; return the exposition and the exit status."""
        threads = [threading.Thread(target=runner.poll_and_close, daemon=True) for runner in self._runners]
        begun = self._clock.real()
        self._start(threads)
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
        self._placer.learn(self.board.snapshot())
        self._placement = self._placer.place(self.board.snapshot())
        return self._exposition.render(TEXT)[0].decode(), int(bool(died))

    def _start(self, threads: Sequence[threading.Thread]) -> None:
        """Start what polls once; the probe after its GPU was read, whose condition may forbid it."""
        later = []
        for thread, runner in zip(threads, self._runners, strict=True):
            if runner.source.name == "probe":
                later.append(thread)
            else:
                thread.start()
        for thread, runner in zip(threads, self._runners, strict=True):
            if later and runner.source.name == "gpu":
                thread.join(runner.source.timeout)
        self._neighbours.observe(self.board.snapshot(), self._placement.own)
        for thread in later:
            thread.start()

    def bind(
        self,
        listen: str,
        reload: Reload | None = None,
        inherited: Sequence[socket.socket] = (),
        protection: Protection | None = None,
    ) -> WebServer:
        """Take the address, or sockets that listen already; raise OSError where it cannot be had.

        `reload` is what may be asked for there, `protection` keeps others out.
        """
        pages = Pages(self._exposition, self._landing, self.pending, self._break, reload, protection or Protection())
        return WebServer(*listen_address(listen), pages, inherited)

    def serve(self, web: WebServer, stop: threading.Event) -> int:
        """Run until `stop`; return the exit status.

        0 when asked to stop, 1 when something broke that never should, RESTART when only a new process can go on.
        """
        self._neighbours.observe(
            self.board.snapshot(), self._placement.own
        )  # so that the probe waits for the first look at its GPU
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
        self._tell()
        while not self._clock.wait(stop, TICK_SECONDS):
            self._expire()
            self._join()
            self._tell()
            dead = [thread.name for thread in threads if not thread.is_alive()]
            if dead and not stop.is_set():
                self._log.critical("thread_died", threads=dead, remedy=REPORT)
                return 1
            if self._broken:
                return 1
            if self._needs_restart():
                return RESTART
        return 0

    def _tell(self) -> None:
        """Tell the service manager how it goes."""
        self._supervisor.look(self._entries(), is_ready=not self.pending(), now=self._clock.real())

    def _join(self) -> None:
        """Work out what several sources say together, when one of them says something new."""
        snapshot = self.board.snapshot()
        if snapshot.version == self._joined:
            return
        self._joined = snapshot.version
        self._placement = self._placer.place(snapshot)
        self._neighbours.observe(snapshot, self._placement.own)
        self._recent = self._recent.extended(snapshot)
        if self._placement.gpus:
            self._window.observe(snapshot, self._placement.gpus)

    def _needs_restart(self) -> bool:
        """Return whether a source can go on in a new process only, and log why."""
        reasons = {runner.source.name: runner.restart for runner in self._runners if runner.restart is not None}
        for source, reason in reasons.items():
            self._log.warning("restarting", source=source, reason=reason)
        return bool(reasons)

    def _listed(self, sources: Iterable[Source], *, quiesced: bool) -> Iterator[Source]:
        """Put every source on the board, and yield those that are polled."""
        for source in sources:
            if quiesced and source.name in ON_THE_DRIVER:
                self.board.set_aside(source.name, State.QUIESCED, self._notices(source.name))
            else:
                self.board.add(source.name, source.timeout)
                yield source

    def _notices(self, source: str) -> Iterable[Reading]:
        """Return what is told of a source that was let go of: which GPUs there are."""
        return tuple(self._remembered.readings(GpuState.QUIESCED)) if source == "gpu" else ()

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
        if self._remembered.count:  # beside the GPUs, whatever becomes of the source that counts their XIDs
            yield from CatalogueReading().samples()
        yield from self._kept.samples()
        if self._reloads is not None:
            yield from self._reloads.samples()
        yield from self._placement.samples()
        for token in self._window.tokens:
            yield from token.samples()

    def _entries(self) -> tuple[Entry, ...]:
        return self.board.snapshot().entries

    def _version(self) -> int:
        return self.board.snapshot().version

    def _landing(self) -> dict[str, Any]:
        """Return what the landing page shows, made for whoever asks: nothing is worked out while nobody does."""
        snapshot = self.board.snapshot()
        page = overview(snapshot, self._window.tokens, self._recent.extended(snapshot), self._clock.time())
        return {"version": __version__, "page": page, **FIGURES}
