"""The one door to watchdog: tells that something was created, moved or deleted in a directory.

Its events are hints to look now. Whoever asks also looks on its own timer, so a lost event costs a second and never
a line; where inotify is not to be had, the timer is all there is.
"""

import threading
from typing import Protocol

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

# Without modifications: following growth by events costs fifty times the CPU of asking for the size.
_EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
]


class Watcher(Protocol):
    """Tells whether it is worth looking into the watched directories again."""

    def watch(self, directories: set[str]) -> None:
        """Watch exactly these; one that cannot be watched, or does not exist yet, is tried again next time."""
        ...

    def changed(self) -> bool:
        """Return whether anything has happened since the last call."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class _Hint(FileSystemEventHandler):
    def __init__(self) -> None:
        self.event = threading.Event()

    def on_any_event(self, event: FileSystemEvent) -> None:
        self.event.set()


class DirectoryWatcher:
    """watchdog's observer, reduced to one bit. It starts on the first directory and runs one thread."""

    def __init__(self) -> None:
        self._hint = _Hint()
        self._observer: BaseObserver | None = None
        self._watches: dict[str, ObservedWatch] = {}

    def watch(self, directories: set[str]) -> None:
        """Bring the watches in line with `directories`."""
        for gone in self._watches.keys() - directories:
            self._forget(gone)
        for new in directories - self._watches.keys():
            self._try(new)

    def changed(self) -> bool:
        """Return whether an event has come since the last call."""
        changed = self._hint.event.is_set()
        self._hint.event.clear()
        return changed

    def close(self) -> None:
        """End the observer's thread."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()

    def _try(self, directory: str) -> None:
        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        try:
            self._watches[directory] = self._observer.schedule(self._hint, directory, event_filter=_EVENTS)
        except OSError:
            return  # not there yet, or no inotify watch left: the caller's timer finds its changes

    def _forget(self, directory: str) -> None:
        watch = self._watches.pop(directory)
        if self._observer is not None:
            self._observer.unschedule(watch)
