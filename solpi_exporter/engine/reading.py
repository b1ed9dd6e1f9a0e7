"""The vocabulary of the engine half: whatever an engine says, by log or by endpoint, becomes an EngineReading.

What its fields are called as metrics, `quantities.py` says; a dialect fills fields and never names a metric.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from solpi_exporter.engine.quantities import ERRORS, FINISHED, INFO, ROWS, SETTING, UP
from solpi_exporter.metric import Distribution, Kind, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One engine of one server. Ratios are 0 to 1, times are seconds; None is not known, which is not 0.

    Without `show_histograms` the latencies serve the engine's own token and are not exposed.
    """

    server: str
    engine: str = "0"
    kv_cache_usage_ratio: float | None = None
    kv_cache_capacity_tokens: float | None = None
    max_concurrency: float | None = None
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    swapped: float | None = None
    swap_usage_ratio: float | None = None
    corrupted: float | None = None
    fetch_waiting: float | None = None
    fetch_in_progress: float | None = None
    fetch_completed: float | None = None
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    mean_token_seconds: float | None = None
    prefix_hit_ratio: float | None = None
    cpu_hit_ratio: float | None = None
    external_hit_ratio: float | None = None
    multimodal_hit_ratio: float | None = None
    acceptance_length: float | None = None
    acceptance_ratio: float | None = None
    offload_usage_ratio: float | None = None
    last_report_time: float | None = None
    preemptions: float | None = None
    preemptions_at_least: float | None = None
    stored_bytes: float | None = None
    loaded_bytes: float | None = None
    received_bytes: float | None = None
    stored_seconds: float | None = None
    loaded_seconds: float | None = None
    received_seconds: float | None = None
    failed_transfers: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    steps: float | None = None
    iterations: float | None = None
    iteration_seconds: float | None = None
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

    `software` is the dialect that its log is read in; `pids` are its processes by the heads of its lines, in the
    numbering of where it runs, which may be a container.
    """

    server: str
    software: str
    version: str | None = None
    model: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    pids: tuple[int, ...] = ()

    def setting(self, name: str) -> str | None:
        """Return a setting's value as the engine printed it."""
        return dict(self.settings).get(name)

    def samples(self) -> Iterator[Sample]:
        """Yield version and model, and each setting."""
        if self.software or self.version or self.model:
            yield INFO.sample(1.0, self.server, self.software, self.version or "", self.model or "")
        for name, value in self.settings:
            yield SETTING.sample(1.0, self.server, name, value)


@dataclass(frozen=True, slots=True)
class EngineTroubles:
    """How many lines of a server's log have spoken of each kind of trouble."""

    server: str
    counts: Mapping[str, float]

    def samples(self) -> Iterator[Sample]:
        """Yield every kind, those that never came as well: increase() misses a counter that is born at 1."""
        for kind, count in self.counts.items():
            yield ERRORS.sample(count, self.server, kind)
