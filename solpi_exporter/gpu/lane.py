"""A thread for calls that may never return: who waits gives up in time, and goes on in another thread.

A thread that is stuck in a driver cannot be ended. It costs nothing while it hangs, and can be asked later whether its
call has come back.
"""

import threading
import time
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from solpi_exporter.gpu.driver import GpuLost, Unavailable
from solpi_exporter.source import SourceError

Result = TypeVar("Result")
Call = tuple[Hashable, Callable[[], Any]]  # what it concerns, and the call
Calls = Generator[Call, Any, Result]  # is sent what each call returns, or thrown what it raises

LEAST_PATIENCE = 1.0  # seconds, if not less, for a call after another one of the same round has used up its time


class Hung(Exception):
    """A call has not returned in time, or one before it for the same thing has not returned yet."""


@dataclass(slots=True)
class _Walk:
    """Goes through a round's calls in a thread, until one is given up by whoever waits."""

    calls: Calls[Any]
    is_stuck: Callable[[Hashable], bool]
    resume: Callable[[], Call]
    key: Hashable = None
    since: float | None = None  # None between calls
    left: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def go(self) -> Any:
        """Return what the round returns; nothing of use once it was left."""
        while True:
            try:
                self.key, job = self.resume()
            except StopIteration as stop:
                return stop.value
            self.resume = partial(self.calls.throw, Hung()) if self.is_stuck(self.key) else self._make(job)
            if self.left:
                return None

    def leave(self, patience: float) -> bool:
        """Give up the call in flight if it takes longer than `patience`; return whether that was so."""
        with self.lock:
            self.left = self.since is not None and time.monotonic() - self.since >= patience
            return self.left

    def remaining(self, patience: float) -> float:
        """Return the seconds for which the call in flight is still waited for."""
        since = self.since
        return patience if since is None else max(0.0, since + patience - time.monotonic())

    def _make(self, job: Callable[[], Any]) -> Callable[[], Call]:
        """Make a call; return what takes the round on with its outcome."""
        self.since = time.monotonic()
        try:
            outcome = partial(self.calls.send, job())
        except (SourceError, GpuLost, Unavailable) as error:
            outcome = partial(self.calls.throw, error)
        with self.lock:
            self.since = None
        return outcome


class Lanes:
    """Makes calls one after the other in one thread, and leaves it to a call that does not give it back."""

    def __init__(self) -> None:
        self._free = ThreadPoolExecutor(1, "gpu-lane")
        self._stuck: dict[Hashable, Future[Any]] = {}

    @property
    def any_stuck(self) -> bool:
        """Whether a thread is still inside a call that was given up."""
        return any(not thread.done() for thread in self._stuck.values())

    def is_stuck(self, key: Hashable) -> bool:
        """Whether a thread is still inside a call for this key that was given up."""
        thread = self._stuck.get(key)
        return thread is not None and not thread.done()

    def run(self, calls: Calls[Result], patience: float) -> Result:
        """Make a round's calls and return what it returns.

        A call that takes longer than `patience` seconds raises Hung in the round, which goes on with the next one; so
        does, at once, a call for a key of which another one is stuck. What a stuck call returns in the end is dropped.
        """
        walk = _Walk(calls, self.is_stuck, partial(next, calls))
        while True:
            thread = self._free.submit(walk.go)
            if self._ends(walk, thread, patience):
                return thread.result()  # type: ignore[no-any-return]
            self._stuck[walk.key] = thread
            self._free.shutdown(wait=False)  # the thread ends with the call, if that ever returns
            self._free = ThreadPoolExecutor(1, "gpu-lane")
            walk, patience = _Walk(calls, self.is_stuck, partial(calls.throw, Hung())), min(patience, LEAST_PATIENCE)

    def attempt(self, key: Hashable, job: Callable[[], Result], patience: float) -> Result:
        """Make one call."""

        def only() -> Calls[Result]:
            result: Result = yield key, job
            return result

        return self.run(only(), patience)

    def close(self) -> None:
        """Let the threads end as soon as their calls return."""
        self._free.shutdown(wait=False)

    @staticmethod
    def _ends(walk: _Walk, thread: Future[Any], patience: float) -> bool:
        """Wait for a walk; return whether it has ended, and not been left."""
        while not thread.done():
            try:
                thread.exception(walk.remaining(patience))
            except TimeoutError:
                if walk.leave(patience):
                    return False
        return True
