"""The probe in a process of its own: asked by `remote.py`, over the socket that is its standard input.

It runs what the exporter's own thread would, under any Python with torch: nothing here, or imported from here, may
need more than torch, pynvml and the standard library.
"""

import os
import socket
import sys
import threading
import time
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue

from solpi_exporter import __version__
from solpi_exporter.probe.messages import Answer, BatchWanted, Beat, CostsWanted, Damaged, receive, send
from solpi_exporter.probe.plan import Opening
from solpi_exporter.probe.result import BatchResult, Bench, Costs, Identity
from solpi_exporter.probe.source import open_bench
from solpi_exporter.source import SourceError

BEAT_SECONDS = 1.0


def main(version: str) -> None:
    """Answer until the socket closes; end with a line where the one who asks has other code than this."""
    if version != __version__:
        sys.exit(f"solpi-exporter is {__version__} on disk and {version} in the daemon: restart the daemon")
    connection = _standard_input()
    requests: SimpleQueue[object] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, requests), daemon=True).start()
    worker = Worker(connection)
    while True:
        worker.answer(requests.get())


def _standard_input() -> socket.socket:
    """Return the socket, out of the way of what else reads standard input, and of what torch may start."""
    connection = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return connection


def _listen(connection: socket.socket, requests: SimpleQueue[object]) -> None:
    """Hand requests on. Once nobody asks any more, end the process at once: the other thread may hang in CUDA."""
    with suppress(EOFError, OSError, Damaged):
        while True:
            requests.put(receive(connection))
    os._exit(0)


class Pulse(AbstractContextManager[None]):
    """Held while steps are timed, where nobody in this process has to keep quiet: tells, before them, that it goes on.

    At most once a second, since whoever reads it needs a CPU for that.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._last = time.monotonic()

    def __enter__(self) -> None:
        now = time.monotonic()
        if now - self._last >= BEAT_SECONDS:
            self._last = now
            send(self._connection, Beat())

    def __exit__(self, *_: object) -> None:
        pass


class Worker:
    """Answers with what its bench says, or the SourceError that it raises; any other error is a bug and ends it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pulse = Pulse(connection)
        self._bench: Bench | None = None

    def answer(self, request: object) -> None:
        """Do what is asked for, and say what came of it."""
        try:
            value = self._do(request)
        except SourceError as error:
            send(self._connection, error)
        else:
            send(self._connection, Answer(value, None if self._bench is None else self._bench.used))

    def _do(self, request: object) -> Identity | Costs | BatchResult:
        if isinstance(request, Opening):
            self._bench = open_bench(request)
            return self._bench.identity
        assert self._bench is not None
        if isinstance(request, BatchWanted):
            return self._bench.measure(request.batch, self._pulse)
        assert isinstance(request, CostsWanted)
        return self._bench.costs(self._pulse)
