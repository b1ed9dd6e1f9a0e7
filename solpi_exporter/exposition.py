"""Renders the board once per change and encoding, and serves the bytes until the next.

Rendering holds the lock that the probe holds while it times steps: ten renderings a second would move its P99.
"""

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from solpi_exporter.clock import Clock
from solpi_exporter.collector import BoardCollector
from solpi_exporter.render import Renderer

MAX_AGE = 1.0  # seconds for which bytes serve while the board stands still: time stamps of polls move on
QUIET_SECONDS = 1.0  # waited for the probe's lock: far above its regular holds, and a step that hangs holds no scrape

# The two formats, as prometheus_client is asked for them: a client's own wording would be a cache entry of its own.
TEXT = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(slots=True)
class _Rendering:
    version: int
    time: float
    content_type: str
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
        quiet: threading.Lock,
    ) -> None:
        self._collector = collector
        self._renderer = Renderer()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._version = version
        self._clock = clock
        self._quiet = quiet
        self._lock = threading.Lock()
        self._renderings: dict[str, _Rendering] = {}
        self._in_vain = False

    def render(self, accept: str = TEXT, *, compress: bool = False) -> tuple[bytes, str]:
        """Return the exposition in the format that `accept` prefers, and its content type."""
        wanted = OPENMETRICS if OPENMETRICS.partition(";")[0] in accept else TEXT
        with self._lock:
            rendering = self._renderings.get(wanted)
            if rendering is None or self._is_old(rendering):
                rendering = self._renderings[wanted] = self._render(wanted)
            return (rendering.gzip() if compress else rendering.body), rendering.content_type

    def _render(self, wanted: str) -> _Rendering:
        version, now = self._version(), self._clock.monotonic()
        taken = self._quiet.acquire(timeout=0.0 if self._in_vain else QUIET_SECONDS)
        self._in_vain = not taken  # a step that hangs is not waited for again until its lock has been free
        try:
            return _Rendering(version, now, *self._written(wanted))
        finally:
            if taken:
                self._quiet.release()

    def _written(self, wanted: str) -> tuple[str, bytes]:
        """Return content type and body, which ends with the process's own figures and what ends the format."""
        encode, content_type = choose_encoder(wanted)
        ours = self._renderer.render(self._collector.collect(), openmetrics=wanted == OPENMETRICS)
        return content_type, ours + encode(self._process)

    def _is_old(self, rendering: _Rendering) -> bool:
        return rendering.version != self._version() or self._clock.monotonic() - rendering.time > MAX_AGE
