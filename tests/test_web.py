"""The HTTP surface, over a real socket."""

import gc
import gzip
import socket
import threading
from collections.abc import Iterator

import pytest

from solpi_exporter.board import Board, Snapshot
from solpi_exporter.collector import BoardCollector
from solpi_exporter.exposition import Exposition
from solpi_exporter.gpu.reading import GpuReading, GpuState
from solpi_exporter.web import CONNECTIONS, HEADER_BYTES, Pages, WebServer
from tests.fakes import FakeClock
from tests.http_client import request

CLOCK = FakeClock()
PENDING: list[str] = []
BROKEN: list[BaseException] = []
FAULTS: list[Exception] = []


def snapshot() -> Snapshot:
    """Return an empty board, or fail with the fault that a test has put in."""
    if FAULTS:
        raise FAULTS[0]
    return Board().snapshot()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Serve an empty board on a free port."""
    exposition = Exposition(BoardCollector(snapshot), lambda: 0, CLOCK, threading.Lock())
    sources = [{"name": "<gpu>", "state": "ok", "age": "0:00:01 ago"}]
    landing = {"version": "9.9", "sources": sources, "gpus": [GpuReading(3, "GPU-a", GpuState.HUNG)]}
    server = WebServer("127.0.0.1", 0, Pages(exposition, lambda: landing, lambda: PENDING, BROKEN.append))
    server.start()
    yield server.port
    server.stop(2.0)
    assert not server.thread.is_alive()


def test_metrics_in_text(port: int) -> None:
    """Without a wish, the text format, uncompressed."""
    answer = request(port, "/metrics")

    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "content-encoding" not in answer.headers
    assert "solpi_build_info{" in answer.text


def test_metrics_in_openmetrics_compressed(port: int) -> None:
    """As Prometheus asks: OpenMetrics and gzip."""
    answer = request(port, "/metrics", Accept="application/openmetrics-text;version=1.0.0", Accept_Encoding="gzip")

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body).endswith(b"# EOF\n")


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready"])
def test_head_is_get_without_body(port: int, path: str) -> None:
    """Load balancers ask with HEAD."""
    head, get = request(port, path, "HEAD"), request(port, path)

    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


def test_ready_names_what_it_waits_for(port: int) -> None:
    """503 with the names while a source has not been polled, 200 after."""
    PENDING.append("gpu")
    waiting = request(port, "/-/ready")
    PENDING.clear()

    assert (waiting.status, waiting.text) == (503, "Waiting for the first poll of: gpu\n")
    assert request(port, "/-/ready").status == 200


def test_landing_page_links_and_escapes(port: int) -> None:
    """It names version, sources and GPUs that are not well, escaped, and links to what there is."""
    page = request(port, "/").text

    assert "solpi-exporter 9.9" in page
    assert "&lt;gpu&gt;" in page
    assert '<td>3</td><td class="down">hung</td><td>GPU-a</td>' in page
    for target in ("metrics", "-/healthy", "-/ready"):
        assert f'href="{target}"' in page
        assert request(port, f"/{target}").status == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/metrics", 405)])
def test_errors_are_plain_text(port: int, method: str, path: str, status: int) -> None:
    """No stack trace, no server name, one line."""
    answer = request(port, path, method)

    assert answer.status == status
    assert answer.headers["server"] == "solpi-exporter"
    assert answer.text.count("\n") == 1


def test_oversized_headers_are_refused(port: int) -> None:
    """A client cannot make the server keep a header without end, and the next one is served."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (2 * HEADER_BYTES))
        assert client.recv(1 << 16) == b""

    assert request(port, "/metrics").status == 200


def test_idle_peers_do_not_keep_others_waiting(port: int) -> None:
    """A hundred connections that say nothing leave a scrape untouched."""
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]

    assert request(port, "/metrics").status == 200
    for one in idle:
        one.close()


def test_more_peers_than_the_limit_do_not_shut_others_out(port: int) -> None:
    """Descriptors are not used up: the oldest idle peer is closed for a new one, and a scrape is served at once."""
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS + 20)]

    assert request(port, "/metrics").status == 200
    idle[0].settimeout(5.0)
    assert idle[0].recv(1) == b""
    for one in idle:
        one.close()


@pytest.mark.parametrize(
    ("accepted", "encoded"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, br", False),
        ("identity", False),
    ],
)
def test_gzip_only_where_it_is_wanted(port: int, accepted: str, encoded: bool) -> None:
    """A quality of 0 is a no."""
    answer = request(port, "/metrics", Accept_Encoding=accepted)

    assert (answer.headers.get("content-encoding") == "gzip") == encoded


def test_a_fault_of_our_own_is_passed_on(port: int) -> None:
    """An exception in rendering is a 500 to the client and is told to the daemon; a client's fault is not."""
    request(port, "/nothing")
    CLOCK.now += 10.0  # or the rendering of before would serve
    FAULTS.append(ZeroDivisionError("a bug in the collector"))
    answer = request(port, "/metrics")
    FAULTS.clear()

    assert answer.status == 500
    assert [str(error) for error in BROKEN] == ["a bug in the collector"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # tornado leaves its socket to gc
def test_a_taken_port_fails_at_once(port: int) -> None:
    """Binding happens before anything is started, in the caller's thread."""
    with pytest.raises(OSError, match="Address already in use"):
        WebServer("127.0.0.1", port, Pages(None, dict, list, print))  # type: ignore[arg-type]
    gc.collect()
