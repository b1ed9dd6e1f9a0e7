"""The HTTP surface, over a real socket."""

import base64
import gc
import gzip
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from solpi_exporter.board import Board, Snapshot
from solpi_exporter.collector import BoardCollector
from solpi_exporter.exposition import Exposition
from solpi_exporter.overview.engines import Engine
from solpi_exporter.overview.figures import FIGURES
from solpi_exporter.overview.gpus import Gpu
from solpi_exporter.overview.page import Overview, SourceState
from solpi_exporter.overview.probe import Batch, Probe
from solpi_exporter.overview.split import split_of
from solpi_exporter.web import CONNECTIONS, HEADER_BYTES, Pages, WebServer
from tests.fakes import FakeBench, FakeClock
from tests.http_client import request

CLOCK = FakeClock()
PENDING: list[str] = []
BROKEN: list[BaseException] = []
FAULTS: list[Exception] = []
IDENTITY = FakeBench({}).identity
SPLIT = split_of(0.010, 0.25, {"busy": 0.0075, "lost": 0.0025})
NOISY = Batch(32, None, None, None, None, None)


def snapshot() -> Snapshot:
    """Return an empty board, or fail with the fault that a test has put in."""
    if FAULTS:
        raise FAULTS[0]
    return Board().snapshot()


def landing() -> dict[str, Any]:
    """Return what the page shows of hosts where little is known, or fail with the fault that a test has put in."""
    if FAULTS:
        raise FAULTS[0]
    page = Overview(
        (Gpu("3", "NVIDIA H200", "no_permission", uuid="GPU-a"),),
        (Engine(server="s", name="0", stale=600.0, running=0.0), Engine(server="t", name="1", mean=0.01, split=SPLIT)),
        Probe("ok", 3.0, IDENTITY, "quiet", (Batch(8, "measured", SPLIT, 4.0, 0.01, 0.02), NOISY)),
        (SourceState("<gpu>", "ok", 1.0), SourceState("probe", "pending", None)),
    )
    return {"version": "9.9", "page": page, **FIGURES}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Serve an empty board on a free port."""
    exposition = Exposition(BoardCollector(snapshot), lambda: 0, CLOCK, threading.Lock())
    server = WebServer("127.0.0.1", 0, Pages(exposition, landing, lambda: PENDING, BROKEN.append))
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


@pytest.mark.parametrize(("method", "status"), [("POST", 403), ("PUT", 403), ("GET", 405), ("HEAD", 405)])
def test_reloading_is_off_unless_it_was_switched_on(port: int, method: str, status: int) -> None:
    """And is never done by looking at a page."""
    assert request(port, "/-/reload", method).status == status


def test_landing_page_links_and_escapes(port: int) -> None:
    """It names version, sources and GPUs that are not well, escaped, and links to what there is."""
    page = request(port, "/").text

    assert "solpi-exporter <small>9.9</small>" in page
    assert "&lt;gpu&gt;" in page
    assert '<span class="state no_permission">no permission</span> <small>GPU-a</small>' in page
    for target in ("metrics", "-/healthy", "-/ready"):
        assert f'href="{target}"' in page
        assert request(port, f"/{target}").status == 200


def test_landing_page_tells_the_unknown_from_zero(port: int) -> None:
    """A dash for what is not known, 0 for what was measured as 0, and the age of what was told long ago."""
    page = request(port, "/").text

    assert '<td class="n" data-of="Running">0</td>\n<td class="n" data-of="Waiting">\N{EN DASH}</td>' in page
    assert "as of 10 min ago" in page
    assert "10.00 ms <small>mean</small>" in page
    assert "The last run was too noisy to be split." in page


def test_landing_page_draws_a_split_and_writes_it(port: int) -> None:
    """A bar whose parts lie end to end, each with share and time beside it."""
    page = request(port, "/").text

    assert '<rect class="busy" x="0.0" width="75.0" height="1"/>' in page
    assert '<rect class="lost" x="75.0" width="25.0" height="1"/>' in page
    assert "<dt>lost</dt><dd>25.0 %</dd><dd>2.50 ms</dd>" in page
    assert "<dt>lost</dt><dd>25.0 %</dd><dd>2.500 ms</dd>" in page


def test_nothing_but_our_own_script_and_style_may_run(port: int) -> None:
    """Both are allowed by their hash, and whatever else a page could load is not."""
    answer = request(port, "/")
    policy = dict(one.strip().split(" ", 1) for one in answer.headers["content-security-policy"].split(";"))

    assert policy["default-src"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"


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


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_a_fault_of_our_own_is_passed_on(port: int, path: str) -> None:
    """An exception in rendering is a 500 to the client and is told to the daemon; a client's fault is not."""
    request(port, "/nothing")
    CLOCK.now += 10.0  # or the rendering of before would serve
    BROKEN.clear()
    FAULTS.append(ZeroDivisionError("a bug in the collector"))
    answer = request(port, path)
    FAULTS.clear()

    assert answer.status == 500
    assert [str(error) for error in BROKEN] == ["a bug in the collector"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # tornado leaves its socket to gc
def test_a_taken_port_fails_at_once(port: int) -> None:
    """Binding happens before anything is started, in the caller's thread."""
    with pytest.raises(OSError, match="Address already in use"):
        WebServer("127.0.0.1", port, Pages(None, dict, list, print))  # type: ignore[arg-type]
    gc.collect()
