"""Holds back what repeats in the program's own log: a GPU in a storm of XIDs must not fill a disk with them."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from structlog.typing import EventDict

MOST = 100  # of one event within SECONDS: one for each GPU, or MIG instance, of a host
SECONDS = 60.0


@dataclass(slots=True)
class _Count:
    begun: float
    number: int = 0


class Repeats:
    """A processor of structlog: passes so many events of a name in a while; the next one tells how many it held."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._counts: dict[str, _Count] = {}

    def __call__(self, _: object, __: str, event: EventDict) -> EventDict:
        """Return the event, or raise DropEvent."""
        held = self._held(str(event["event"]))
        if held is None:
            raise structlog.DropEvent
        return {**event, "held_back": held} if held else event

    def _held(self, name: str) -> int | None:
        """Return how many were held back before this one; None where it is to be held back as well."""
        now = self._now()
        with self._lock:
            count = self._counts.setdefault(name, _Count(now))
            held = 0
            if now - count.begun >= SECONDS:
                held = max(0, count.number - MOST)
                self._counts[name] = count = _Count(now)
            count.number += 1
            return held if count.number <= MOST else None
