"""What an engine's own /metrics says: its names in every release, mapped to one vocabulary by the tables below."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from solpi_exporter.engine.reading import EngineReading
from solpi_exporter.metric import Distribution


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A sample's name, the attribute of EngineReading that it is, and the label's value that it must have, if any."""

    name: str
    attribute: str
    label: str = ""
    value: str = ""

    def holds(self, sample: Sample) -> bool:
        """Whether the sample has that label's value; a missing label is an empty one, as Prometheus has it."""
        return sample.labels.get(self.label, "") == self.value


# Some releases have a quantity under its old and its new name: the one that stands first here is taken.
SERIES: tuple[Series, ...] = (
    # vLLM, V1 and V0
    Series("vllm:kv_cache_usage_perc", "kv_cache_usage_ratio"),
    Series("vllm:gpu_cache_usage_perc", "kv_cache_usage_ratio"),
    Series("vllm:cpu_cache_usage_perc", "swap_usage_ratio"),
    Series("vllm:gpu_prefix_cache_hit_rate", "prefix_hit_ratio"),
    Series("vllm:cpu_prefix_cache_hit_rate", "cpu_hit_ratio"),
    Series("vllm:num_requests_running", "running"),
    Series("vllm:num_requests_waiting", "waiting"),
    Series("vllm:num_requests_waiting_by_reason", "deferred", "reason", "deferred"),
    Series("vllm:num_requests_swapped", "swapped"),
    Series("vllm:num_requests_kv_fetch_by_stage", "fetch_waiting", "stage", "waiting_to_start"),
    Series("vllm:num_requests_kv_fetch_by_stage", "fetch_in_progress", "stage", "in_progress"),
    Series("vllm:num_requests_kv_fetch_by_stage", "fetch_completed", "stage", "completed_waiting"),
    Series("vllm:num_preemptions_total", "preemptions"),
    Series("vllm:prompt_tokens_total", "prompt_tokens"),
    Series("vllm:generation_tokens_total", "generation_tokens"),
    Series("vllm:avg_prompt_throughput_toks_per_s", "prompt_tokens_per_second"),
    Series("vllm:avg_generation_throughput_toks_per_s", "generation_tokens_per_second"),
    Series("vllm:iteration_tokens_total_count", "steps"),
    Series("vllm:kv_offload_cpu_cache_usage_perc", "offload_usage_ratio"),
    Series("vllm:kv_offload_store_bytes_total", "stored_bytes"),
    Series("vllm:kv_offload_total_bytes_total", "stored_bytes", "transfer_type", "GPU_to_CPU"),
    Series("vllm:kv_offload_store_time_total", "stored_seconds"),
    Series("vllm:kv_offload_total_time_total", "stored_seconds", "transfer_type", "GPU_to_CPU"),
    Series("vllm:kv_offload_load_bytes_total", "loaded_bytes"),
    Series("vllm:kv_offload_total_bytes_total", "loaded_bytes", "transfer_type", "CPU_to_GPU"),
    Series("vllm:kv_offload_load_time_total", "loaded_seconds"),
    Series("vllm:kv_offload_total_time_total", "loaded_seconds", "transfer_type", "CPU_to_GPU"),
    Series("vllm:nixl_bytes_transferred_sum", "received_bytes"),
    Series("vllm:nixl_xfer_time_seconds_sum", "received_seconds"),
    Series("vllm:nixl_num_failed_transfers_total", "failed_transfers"),
    # SGLang. With priorities, an empty one is the total of the others.
    Series("sglang:token_usage", "kv_cache_usage_ratio"),
    Series("sglang:max_total_num_tokens", "kv_cache_capacity_tokens"),
    Series("sglang:cache_hit_rate", "prefix_hit_ratio"),
    Series("sglang:num_running_reqs", "running", "priority", ""),
    Series("sglang:num_queue_reqs", "waiting", "priority", ""),
    Series("sglang:gen_throughput", "generation_tokens_per_second"),
    Series("sglang:num_retracted_requests_total", "preemptions"),
    Series("sglang:prompt_tokens_total", "prompt_tokens"),
    Series("sglang:generation_tokens_total", "generation_tokens"),
    Series("sglang:hicache_backup_bytes_total", "stored_bytes"),
    Series("sglang:hicache_backup_duration_seconds_sum", "stored_seconds"),
    Series("sglang:load_back_bytes_total", "loaded_bytes"),
    Series("sglang:load_back_duration_seconds_sum", "loaded_seconds"),
    # TensorRT-LLM
    Series("trtllm_kv_cache_utilization", "kv_cache_usage_ratio"),
    Series("trtllm_kv_cache_hit_rate", "prefix_hit_ratio"),
    Series("trtllm_num_requests_running", "running"),
    Series("trtllm_num_requests_waiting", "waiting"),
    Series("trtllm_prompt_tokens_total", "prompt_tokens"),
    Series("trtllm_generation_tokens_total", "generation_tokens"),
    Series("trtllm_kv_cache_offload_bytes_total", "stored_bytes"),
    Series("trtllm_kv_cache_onboard_bytes_total", "loaded_bytes"),
)
HISTOGRAMS: Mapping[str, str] = {
    "vllm:time_to_first_token_seconds": "time_to_first_token",
    "vllm:inter_token_latency_seconds": "inter_token_latency",
    "vllm:time_per_output_token_seconds": "inter_token_latency",
    "vllm:request_queue_time_seconds": "queue_time",
    "vllm:time_in_queue_requests": "queue_time",
    "sglang:time_to_first_token_seconds": "time_to_first_token",
    "sglang:inter_token_latency_seconds": "inter_token_latency",
    "sglang:time_per_output_token_seconds": "inter_token_latency",
    "sglang:queue_time_seconds": "queue_time",
    "trtllm_time_to_first_token_seconds": "time_to_first_token",
    "trtllm_time_per_output_token_seconds": "inter_token_latency",
    "trtllm_request_queue_time_seconds": "queue_time",
}
FINISHED = ("vllm:request_success_total", "trtllm_request_success_total")
CACHE = "vllm:cache_config_info"
V1_USAGE = "vllm:kv_cache_usage_perc"
BLOCKS = ("trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block")  # their product is the capacity
# Every rank of SGLang copies its own share of these; of everything else each tells the same, all of it.
SHARED_OUT = frozenset(series.name for series in SERIES if series.name.startswith(("sglang:hicache", "sglang:load")))
MAX_VALUE = 2.0**63  # infinity and NaN are above it, and nothing that is counted or timed here comes near

