"""An engine's /metrics."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from solpi_exporter.engine import endpoint
from solpi_exporter.engine.endpoint import EndpointSource, parse
from solpi_exporter.engine.reading import EngineReading
from solpi_exporter.source import SourceError
from tests.fakes import RECORDINGS, SHIPPED, values


def recorded(name: str) -> str:
    shipped = SHIPPED / name
    return (shipped if shipped.exists() else RECORDINGS / name).read_text()


def readings(name: str) -> dict[str, EngineReading]:
    return {reading.engine: reading for reading in parse(recorded(name), "s")}


def test_kv_pressure_on_the_h200() -> None:
    """Preemptions, steps, tokens and both histograms, which no log line holds."""
    reading = readings("vllm-0.24.0-h200/c-kv-pressure.metrics.txt")["0"]

    assert reading.preemptions == 661.0
    assert reading.kv_cache_capacity_tokens == 8192.0
    assert reading.inter_token_latency is not None
    assert reading.time_to_first_token is not None
    assert reading.queue_time is not None
    assert reading.inter_token_latency.counts[-1] <= reading.inter_token_latency.count
    assert reading.steps is not None
    assert reading.generation_tokens is not None
    assert 0 < reading.steps < reading.generation_tokens


@pytest.mark.parametrize(
    ("name", "preemptions"),
    [
        ("vllm-0.8.5/kv-pressure.metrics.stage4.txt", {"0": 184.0}),
        ("vllm-0.11.2/kv-pressure.metrics.stage4.txt", {"0": 74.0}),
        ("vllm-0.32.0/kv-pressure.metrics.txt", {"0": 121.0}),
        ("vllm-0.32.0/dp2-one-api-server.metrics.txt", {"0": 1.0, "1": 2.0}),
        ("vllm-0.24.0-h200/d-kv-offload.metrics.txt", {"0": 10633.0}),
    ],
)
def test_preemptions_of_every_release(name: str, preemptions: dict[str, float]) -> None:
    """Each engine's, from V0 to the newest recording."""
    assert {engine: reading.preemptions for engine, reading in readings(name).items()} == preemptions


def test_names_of_old_releases_mean_the_same() -> None:
    """V0's gpu_cache_usage_perc and time_per_output_token are today's KV usage and inter-token latency."""
    reading = readings("vllm-0.8.5/kv-pressure.metrics.stage4.txt")["0"]

    assert reading.kv_cache_usage_ratio is not None
    assert reading.inter_token_latency is not None
    assert reading.swapped is None  # hidden from 0.8 on


def test_old_and_new_name_in_one_answer_count_once() -> None:
    """0.11 prints the inter-token latency under both names."""
    text = recorded("vllm-0.11.2/kv-pressure.metrics.stage4.txt")
    count = next(line for line in text.splitlines() if line.startswith("vllm:inter_token_latency_seconds_count"))

    reading = next(parse(text, "s"))

    assert reading.inter_token_latency is not None
    assert reading.inter_token_latency.count == float(count.rpartition(" ")[2])


def test_a_server_without_statistics_yields_no_engine() -> None:
    """--disable-log-stats leaves nothing of vLLM in the answer; that is absence, not zero."""
    assert readings("vllm-0.32.0/no-stats.metrics.txt") == {}


def test_histograms_can_be_left_out() -> None:
    """Where Prometheus scrapes vLLM itself, they would be stored twice."""
    text = recorded("vllm-0.24.0-h200/c-kv-pressure.metrics.txt")

    reading = next(parse(text, "s", show_histograms=False))
    shown = values(list(reading.samples()))

    assert reading.inter_token_latency is not None  # the engine's own token needs it all the same
    assert "solpi_engine_inter_token_latency_seconds" not in shown
    assert shown["solpi_engine_preemptions_total"] == {("s", "0"): 661.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-0.5", "1.5", "97.0"])
def test_what_cannot_be_a_ratio_is_not_known(value: str) -> None:
    """Prometheus may say NaN; a usage above 1 is another unit."""
    text = f'vllm:kv_cache_usage_perc{{engine="0"}} {value}\nvllm:num_requests_running{{engine="0"}} 3.0\n'

    reading = next(parse(text, "s"))

    assert reading.kv_cache_usage_ratio is None
    assert reading.running == 3.0


def test_old_and_new_name_of_a_ratio_are_not_summed() -> None:
    """0.9.2 to 0.10.2 print the KV usage under both."""
    text = "".join(f'vllm:{name}{{engine="0"}} 0.45\n' for name in ("gpu_cache_usage_perc", "kv_cache_usage_perc"))

    assert next(parse(text, "s")).kv_cache_usage_ratio == 0.45


def test_a_ratio_of_several_models_is_the_largest() -> None:
    """Two halves are not one whole."""
    line = 'vllm:kv_cache_usage_perc{{engine="0",model_name="{}"}} {}\n'

    assert next(parse(line.format("a", 0.7) + line.format("b", 0.6), "s")).kv_cache_usage_ratio == 0.7


def test_a_histogram_without_its_last_bucket_is_not_known() -> None:
    """A sum without a count is no distribution, and a bucket without a bound none at all."""
    name = "vllm:inter_token_latency_seconds"
    text = f'{name}_sum{{engine="0"}} 3\n{name}_bucket{{engine="0"}} 3\nvllm:num_requests_running{{engine="0"}} 1\n'

    reading = next(parse(text, "s"))

    assert reading.inter_token_latency is None
    assert reading.running == 1.0


def test_a_line_separator_in_a_label_is_no_end_of_line() -> None:
    """Only a newline ends a line of an exposition."""
    text = 'vllm:num_requests_running{engine="0",model_name="a\u2028b"} 3\n'

    assert next(parse(text, "s")).running == 3.0


def test_series_of_several_models_add_up() -> None:
    """Labels other than the engine do not multiply its counters."""
    line = 'vllm:num_preemptions_total{{engine="0",model_name="{}"}} {}\n'

    assert next(parse(line.format("a", 3) + line.format("b", 4), "s")).preemptions == 7.0


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
    server.body = recorded("vllm-0.24.0-h200/c-kv-pressure.metrics.txt").encode()

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
        (302, {"Location": "http://127.0.0.1:9/elsewhere"}, b""),
    ],
    ids=["status", "cut off", "not text", "a login page", "redirect"],
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
