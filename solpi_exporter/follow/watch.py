"""The one door to watchdog: tells that something was created, moved or deleted in a directory.

Its events are hints to look now. Whoever asks also looks on its own timer, so a lost event costs a second and never
a line; where inotify is not to be had, the timer is all there is.
"""

import logging
import os
import threading
from dataclasses import dataclass
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
from watchdog.observers.api import BaseObserver, EventEmitter, ObservedWatch

OVERFLOW_LOGGER = "watchdog.observers.inotify_c"
MOST_DIRECTORIES = 32  # the changes of more are found by looking

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

    @property
    def active(self) -> bool:
        """Whether every directory is watched; if not, only looking tells."""
        ...

    @property
    def overflows(self) -> int:
        """How often events came faster than they were taken, and some were dropped."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class _Hint(FileSystemEventHandler):
    """Sets a bit and no more: an exception in a handler would end watchdog's thread without a word."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def on_any_event(self, event: FileSystemEvent) -> None:
        self.event.set()


class _Overflows(logging.Handler):
    """Hears watchdog say that the kernel has dropped events, which it tells its log and nobody else."""

    def __init__(self, hint: threading.Event) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        self._hint = hint

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        self._hint.set()


@dataclass(frozen=True, slots=True)
class _Watched:
    watch: ObservedWatch
    identity: tuple[int, int]


class DirectoryWatcher:
    """watchdog's observer, reduced to one bit. It starts on the first directory; each has a thread, hence a limit.

    A directory that is not there yet is waited for in the nearest one above it that is.
    """

    def __init__(self) -> None:
        self._hint = _Hint()
        self._overflows = _Overflows(self._hint.event)
        logging.getLogger(OVERFLOW_LOGGER).addHandler(self._overflows)
        self._observer: BaseObserver | None = None
        self._watched: dict[str, _Watched] = {}
        self._active = False
        self._hopeless = False

    @property
    def active(self) -> bool:
        """Whether every directory asked for is watched."""
        return self._active

    @property
    def overflows(self) -> int:
        """How often the kernel dropped events of this process."""
        return self._overflows.count

    def watch(self, directories: set[str]) -> None:
        """Bring the watches in line with what the names of `directories` mean now."""
        nearest = dict(map(_nearest, directories))
        wanted = {path: identity for path, identity in nearest.items() if identity is not None}
        if self._observer is not None and not self._observer.is_alive():
            self._stop()
        dead = {one.watch for one in self._observer.emitters if not _lives(one)} if self._observer else set()
        for path, watched in list(self._watched.items()):
            if wanted.get(path) != watched.identity or watched.watch in dead:
                self._forget(path)
        for path in sorted(wanted.keys() - self._watched.keys()):
            if len(self._watched) < MOST_DIRECTORIES and not self._hopeless:
                self._try(path, wanted[path])
        self._active = nearest.keys() == self._watched.keys()

    def changed(self) -> bool:
        """Return whether an event has come since the last call."""
        if not self._hint.event.is_set():
            return False
        self._hint.event.clear()
        return True

    def close(self) -> None:
        """End the observer's threads."""
        logging.getLogger(OVERFLOW_LOGGER).removeHandler(self._overflows)
        self._stop()

    def _try(self, directory: str, identity: tuple[int, int]) -> None:
        try:
            if self._observer is None:
                observer = Observer()
                observer.start()
                self._observer = observer
            watch = self._observer.schedule(self._hint, directory, event_filter=_EVENTS)
        except RuntimeError:  # no thread to be had: watchdog leaves its descriptors open then, so once is enough
            self._hopeless = True
            return
        except OSError:
            return  # no inotify instance or watch left, or gone meanwhile: the caller's timer finds its changes
        self._watched[directory] = _Watched(watch, identity)

    def _forget(self, directory: str) -> None:
        watched = self._watched.pop(directory)
        if self._observer is not None:
            self._observer.unschedule(watched.watch)

    def _stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
        self._observer = None
        self._watched.clear()


def _lives(emitter: EventEmitter) -> bool:
    """Return whether an emitter has its thread, and a watch: watchdog keeps silent when a file system is unmounted."""
    group = getattr(emitter, "_inotify", None)
    return emitter.is_alive() and bool(getattr(group, "_active_callbacks_by_watch", True))


def _nearest(directory: str) -> tuple[str, tuple[int, int] | None]:
    """Return the directory that a name means, or the nearest one above it, with what tells it from its successors.

    Without an identity where it cannot be watched: inotify would raise no error there, and tell of nothing.
    """
    path = os.path.realpath(directory)
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    try:
        status = os.stat(path)
    except OSError:
        return path, None
    return path, (status.st_dev, status.st_ino) if os.access(path, os.R_OK | os.X_OK) else None
