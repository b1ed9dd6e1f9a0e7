"""What is known of an engine, by name: attribute of EngineReading -> metric. A new quantity is a field and a row."""

from solpi_exporter.metric import Kind, Metric

ENGINE = ("server", "engine")


def _gauge(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(f"solpi_engine_{name}", help_text, Kind.GAUGE, ENGINE + labels)


def _counter(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(f"solpi_engine_{name}", help_text, Kind.COUNTER, ENGINE + labels)


def _histogram(name: str, help_text: str) -> Metric:
    return Metric(f"solpi_engine_{name}", help_text, Kind.HISTOGRAM, ENGINE)


REQUESTS = _gauge("requests", "Requests in the engine, as of its last step.", "state")
HIT_RATIO = _gauge("prefix_cache_hit_ratio", "Recent share of prompt tokens found in a cache.", "tier")
FETCHES = _gauge("kv_fetch_requests", "Requests whose KV cache is fetched from elsewhere, by stage.", "stage")
TRANSFER_BYTES = _counter(
    "kv_transfer_bytes_total",
    "KV cache copied by connectors. Copies for later hits: no trouble in themselves.",
    "direction",
)
TRANSFER_SECONDS = _counter("kv_transfer_seconds_total", "Time that these copies took, added up.", "direction")

FINISHED = _counter("finished_requests_total", "Requests ended, by reason (endpoint).", "reason")
UP = Metric("solpi_engine_up", "1 if the engine's endpoint answered, 0 if not.", labels=("server",))
INFO = Metric(
    "solpi_engine_info",
    "Constant 1; what the server runs. The software is the dialect in which its log was recognised.",
    labels=("server", "software", "version", "model"),
)
SETTING = Metric(
    "solpi_engine_setting_info",
    "Constant 1; a setting that the engine printed at its start.",
    labels=("server", "setting", "value"),
)
ERRORS = Metric(
    "solpi_engine_errors_total",
    "Lines of the engine's log that speak of trouble, by kind; one crash has several.",
    Kind.COUNTER,
    ("server", "kind"),
)

# Attribute of EngineReading, metric, further label values.
ROWS: tuple[tuple[str, Metric, tuple[str, ...]], ...] = (
    ("kv_cache_usage_ratio", _gauge("kv_cache_usage_ratio", "Share of the KV cache in use by requests."), ()),
    (
        "kv_cache_capacity_tokens",
        _gauge("kv_cache_capacity_tokens", "Tokens that the KV cache can hold, as told at start."),
        (),
    ),
    (
        "max_concurrency",
        _gauge("max_concurrency_requests", "Requests of the longest length that the KV cache holds, as told at start."),
        (),
    ),
    ("running", REQUESTS, ("running",)),
    ("waiting", REQUESTS, ("waiting",)),
    ("deferred", REQUESTS, ("deferred",)),
    (
        "swapped",
        _gauge("swapped_requests", "Requests whose KV cache was moved to the host (vLLM's V0 engine only)."),
        (),
    ),
    (
        "swap_usage_ratio",
        _gauge("swap_space_usage_ratio", "Share of the host's swap space for KV in use (vLLM's V0 engine only)."),
        (),
    ),
    ("corrupted", _gauge("corrupted_requests", "Requests with NaN in their logits, over the log's interval."), ()),
    ("fetch_waiting", FETCHES, ("waiting",)),
    ("fetch_in_progress", FETCHES, ("in_progress",)),
    ("fetch_completed", FETCHES, ("completed",)),
    (
        "prompt_tokens_per_second",
        _gauge("prompt_tokens_per_second", "The log's own mean over its last interval: prompt tokens read."),
        (),
    ),
    (
        "generation_tokens_per_second",
        _gauge("generation_tokens_per_second", "The log's own mean over its last interval: tokens generated."),
        (),
    ),
    (
        "mean_token_seconds",
        _gauge("mean_token_seconds", "Mean time between a request's tokens by the log: running / generation rate."),
        (),
    ),
    ("prefix_hit_ratio", HIT_RATIO, ("gpu",)),
    ("cpu_hit_ratio", HIT_RATIO, ("cpu",)),
    ("external_hit_ratio", HIT_RATIO, ("external",)),
    ("multimodal_hit_ratio", HIT_RATIO, ("multimodal",)),
    (
        "acceptance_length",
        _gauge("spec_decode_accepted_length_tokens", "Mean tokens that a step of speculative decoding yields (log)."),
        (),
    ),
    (
        "acceptance_ratio",
        _gauge("spec_decode_acceptance_ratio", "Share of drafted tokens that were accepted (log)."),
        (),
    ),
    ("offload_usage_ratio", _gauge("kv_offload_usage_ratio", "Share of the host's offload space in transfers."), ()),
    (
        "last_report_time",
        _gauge(
            "last_report_timestamp_seconds",
            "When the log last reported. It falls silent when the engine idles and when it hangs.",
        ),
        (),
    ),
    ("preemptions", _counter("preemptions_total", "Requests put back for want of KV cache."), ()),
    (
        "preemptions_at_least",
        _counter(
            "preemptions_lower_bound_total",
            "Preemptions that the log of vLLM's V0 engine proves: it tells of one in 50, so there may be 49 more.",
        ),
        (),
    ),
    ("stored_bytes", TRANSFER_BYTES, ("store",)),
    ("loaded_bytes", TRANSFER_BYTES, ("load",)),
    ("received_bytes", TRANSFER_BYTES, ("receive",)),
    ("stored_seconds", TRANSFER_SECONDS, ("store",)),
    ("loaded_seconds", TRANSFER_SECONDS, ("load",)),
    ("received_seconds", TRANSFER_SECONDS, ("receive",)),
    ("failed_transfers", _counter("kv_transfer_failures_total", "Transfers from other servers that failed."), ()),
    ("prompt_tokens", _counter("prompt_tokens_total", "Prompt tokens read (endpoint)."), ()),
    ("generation_tokens", _counter("generation_tokens_total", "Tokens generated (endpoint)."), ()),
    ("steps", _counter("steps_total", "Engine steps that did work (endpoint)."), ()),
    ("iterations", _counter("logged_steps_total", "Engine steps that the log tells of one by one."), ()),
    ("iteration_seconds", _counter("logged_step_seconds_total", "Time that these steps took, added up."), ()),
    (
        "time_to_first_token",
        _histogram("time_to_first_token_seconds", "From a request's arrival to its first token (endpoint)."),
        (),
    ),
    (
        "inter_token_latency",
        _histogram("inter_token_latency_seconds", "From one token of a request to its next (endpoint)."),
        (),
    ),
    ("queue_time", _histogram("queue_seconds", "From a request's arrival to its first step (endpoint)."), ()),
)

METRICS = (UP, INFO, SETTING, ERRORS, FINISHED, *dict.fromkeys(metric for _, metric, _ in ROWS))
