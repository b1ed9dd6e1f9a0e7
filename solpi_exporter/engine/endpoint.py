"""An engine's own /metrics as a source: what no log line holds, such as preemptions and latencies."""

import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from socket import SHUT_RDWR, socket
from urllib.parse import urlsplit

from solpi_exporter.engine.reading import EngineReading, EngineUp
from solpi_exporter.engine.scraped import parse
from solpi_exporter.source import OriginGone

LIMIT = 16 << 20  # bytes of an answer; a large server's is a few hundred kB
OK = 200


def fetch(url: str, timeout: float) -> str:
    """Return the whole body at `url`; raise OSError, HTTPException or ValueError where it is not to be had.

    Straight from the server: loopback must not be asked through a proxy that the environment names, and a redirect is
    no answer. `timeout` seconds are the limit of connecting, and then of everything else: each single wait may be
    short while a server drips its answer for ever.
    """
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout)
    overdue = threading.Event()
    try:
        connection.connect()
        timer = threading.Timer(timeout, _cut_off, (connection.sock, overdue))
        timer.start()
        try:
            return _answer(connection, f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}")
        finally:
            timer.cancel()
            if overdue.is_set():  # whatever came of a connection that was cut off
                raise TimeoutError(f"the answer took longer than {timeout:g} s")
    finally:
        connection.close()


def _answer(connection: HTTPConnection, target: str) -> str:
    connection.request("GET", target)
    with connection.getresponse() as response:
        if response.status != OK:
            raise ValueError(f"{response.status} {response.reason}")
        body = response.read(LIMIT + 1)
        if len(body) > LIMIT:
            raise ValueError(f"the answer is larger than {LIMIT >> 20} MiB")
        if response.length:  # a bounded read does not complain of an early end
            raise IncompleteRead(body, response.length)
    return body.decode()


def _cut_off(connected: socket, overdue: threading.Event) -> None:
    overdue.set()
    with suppress(OSError):  # it may have ended by itself this moment
        connected.shutdown(SHUT_RDWR)


class EndpointSource:
    """The /metrics of one server. `refused` says that nothing listens there: the server is known to be gone."""

    def __init__(self, server: str, url: str, interval: float, timeout: float, *, show_histograms: bool) -> None:
        self.name = f"engine_endpoint/{server}"
        self.interval = interval
        self.timeout = 3 * timeout  # connecting and answering each have their own
        self.refused = False
        self._server = server
        self._url = url
        self._fetch_timeout = timeout
        self._show_histograms = show_histograms

    def poll(self) -> list[EngineReading | EngineUp]:
        """Read the endpoint once; raise OriginGone, which says that the engine is not up, when it does not answer."""
        try:
            text = fetch(self._url, self._fetch_timeout)
            readings = list(parse(text, self._server, show_histograms=self._show_histograms))
        except (OSError, HTTPException, ValueError) as error:
            self.refused = isinstance(error, ConnectionRefusedError)
            raise OriginGone(
                f"{self._url} gives no metrics ({error}): is server {self._server} up, and its metrics_url right?",
                [EngineUp(self._server, False)],
            ) from error
        self.refused = False
        return [EngineUp(self._server, True), *readings]

    def close(self) -> None:
        """Nothing is held between polls."""