_SAMPLES: Mapping[str, tuple[Series, ...]] = {
    name: tuple(series for series in SERIES if series.name == name) for name in {series.name for series in SERIES}
}
_RATIOS = frozenset(series.name for series in SERIES if series.attribute.endswith("_ratio"))
_WANTED = (*_SAMPLES, *HISTOGRAMS, *FINISHED, CACHE, *BLOCKS)
_SIGNS = ("# TYPE ", "vllm:", "sglang:", "trtllm_")


@dataclass(slots=True)
class _Buckets:
    """A histogram being put together from its samples, summed over labels other than the engine."""

    counts: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    sum: float | None = None

    def distribution(self) -> Distribution | None:
        """Return what was told; None without the sum, or the bucket that holds everything."""
        if math.inf not in self.counts or self.sum is None:
            return None
        bounds = sorted(bound for bound in self.counts if bound != math.inf)
        counts = tuple(self.counts[bound] for bound in bounds)
        return Distribution(tuple(bounds), counts, self.counts[math.inf], self.sum)


@dataclass(slots=True)
class _Engine:
    """One engine being put together; `values` are summed over labels other than the engine, ratios are the largest."""

    values: dict[Series, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    buckets: dict[str, _Buckets] = field(default_factory=lambda: defaultdict(_Buckets))
    blocks: dict[str, float] = field(default_factory=dict)
    cache: Mapping[str, str] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        if sample.name in _SAMPLES:
            self._add_value(sample)
        elif sample.name in FINISHED:
            self.finished[sample.labels.get("finished_reason", "")] += sample.value
        elif sample.name == CACHE:
            self.cache = sample.labels
        elif sample.name in BLOCKS:
            self.blocks[sample.name] = sample.value
        else:
            self._add_bucket(sample)

    def _add_value(self, sample: Sample) -> None:
        for series in _SAMPLES[sample.name]:
            if series.holds(sample):
                before = self.values.get(series, 0.0)
                is_ratio = sample.name in _RATIOS
                self.values[series] = max(before, sample.value) if is_ratio else before + sample.value

    def _add_bucket(self, sample: Sample) -> None:
        name, _, part = sample.name.rpartition("_")
        if name in HISTOGRAMS and part == "sum":
            self.buckets[name].sum = (self.buckets[name].sum or 0.0) + sample.value
        elif name in HISTOGRAMS and part == "bucket" and "le" in sample.labels:
            self.buckets[name].counts[float(sample.labels["le"])] += sample.value

    def reading(self, server: str, engine: str, *, show_histograms: bool) -> EngineReading:
        known: dict[str, Any] = _capacity(self.cache, with_blocks=not any(one.name == V1_USAGE for one in self.values))
        if len(self.blocks) == len(BLOCKS):
            known["kv_cache_capacity_tokens"] = math.prod(self.blocks.values())
        for series in SERIES:
            if series in self.values:
                known.setdefault(series.attribute, self.values[series])
        for name, attribute in HISTOGRAMS.items():
            if name in self.buckets:
                known.setdefault(attribute, self.buckets[name].distribution())
        finished = tuple(self.finished.items())
        return EngineReading(server=server, engine=engine, finished=finished, show_histograms=show_histograms, **known)


def _capacity(labels: Mapping[str, str], *, with_blocks: bool) -> dict[str, float]:
    """Return what vLLM's cache settings say of capacity, by attribute.

    V1 has hybrid models and context parallelism, where the blocks do not tell it.
    """
    tokens, blocks, size = (_number(labels, key) for key in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size"))
    if with_blocks and tokens is None and blocks is not None and size is not None:
        tokens = blocks * size
    told = {"kv_cache_capacity_tokens": tokens, "max_concurrency": _number(labels, "kv_cache_max_concurrency")}
    return {attribute: value for attribute, value in told.items() if value is not None}


def _number(labels: Mapping[str, str], name: str) -> float | None:
    """Return a setting's number; None where it is missing or "None"."""
    text = labels.get(name, "")
    return float(text) if text.replace(".", "", 1).isdecimal() else None


def _samples(text: str) -> Iterator[Sample]:
    """Yield what is wanted of an exposition: the parser is slow, so it sees nothing else."""
    lines = (line for line in text.split("\n") if line.startswith(_WANTED))
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        yield from filter(_can_be_true, family.samples)


def _can_be_true(sample: Sample) -> bool:
    """Whether a value is a number that this quantity can have: none of them is negative, a ratio is at most 1."""
    return 0 <= sample.value <= (1 if sample.name in _RATIOS else MAX_VALUE)


def _engine(sample: Sample) -> str:
    return sample.labels.get("engine") or sample.labels.get("dp_rank") or "0"


def _rank(sample: Sample) -> tuple[tuple[int, str], ...]:
    """Return the place of a process among those that run one engine together, in numerical order."""
    ranks = (sample.labels.get(label, "") for label in ("pp_rank", "tp_rank"))
    return tuple((len(rank), rank) for rank in ranks)


def _of_first_ranks(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield each engine's samples of its first rank only, so that ranks do not multiply what they all tell."""
    ranked = [((_engine(sample), sample.name), _rank(sample), sample) for sample in samples]
    first: dict[tuple[str, str], tuple[tuple[int, str], ...]] = {}
    for series, rank, _ in ranked:
        first[series] = min(first.get(series, rank), rank)
    for series, rank, sample in ranked:
        if rank == first[series] or sample.name in SHARED_OUT:
            yield sample


def parse(text: str, server: str, *, show_histograms: bool = True) -> Iterator[EngineReading]:
    """Yield one reading per engine of a server's exposition; raise ValueError when the text is none."""
    if not any(sign in text for sign in _SIGNS):
        raise ValueError("the answer is no exposition")
    if not text.endswith("\n"):
        raise ValueError("the answer is cut off")
    engines: dict[str, _Engine] = defaultdict(_Engine)
    for sample in _of_first_ranks(_samples(text)):
        engines[_engine(sample)].add(sample)
    for engine, parts in engines.items():
        yield parts.reading(server, engine, show_histograms=show_histograms)
