"""The one wrapper that every poll passes through: it times, catches, logs and records.

No source guards itself. What goes wrong in here, outside a source, ends the thread, and the daemon with it.
"""

import threading

from structlog.typing import FilteringBoundLogger

from solpi_exporter.board import Board
from solpi_exporter.clock import Clock
from solpi_exporter.source import NeedsRestart, Source, SourceAbsent, SourceError


class Runner:
    """Polls one source on its interval until told to stop, and says on the board how that went.

    `restart` is why the source needs a new process, None while it does not.
    """

    def __init__(self, source: Source, board: Board, clock: Clock, log: FilteringBoundLogger) -> None:
        self.source = source
        self.restart: str | None = None
        self._board = board
        self._clock = clock
        self._log = log.bind(source=source.name)
        self._complaint: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Poll at fixed distances; a poll that overruns its interval is followed by the next at once."""
        while not stop.is_set():
            begun = self._clock.monotonic()
            self.poll()
            due = begun + self.source.interval  # asked now: a source that fails may want more time
            self._clock.wait(stop, max(0.0, due - self._clock.monotonic()))
        self.source.close()

    def poll_and_close(self) -> None:
        """Poll once, and let go of everything."""
        self.poll()
        self.source.close()

    def poll(self) -> None:
        """Poll once and record the outcome."""
        name = self.source.name
        self._board.begin(name, self._clock.real())
        try:
            readings = self.source.poll()
        except Exception as error:  # noqa: BLE001 - the one place where a source may fail in any way it likes
            self._board.fail(name, error, self._clock.real())
            self._complain(error)
            if isinstance(error, NeedsRestart):
                self.restart = str(error)
        else:
            self._board.succeed(name, readings, self._clock.real(), self._clock.time(), self._clock.monotonic())
            self._recover()

    def _complain(self, error: Exception) -> None:
        """Log a failure when it begins or changes, not at every poll; what is not there is no failure of anything."""
        expected = isinstance(error, SourceError)
        complaint = str(error) if expected else f"{type(error).__name__}: {error}"
        if complaint != self._complaint:
            if isinstance(error, SourceAbsent):
                self._log.warning("source_absent", reason=complaint)
            else:
                self._log.error("source_failed", error=complaint, exc_info=None if expected else error)
        self._complaint = complaint

    def _recover(self) -> None:
        if self._complaint is not None:
            self._log.info("source_recovered")
        self._complaint = None
