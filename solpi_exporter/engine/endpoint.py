"""An engine's own /metrics as a source: what no log line holds, such as preemptions and latencies.

vLLM's names of every release are mapped to one vocabulary by the tables below.
"""

import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from socket import SHUT_RDWR, socket
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from solpi_exporter.engine.reading import EngineReading, EngineUp
from solpi_exporter.metric import Distribution
from solpi_exporter.source import SourceError

LIMIT = 16 << 20  # bytes of an answer; a large server's is a few hundred kB
OK = 200

# Sample name to attribute of EngineReading. Some releases have a quantity under its old and its new name: the one that
# stands first here is taken.
SERIES: Mapping[str, str] = {
    "vllm:kv_cache_usage_perc": "kv_cache_usage_ratio",
    "vllm:gpu_cache_usage_perc": "kv_cache_usage_ratio",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:num_requests_swapped": "swapped",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:iteration_tokens_total_count": "steps",
}
HISTOGRAMS: Mapping[str, str] = {
    "vllm:time_to_first_token_seconds": "time_to_first_token",
    "vllm:inter_token_latency_seconds": "inter_token_latency",
    "vllm:time_per_output_token_seconds": "inter_token_latency",
    "vllm:request_queue_time_seconds": "queue_time",
}
FINISHED = "vllm:request_success_total"
CACHE = "vllm:cache_config_info"
RATIO = "kv_cache_usage_ratio"
MAX_VALUE = 2.0**63  # infinity and NaN are above it, and nothing that is counted or timed here comes near

_WANTED = (*SERIES, *HISTOGRAMS, FINISHED, CACHE)


@dataclass(slots=True)
class _Buckets:
    """A histogram being put together from its samples, summed over labels other than the engine."""

    counts: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    sum: float = 0.0

    def distribution(self) -> Distribution | None:
        """Return what was told; None without the bucket that holds everything."""
        if math.inf not in self.counts:
            return None
        bounds = sorted(bound for bound in self.counts if bound != math.inf)
        counts = tuple(self.counts[bound] for bound in bounds)
        return Distribution(tuple(bounds), counts, self.counts[math.inf], self.sum)


@dataclass(slots=True)
class _Engine:
    """One engine being put together; `values` are summed over labels other than the engine, ratios are the largest."""

    values: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    buckets: dict[str, _Buckets] = field(default_factory=lambda: defaultdict(_Buckets))
    capacity: float | None = None

    def add(self, sample: Sample) -> None:
        if sample.name in SERIES:
            before = self.values.get(sample.name, 0.0)
            is_ratio = SERIES[sample.name] == RATIO
            self.values[sample.name] = max(before, sample.value) if is_ratio else before + sample.value
        elif sample.name == FINISHED:
            self.finished[sample.labels.get("finished_reason", "")] += sample.value
        elif sample.name == CACHE:
            self.capacity = _capacity(sample.labels)
        else:
            self._add_bucket(sample)

    def _add_bucket(self, sample: Sample) -> None:
        name, _, part = sample.name.rpartition("_")
        if name in HISTOGRAMS and part == "sum":
            self.buckets[name].sum += sample.value
        elif name in HISTOGRAMS and part == "bucket" and "le" in sample.labels:
            self.buckets[name].counts[float(sample.labels["le"])] += sample.value

    def reading(self, server: str, engine: str, *, show_histograms: bool) -> EngineReading:
        known: dict[str, Any] = {"kv_cache_capacity_tokens": self.capacity}
        for name, attribute in SERIES.items():
            if name in self.values:
                known.setdefault(attribute, self.values[name])
        for name, attribute in HISTOGRAMS.items():
            if name in self.buckets:
                known.setdefault(attribute, self.buckets[name].distribution())
        finished = tuple(self.finished.items())
        return EngineReading(server=server, engine=engine, finished=finished, show_histograms=show_histograms, **known)


def _capacity(labels: Mapping[str, str]) -> float | None:
    tokens, blocks, size = (labels.get(key, "") for key in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size"))
    if tokens.isdecimal():
        return float(tokens)
    return float(blocks) * float(size) if blocks.isdecimal() and size.isdecimal() else None


def _can_be_true(sample: Sample) -> bool:
    """Whether a value is a number that this quantity can have: none of them is negative, a ratio is at most 1."""
    return 0 <= sample.value <= (1 if SERIES.get(sample.name) == RATIO else MAX_VALUE)


def parse(text: str, server: str, *, show_histograms: bool = True) -> Iterator[EngineReading]:
    """Yield one reading per engine of a server's exposition; raise ValueError when the text is none."""
    if not text.endswith("\n"):
        raise ValueError("the answer is cut off")
    if "# TYPE " not in text and "vllm:" not in text:
        raise ValueError("the answer is no exposition")
    engines: dict[str, _Engine] = defaultdict(_Engine)
    lines = (line for line in text.split("\n") if line.startswith(_WANTED))
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in filter(_can_be_true, family.samples):
            engines[sample.labels.get("engine", "0")].add(sample)
    for engine, parts in engines.items():
        yield parts.reading(server, engine, show_histograms=show_histograms)


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
        """Read the endpoint once; raise SourceError, which says that the engine is not up, when it does not answer."""
        try:
            text = fetch(self._url, self._fetch_timeout)
            readings = list(parse(text, self._server, show_histograms=self._show_histograms))
        except (OSError, HTTPException, ValueError) as error:
            self.refused = isinstance(error, ConnectionRefusedError)
            raise SourceError(
                f"{self._url} gives no metrics ({error}): is server {self._server} up, and its metrics_url right?",
                [EngineUp(self._server, False)],
            ) from error
        self.refused = False
        return [EngineUp(self._server, True), *readings]

    def close(self) -> None:
        """Nothing is held between polls."""
