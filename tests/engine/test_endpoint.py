"""An engine's /metrics: asking for it."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from solpi_exporter.engine import endpoint
from solpi_exporter.engine.endpoint import EndpointSource
from solpi_exporter.source import SourceError
from tests.fakes import SHIPPED, values


@dataclass
class Server:
    """A server that answers with what it is told to."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    port: int = 0
    drip: str = ""

    def source(self) -> EndpointSource:
        return EndpointSource("s", f"http://127.0.0.1:{self.port}/metrics", 15.0, 2.0, show_histograms=True)


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if told.drip == "headers":
                self.flush_headers()
            else:
                self.end_headers()
            pause = threading.Event()
            while told.drip:
                try:
                    self.wfile.write(b"#")
                except OSError:
                    return
                pause.wait(0.05)
            self.wfile.write(told.body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        told.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield told
        listening.shutdown()
        thread.join()


def test_an_answer_says_that_the_engine_is_up(server: Server) -> None:
    """Beside what it reports."""
    server.body = (SHIPPED / "vllm-0.24.0-h200" / "c-kv-pressure.metrics.txt").read_bytes()

    shown = values([sample for reading in server.source().poll() for sample in reading.samples()])

    assert shown["solpi_engine_up"] == {("s",): 1.0}
    assert shown["solpi_engine_preemptions_total"] == {("s", "0"): 661.0}


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (500, {}, b"no"),
        (200, {}, b"vllm:num_requests_running{engine= 3"),
        (200, {}, b"\xff\xfe"),
        (200, {}, b"<html>please log in</html>"),
        (200, {}, b'[{"iter": 1, "kvCacheStats": {}}]'),
        (302, {"Location": "http://127.0.0.1:9/elsewhere"}, b""),
    ],
    ids=["status", "cut off", "not text", "a login page", "TensorRT-LLM's JSON", "redirect"],
)
def test_a_bad_answer_is_a_failure_that_says_so(
    server: Server, status: int, headers: dict[str, str], body: bytes
) -> None:
    """One line with address and reason, and the engine is not up."""
    server.status, server.headers, server.body = status, headers, body

    with pytest.raises(SourceError, match=r"/metrics gives no metrics \(.*\): is server s up") as raised:
        server.source().poll()

    assert values([s for reading in raised.value.readings for s in reading.samples()]) == {
        "solpi_engine_up": {("s",): 0.0}
    }


def test_nobody_there_is_a_failure_and_known_to_be_gone() -> None:
    """Nothing listens on port 9 of loopback."""
    source = EndpointSource("s", "http://127.0.0.1:9/metrics", 15.0, 2.0, show_histograms=True)

    with pytest.raises(SourceError, match="Connection refused"):
        source.poll()

    assert source.refused


def test_a_server_that_is_back_is_no_longer_gone(server: Server) -> None:
    """And one that answers badly is not gone."""
    source = server.source()
    source.refused = True
    server.body = b'vllm:num_requests_running{engine="0"} 3.0\n'
    source.poll()
    assert not source.refused

    server.status = 500
    with pytest.raises(SourceError):
        source.poll()
    assert not source.refused


def test_an_answer_that_ends_early_is_none(server: Server) -> None:
    """A server that dies in mid-answer would show half a number as a whole one, and the rest as reset."""
    server.body = b'vllm:prompt_tokens_total{engine="0"} 123'
    server.headers = {"Content-Length": "132"}
    with pytest.raises(SourceError, match="IncompleteRead"):
        server.source().poll()

    server.headers = {}
    with pytest.raises(SourceError, match="the answer is cut off"):
        server.source().poll()


@pytest.mark.parametrize("what", ["headers", "body"])
def test_an_answer_that_drips_is_cut_off(server: Server, what: str) -> None:
    """A byte now and then keeps every single wait short and would last for ever."""
    server.drip = what

    with pytest.raises(SourceError, match=r"took longer than 0.3 s"):
        EndpointSource("s", f"http://127.0.0.1:{server.port}/metrics", 15.0, 0.3, show_histograms=True).poll()


def test_an_answer_without_end_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded whatever stands at the address."""
    monkeypatch.setattr(endpoint, "LIMIT", 1000)
    server.body = b"x" * 1001

    with pytest.raises(SourceError, match="larger than"):
        server.source().poll()


def test_a_proxy_of_the_environment_is_not_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is asked directly, or an exporter behind a corporate proxy would read nothing."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.body = b'vllm:num_requests_running{engine="0"} 3.0\n'

    assert len(server.source().poll()) == 2
