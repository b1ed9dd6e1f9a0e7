"""Renders the registry once per change of the board and encoding, and serves the bytes until the next.

Rendering holds the lock that the probe holds while it times steps: ten renderings a second would move its P99.
"""

import gzip
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from solpi_exporter.clock import Clock
from solpi_exporter.collector import BoardCollector

MAX_AGE = 1.0  # seconds for which bytes serve while the board stands still: time stamps of polls move on
TEXT = "text/plain"


@dataclass(slots=True)
class _Rendering:
    version: int
    time: float
    body: bytes
    compressed: bytes | None = None

    def gzip(self) -> bytes:
        if self.compressed is None:
            self.compressed = gzip.compress(self.body, compresslevel=4)
        return self.compressed


class Exposition:
    """What a scrape returns. `version` is the board's; several scrapers share one rendering."""

    def __init__(
        self,
        collector: BoardCollector,
        version: Callable[[], int],
        clock: Clock,
        quiet: AbstractContextManager[object],
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._version = version
        self._clock = clock
        self._quiet = quiet
        self._lock = threading.Lock()
        self._renderings: dict[str, _Rendering] = {}

    def render(self, accept: str = TEXT, *, compress: bool = False) -> tuple[bytes, str]:
        """Return the exposition in the format that `accept` prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            rendering = self._renderings.get(content_type)
            if rendering is None or self._is_old(rendering):
                version, now = self._version(), self._clock.monotonic()
                with self._quiet:
                    rendering = self._renderings[content_type] = _Rendering(version, now, encode(self._registry))
            return (rendering.gzip() if compress else rendering.body), content_type

    def _is_old(self, rendering: _Rendering) -> bool:
        return rendering.version != self._version() or self._clock.monotonic() - rendering.time > MAX_AGE
