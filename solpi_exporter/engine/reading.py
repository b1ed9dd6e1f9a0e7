"""The vocabulary of the engine half: whatever an engine says, by log or by endpoint, becomes an EngineReading.

A new quantity is one field and one row of ROWS; a dialect fills fields and never names a metric.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from solpi_exporter.metric import Distribution, Kind, Metric, Sample

ENGINE = ("server", "engine")


def _metric(name: str, help_text: str, *labels: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(f"solpi_engine_{name}", help_text, kind, ENGINE + labels)


REQUESTS = _metric("requests", "Requests in the engine, as of its last step.", "state")
FINISHED = _metric("finished_requests_total", "Requests ended, by reason (endpoint).", "reason", kind=Kind.COUNTER)
HIT_RATIO = _metric("prefix_cache_hit_ratio", "Recent share of prompt tokens found in a cache.", "tier")
UP = Metric("solpi_engine_up", "1 if the engine's endpoint answered, 0 if not.", labels=("server",))
INFO = Metric("solpi_engine_info", "Constant 1; what the server runs.", labels=("server", "version", "model"))
SETTING = Metric(
    "solpi_engine_setting_info",
    "Constant 1; a setting that the engine printed at its start.",
    labels=("server", "setting", "value"),
)

# Attribute of EngineReading, metric, further label values.
ROWS: tuple[tuple[str, Metric, tuple[str, ...]], ...] = (
    ("kv_cache_usage_ratio", _metric("kv_cache_usage_ratio", "Share of the KV cache in use by requests."), ()),
    (
        "kv_cache_capacity_tokens",
        _metric("kv_cache_capacity_tokens", "Tokens that the KV cache can hold, as told at start."),
        (),
    ),
    ("running", REQUESTS, ("running",)),
    ("waiting", REQUESTS, ("waiting",)),
    ("deferred", REQUESTS, ("deferred",)),
    (
        "swapped",
        _metric("swapped_requests", "Requests whose KV cache was moved to the host (vLLM's V0 engine only)."),
        (),
    ),
    (
        "prompt_tokens_per_second",
        _metric("prompt_tokens_per_second", "The log's own mean over its last interval: prompt tokens read."),
        (),
    ),
    (
        "generation_tokens_per_second",
        _metric("generation_tokens_per_second", "The log's own mean over its last interval: tokens generated."),
        (),
    ),
    (
        "mean_token_seconds",
        _metric("mean_token_seconds", "Mean time between a request's tokens by the log: running / generation rate."),
        (),
    ),
    ("prefix_hit_ratio", HIT_RATIO, ("gpu",)),
    ("external_hit_ratio", HIT_RATIO, ("external",)),
    (
        "last_report_time",
        _metric(
            "last_report_timestamp_seconds",
            "When the log last reported. It falls silent when the engine idles and when it hangs.",
        ),
        (),
    ),
    (
        "preemptions",
        _metric("preemptions_total", "Requests put back for want of KV cache (endpoint).", kind=Kind.COUNTER),
        (),
    ),
    (
        "prompt_tokens",
        _metric("prompt_tokens_total", "Prompt tokens read (endpoint).", kind=Kind.COUNTER),
        (),
    ),
    (
        "generation_tokens",
        _metric("generation_tokens_total", "Tokens generated (endpoint).", kind=Kind.COUNTER),
        (),
    ),
    ("steps", _metric("steps_total", "Engine steps that did work (endpoint).", kind=Kind.COUNTER), ()),
    (
        "time_to_first_token",
        _metric(
            "time_to_first_token_seconds",
            "From a request's arrival to its first token (endpoint).",
            kind=Kind.HISTOGRAM,
        ),
        (),
    ),
    (
        "inter_token_latency",
        _metric(
            "inter_token_latency_seconds", "From one token of a request to its next (endpoint).", kind=Kind.HISTOGRAM
        ),
        (),
    ),
    (
        "queue_time",
        _metric("queue_seconds", "From a request's arrival to its first step (endpoint).", kind=Kind.HISTOGRAM),
        (),
    ),
)

METRICS = (UP, INFO, SETTING, FINISHED, *dict.fromkeys(metric for _, metric, _ in ROWS))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One engine of one server. Ratios are 0 to 1, times are seconds; None is not known, which is not 0.

    Without `show_histograms` the latencies serve the engine's own token and are not exposed.
    """

    server: str
    engine: str = "0"
    kv_cache_usage_ratio: float | None = None
    kv_cache_capacity_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    swapped: float | None = None
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    mean_token_seconds: float | None = None
    prefix_hit_ratio: float | None = None
    external_hit_ratio: float | None = None
    last_report_time: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    steps: float | None = None
    finished: tuple[tuple[str, float], ...] = ()
    time_to_first_token: Distribution | None = None
    inter_token_latency: Distribution | None = None
    queue_time: Distribution | None = None
    show_histograms: bool = True

    def samples(self) -> Iterator[Sample]:
        """Yield every quantity that is known."""
        for attribute, metric, labels in ROWS:
            value = attrgetter(attribute)(self)
            if value is not None and (self.show_histograms or metric.kind is not Kind.HISTOGRAM):
                yield metric.sample(value, self.server, self.engine, *labels)
        for reason, count in self.finished:
            yield FINISHED.sample(count, self.server, self.engine, reason)


@dataclass(frozen=True, slots=True)
class EngineUp:
    """Whether a server's endpoint answers."""

    server: str
    up: bool

    def samples(self) -> Iterator[Sample]:
        """Yield the state."""
        yield UP.sample(float(self.up), self.server)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a server told at its start; it stays true until the engine is started again.

    `pids` are its processes by the heads of its lines, in the numbering of where it runs, which may be a container.
    """

    server: str
    version: str | None = None
    model: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    pids: tuple[int, ...] = ()

    def setting(self, name: str) -> str | None:
        """Return a setting's value as the engine printed it."""
        return dict(self.settings).get(name)

    def samples(self) -> Iterator[Sample]:
        """Yield version and model, and each setting."""
        if self.version is not None or self.model is not None:
            yield INFO.sample(1.0, self.server, self.version or "", self.model or "")
        for name, value in self.settings:
            yield SETTING.sample(1.0, self.server, name, value)
