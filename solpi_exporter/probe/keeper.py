"""Keeps one worker: when a new one may be started after one was lost. `remote.py` asks the one that runs."""

from collections.abc import Callable
from datetime import UTC, datetime

from solpi_exporter.clock import Clock
from solpi_exporter.probe.child import Child
from solpi_exporter.source import SourceError

BACK_OFF = (60.0, 300.0, 900.0, 3600.0)  # seconds, by how many were lost in a row


class Keeper:
    """Has `start` make a worker where there is none, later each time, and never beside one that cannot be ended."""

    def __init__(self, start: Callable[[], Child], clock: Clock) -> None:
        self._start = start
        self._clock = clock
        self._child: Child | None = None
        self._stuck: Child | None = None  # what could not be ended
        self._losses = 0  # in a row
        self._due = clock.monotonic()
        self._why = self._again = ""

    def child(self) -> Child:
        """Return the worker that runs, or a new one; raise SourceError why there can be none now."""
        if self._child is None:
            if self._is_stuck() or self._clock.monotonic() < self._due:
                raise SourceError(self._refusal())
            self._child = self._start()
        return self._child

    def lose(self, why: str) -> SourceError:
        """End the worker, and return what is to be said for that until the next may be started."""
        child, self._child = self._child, None
        if child is not None and not child.end():
            self._stuck = child
        pause = BACK_OFF[min(self._losses, len(BACK_OFF) - 1)]
        self._losses += 1
        self._due = self._clock.monotonic() + pause
        # A time of day, since what changes from poll to poll would be logged at each.
        self._why, self._again = why, f"{datetime.fromtimestamp(self._clock.time() + pause, UTC):%Y-%m-%d %H:%M:%S}"
        return SourceError(self._refusal())

    def trust(self) -> None:
        """Take losses before as over: the worker does its work."""
        self._losses = 0

    def close(self) -> None:
        """End the worker."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _is_stuck(self) -> bool:
        if self._stuck is not None and self._stuck.has_ended:
            self._stuck = None
        return self._stuck is not None

    def _refusal(self) -> str:
        if self._stuck is None:
            return f"{self._why}; tried again at {self._again} UTC"
        return (
            f"{self._why}; process {self._stuck.pid} cannot be killed, and none is started beside it: it hangs in the "
            "driver, see dmesg; where it stays, only a reboot frees its GPU"
        )
