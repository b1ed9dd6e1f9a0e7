"""An engine's own /metrics as a source: what no log line holds, such as preemptions and latencies.

vLLM's names of every release are mapped to one vocabulary by the tables below.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from solpi_exporter.engine.reading import EngineReading, EngineUp
from solpi_exporter.metric import Distribution
from solpi_exporter.source import SourceError

LIMIT = 16 << 20  # bytes of an answer; a large server's is a few hundred kB

# Sample name to attribute of EngineReading. Old and new names stand side by side; a server has one of them.
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

_WANTED = (*SERIES, *HISTOGRAMS, FINISHED, CACHE)


@dataclass(slots=True)
class _Buckets:
    """A histogram being put together from its samples, summed over labels other than the engine."""

    counts: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    sum: float = 0.0

    def distribution(self) -> Distribution:
        bounds = sorted(bound for bound in self.counts if bound != math.inf)
        counts = tuple(self.counts[bound] for bound in bounds)
        return Distribution(tuple(bounds), counts, self.counts[math.inf], self.sum)


@dataclass(slots=True)
class _Engine:
    """One engine being put together."""

    values: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    buckets: dict[str, _Buckets] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        if sample.name in SERIES:
            attribute = SERIES[sample.name]
            if attribute != RATIO or 0 <= sample.value <= 1:
                self.values[attribute] = self.values.get(attribute, 0.0) + sample.value
        elif sample.name == FINISHED:
            self.finished[sample.labels.get("finished_reason", "")] += sample.value
        elif sample.name == CACHE:
            self._add_capacity(sample.labels)
        else:
            self._add_bucket(sample)

    def _add_capacity(self, labels: Mapping[str, str]) -> None:
        tokens, blocks, size = (labels.get(key, "") for key in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size"))
        if tokens.isdecimal():
            self.values["kv_cache_capacity_tokens"] = float(tokens)
        elif blocks.isdecimal() and size.isdecimal():
            self.values["kv_cache_capacity_tokens"] = float(blocks) * float(size)

    def _add_bucket(self, sample: Sample) -> None:
        name, _, part = sample.name.rpartition("_")
        if name in HISTOGRAMS and part in ("bucket", "sum"):
            buckets = self.buckets.setdefault(name, _Buckets())
            if part == "sum":
                buckets.sum += sample.value
            else:
                buckets.counts[float(sample.labels["le"])] += sample.value

    def reading(self, server: str, engine: str, histograms: bool) -> EngineReading:
        known: dict[str, Any] = dict(self.values)
        if histograms:
            known |= {HISTOGRAMS[name]: buckets.distribution() for name, buckets in self.buckets.items()}
        return EngineReading(server=server, engine=engine, finished=tuple(self.finished.items()), **known)


def parse(text: str, server: str, *, histograms: bool = True) -> Iterator[EngineReading]:
    """Yield one reading per engine of a server's exposition; raise ValueError when it is none."""
    engines: dict[str, _Engine] = defaultdict(_Engine)
    lines = (line for line in text.splitlines() if line.startswith(_WANTED))
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if math.isfinite(sample.value):
                engines[sample.labels.get("engine", "0")].add(sample)
    for engine, parts in engines.items():
        yield parts.reading(server, engine, histograms)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *args: object) -> None:
        return None


# Loopback must not be asked through a proxy that the environment names.
_OPENER = build_opener(ProxyHandler({}), _NoRedirect())


def fetch(url: str, timeout: float) -> str:
    """Return the body at `url`; raise OSError, HTTPException or ValueError (too large, not text)."""
    try:
        with _OPENER.open(url, timeout=timeout) as answer:
            body: bytes = answer.read(LIMIT + 1)
    except HTTPError as error:
        error.close()  # it holds the connection
        raise
    if len(body) > LIMIT:
        raise ValueError(f"the answer is larger than {LIMIT >> 20} MiB")
    return body.decode()


class EndpointSource:
    """The /metrics of one server."""

    def __init__(self, server: str, url: str, interval: float, timeout: float, *, histograms: bool) -> None:
        self.name = f"engine_endpoint/{server}"
        self.interval = interval
        self.timeout = timeout
        self._server = server
        self._url = url
        self._histograms = histograms

    def poll(self) -> list[EngineReading | EngineUp]:
        """Read the endpoint once; raise SourceError, which says that the engine is not up, when it does not answer."""
        try:
            text = fetch(self._url, self.timeout)
            return [EngineUp(self._server, True), *parse(text, self._server, histograms=self._histograms)]
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise SourceError(
                f"{self._url} gives no metrics ({reason}): is server {self._server} up, and its metrics_url right?",
                [EngineUp(self._server, False)],
            ) from error

    def close(self) -> None:
        """Nothing is held between polls."""
