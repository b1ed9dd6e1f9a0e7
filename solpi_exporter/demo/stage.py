"""The stage that the daemon plays on: a log that is written as it was, and a /metrics that answers as it did."""

import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from solpi_exporter.clock import Clock
from solpi_exporter.demo.timeline import Timeline

WRITE_SECONDS = 0.2


class LogWriter:
    """Appends the recorded lines that have become due; a new round begins a new file, as log rotation would."""

    def __init__(self, path: Path, timeline: Timeline) -> None:
        self._path = path
        self._timeline = timeline
        self._lines = timeline.lines()
        self._round = 0
        self._written = 0
        self._file = self._open()

    def write_due(self) -> None:
        """Write everything up to the present position."""
        now = self._timeline.now()
        if now.round != self._round:
            self._write(self._timeline.seconds)
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file, self._round, self._written = self._open(), now.round, 0
        self._write(now.elapsed)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> TextIO:
        return self._path.open("w", encoding="utf-8", newline="")

    def _write(self, elapsed: float) -> None:
        end = bisect_right(self._lines, elapsed, lo=self._written, key=itemgetter(0))
        self._file.writelines(f"{line}\n" for _, line in self._lines[self._written : end])
        self._file.flush()
        self._written = end


class MetricsServer(ThreadingHTTPServer):
    """Serves the recorded server's /metrics of now, on a free port of loopback."""

    daemon_threads = True

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(("127.0.0.1", 0), _MetricsHandler)
        self.timeline = timeline

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}/metrics"


class _MetricsHandler(BaseHTTPRequestHandler):
    server: MetricsServer

    def do_GET(self) -> None:
        now = self.server.timeline.now()
        body = now.run.metrics.text(now.time).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


@contextmanager
def playing(log_file: Path, timeline: Timeline, clock: Clock) -> Iterator[MetricsServer]:
    """Play the recording into `log_file` and on a loopback port for as long as the context lasts."""
    stop = threading.Event()
    writer = LogWriter(log_file, timeline)
    writer.write_due()  # the daemon finds a file with the server's start-up in it

    def write() -> None:
        while not clock.wait(stop, WRITE_SECONDS):
            writer.write_due()

    server = MetricsServer(timeline)
    threads = [
        threading.Thread(target=write, daemon=True),
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join()
        writer.close()
