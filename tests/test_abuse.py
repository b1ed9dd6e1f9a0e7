"""What clients may do to the HTTP server of a real daemon: a normal scrape stays quick, and memory and threads stay."""

import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest

from benchmarks.faults.daemon import Daemon, running
from benchmarks.processes import resident
from tests.http_client import request
from tests.serving import eventually

SETTINGS = """
[gpu]
enabled = false
[probe]
enabled = false
"""
SCRAPES = 21
LIMIT_SECONDS = 0.1
MOST_MIB = 8.0  # by which memory may differ: buffers of what is open
PEERS = 1000
SCRAPERS = 50

Abuse = Callable[[int, ExitStack], None]  # of a port; what it opens is closed with the stack


def _connected(port: int, stack: ExitStack, said: bytes) -> None:
    one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
    one.sendall(said)


def idle(port: int, stack: ExitStack) -> None:
    """Connect a thousand times, and say nothing."""
    for _ in range(PEERS):
        _connected(port, stack, b"")


def slow_headers(port: int, stack: ExitStack) -> None:
    """Begin a thousand requests, and end none."""
    for _ in range(PEERS):
        _connected(port, stack, b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Slow: ")


def slow_bodies(port: int, stack: ExitStack) -> None:
    """Promise bodies that do not come."""
    for _ in range(PEERS):
        _connected(port, stack, b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n")


def handshakes(port: int, stack: ExitStack) -> None:
    """Speak TLS to it, as far as half a greeting."""
    for _ in range(PEERS):
        _connected(port, stack, b"\x16\x03\x01\x02\x00\x01\x00\x01")


def too_large(port: int, stack: ExitStack) -> None:
    """Send headers and bodies beyond all bounds; who is cut off in the middle does not mind."""
    for said in (
        b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 20),
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    ):
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port), 5.0) as one:
                try:
                    one.sendall(said)
                    one.recv(1 << 16)
                except (ConnectionError, TimeoutError):
                    continue


def malformed(port: int, stack: ExitStack) -> None:
    """Send what is no request."""
    for said in (
        b"\0" * 999,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"\r\n" * 99,
    ):
        for _ in range(50):
            _connected(port, stack, said)


def storm(port: int, stack: ExitStack) -> None:
    """Let fifty scrapers ask ten times a second each, until the end."""
    stop = Event()

    def scrape() -> None:
        while not stop.wait(0.1):
            request(port, "/metrics")

    threads = [Thread(target=scrape, daemon=True) for _ in range(SCRAPERS)]
    for thread in threads:
        thread.start()
        stack.callback(thread.join, 10.0)
    stack.callback(stop.set)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Run a daemon that has nothing to do but to answer."""
    with running(Daemon(tmp_path_factory.mktemp("host"), SETTINGS, os.environ)) as one:
        assert eventually(lambda: one.page() is not None)
        yield one


def scrape_seconds(port: int) -> list[float]:
    found = []
    for _ in range(SCRAPES):
        begun = time.perf_counter()
        assert request(port, "/metrics").status == 200
        found.append(time.perf_counter() - begun)
    return found


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.mark.parametrize("abuse", [idle, slow_headers, slow_bodies, handshakes, too_large, malformed, storm])
def test_a_scrape_stays_quick_and_memory_flat(abuse: Abuse, daemon: Daemon) -> None:
    """Half of all scrapes meanwhile take less than a tenth of a second; nothing is started for a client."""
    assert daemon.process is not None
    pid = daemon.process.pid
    scrape_seconds(daemon.port)
    memory, threads = resident(pid), threads_of(pid)

    with ExitStack() as stack:
        abuse(daemon.port, stack)
        took = scrape_seconds(daemon.port)
        grown = resident(pid) - memory

        assert statistics.median(took) < LIMIT_SECONDS, took
        assert grown < MOST_MIB
        assert threads_of(pid) == threads
