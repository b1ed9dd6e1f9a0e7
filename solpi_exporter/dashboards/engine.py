"""The dashboard of the serving engines: queue, KV cache, preemptions, throughput, latency, on one axis with the GPU."""

from solpi_exporter.dashboards import engine_requests, looks
from solpi_exporter.dashboards.engine_requests import (
    NO_ENDPOINT,
    NO_TOKENS,
    NO_TRANSFER,
    NOT_TOLD,
    SERVER_NAME,
)
from solpi_exporter.dashboards.frame import ALERTS, ENGINE_ERRORS, HOSTS, SERVER, XIDS, Section, dashboard, line, tiles
from solpi_exporter.dashboards.panels import heatmap, series, stat
from solpi_exporter.dashboards.queries import Json, query

UID = "solpi-engine"

ITL = "solpi_engine_inter_token_latency_seconds"
TTFT = "solpi_engine_time_to_first_token_seconds"
QUEUE = "solpi_engine_queue_seconds"
QUANTILES = (0.5, 0.99)


def build() -> Json:
    """Return the dashboard."""
    return dashboard(
        UID,
        "Solpi: engine and KV cache",
        "What the serving engines do, and whether they want for KV cache, GPU or host: all on one time axis.",
        [*HOSTS, SERVER],
        [ALERTS, XIDS, ENGINE_ERRORS],
        [
            _tiles(),
            _together(),
            _latency(),
            engine_requests.kv(),
            engine_requests.requests(),
            engine_requests.sources(),
        ],
    )


def _tiles() -> Section:
    return tiles(
        stat(
            "Not answering",
            "Servers whose endpoint does not answer (`solpi_engine_up` 0).",
            "sum(solpi_engine_up{ENGINE} == bool 0)",
            unit="none",
            empty="No endpoint",
            steps=looks.ANY,
        ),
        stat(
            "Running",
            'Requests in decoding or prefill (`solpi_engine_requests{state="running"}`).',
            'sum(solpi_engine_requests{ENGINE, state="running"})',
            unit="short",
            empty=NOT_TOLD,
        ),
        stat(
            "Waiting",
            'Requests in the queue (`solpi_engine_requests{state="waiting"}`).',
            'sum(solpi_engine_requests{ENGINE, state="waiting"})',
            unit="short",
            empty=NOT_TOLD,
            steps=looks.WAITING,
        ),
        stat(
            "Fullest KV",
            "`solpi_engine_kv_cache_usage_ratio` of the fullest engine. Near full is what load looks like; one that "
            "is full preempts.",
            "max(solpi_engine_kv_cache_usage_ratio{ENGINE})",
            unit="percentunit",
            empty=NOT_TOLD,
            steps=looks.KV_USAGE,
        ),
        stat(
            "Preemptions",
            "Requests put back for want of KV cache, a second (`solpi_engine_preemptions_total`). Each is work done "
            "twice.",
            "sum(rate(solpi_engine_preemptions_total{ENGINE}[$__rate_interval]))",
            unit="cps",
            empty=NOT_TOLD,
            steps=looks.PREEMPTIONS,
        ),
        stat(
            "Token P99",
            f"Worst server: 99th percentile of the time between two tokens of a request (`{ITL}`).",
            f"max({_quantile(0.99, ITL)})",
            unit="s",
            empty=NO_ENDPOINT,
        ),
        stat(
            "TTFT P99",
            f"Worst server: 99th percentile from a request's arrival to its first token (`{TTFT}`).",
            f"max({_quantile(0.99, TTFT)})",
            unit="s",
            empty=NO_ENDPOINT,
        ),
        stat(
            "Generated",
            "Tokens a second, of all chosen servers (`solpi_engine_generation_tokens_total`).",
            "sum(rate(solpi_engine_generation_tokens_total{ENGINE}[$__rate_interval]))",
            unit="count:tok/s",
            empty=NO_ENDPOINT,
        ),
    )


def _quantile(of: float, histogram: str) -> str:
    return (
        f"histogram_quantile({of:g}, sum by (EACH_SERVER, le) (rate({histogram}_bucket{{ENGINE}}[$__rate_interval])))"
    )


def _quantiles(title: str, description: str, histogram: str) -> Json:
    """Return P50 and P99 of each server."""
    return series(
        title,
        f"{description} P50 and P99 of `{histogram}`, by server.",
        [query(_quantile(of, histogram), f"{SERVER_NAME} P{of * 100:g}") for of in QUANTILES],
        unit="s",
        empty=NO_ENDPOINT,
    )


def _of_its_gpus(metric: str) -> str:
    """Return a GPU's gauge by the servers that run on it."""
    return f"{metric}{{HOST}} * on (EACH_HOST, uuid) group_right (gpu) solpi_engine_gpu_info{{ENGINE}}"


def _together() -> Section:
    queue = series(
        "Queue",
        "`solpi_engine_requests`: running; waiting, in the queue; deferred, put off by the scheduler. A queue beside "
        "a KV cache that is not full means that the batch limit (max_num_seqs), not memory, holds requests back.",
        [query("sum by (EACH_SERVER, state) (solpi_engine_requests{ENGINE})", f"{SERVER_NAME} {{{{state}}}}")],
        unit="short",
        empty=NOT_TOLD,
    )
    usage = series(
        "KV cache usage",
        "`solpi_engine_kv_cache_usage_ratio` by engine. One that is full preempts.",
        [query("solpi_engine_kv_cache_usage_ratio{ENGINE}", f"{SERVER_NAME} engine {{{{engine}}}}")],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
        steps=looks.KV_USAGE,
    )
    preempted = series(
        "Preemptions",
        "`solpi_engine_preemptions_total`, a second. With a full KV cache and a queue: too little memory for the "
        "load. `solpi_engine_preemptions_lower_bound_total` is what the log of vLLM's V0 engine proves.",
        [
            query("sum by (EACH_SERVER) (rate(solpi_engine_preemptions_total{ENGINE}[$__rate_interval]))", SERVER_NAME),
            query(
                "sum by (EACH_SERVER) (rate(solpi_engine_preemptions_lower_bound_total{ENGINE}[$__rate_interval]))",
                f"{SERVER_NAME} at least",
            ),
        ],
        unit="cps",
        empty=NOT_TOLD,
        bars=True,
    )
    latency = _quantiles(
        "Token latency",
        "From one token of a request to its next. Higher with more requests running is usual; higher with as many is "
        "not.",
        ITL,
    )
    throughput = series(
        "Throughput",
        "Tokens a second: generated (`solpi_engine_generation_tokens_total`), and prompt tokens read "
        "(`solpi_engine_prompt_tokens_total`).",
        [
            query(
                f"sum by (EACH_SERVER) (rate(solpi_engine_{kind}_tokens_total{{ENGINE}}[$__rate_interval]))",
                f"{SERVER_NAME} {kind}",
            )
            for kind in ("generation", "prompt")
        ],
        unit="count:tok/s",
        empty=NO_ENDPOINT,
    )
    gpu = series(
        "GPU",
        "Of the GPUs that the servers run on (`solpi_engine_gpu_info`): utilisation, which is 1 while any kernel runs "
        "(`solpi_gpu_utilization_ratio`), and use of memory bandwidth, which bounds decoding "
        "(`solpi_gpu_dram_active_ratio`). Full utilisation beside idle bandwidth is a host that feeds it too slowly, "
        "or small batches.",
        [
            query(_of_its_gpus("solpi_gpu_utilization_ratio"), f"{SERVER_NAME} GPU {{{{gpu}}}} utilisation"),
            query(_of_its_gpus("solpi_gpu_dram_active_ratio"), f"{SERVER_NAME} GPU {{{{gpu}}}} bandwidth"),
        ],
        unit="percentunit",
        empty="Nothing is known of these servers' GPUs",
        top=1,
    )
    lost = series(
        "Lost share of a token",
        "Share of the time between two tokens in which the GPU was not busy for them (`solpi_engine_control_ratio`): "
        "the control layer, or stalls for KV.",
        [query("avg by (EACH_SERVER) (solpi_engine_control_ratio{ENGINE})", SERVER_NAME)],
        unit="percentunit",
        empty=NO_TOKENS,
        top=1,
        steps=looks.CONTROL,
    )
    transfers = series(
        "KV transfers",
        "KV cache copied by connectors, bytes a second by direction (`solpi_engine_kv_transfer_bytes_total`). Copies "
        "for later hits: no trouble in themselves, but they share PCIe.",
        [
            query(
                "sum by (EACH_SERVER, direction) "
                "(rate(solpi_engine_kv_transfer_bytes_total{ENGINE}[$__rate_interval]))",
                f"{SERVER_NAME} {{{{direction}}}}",
            )
        ],
        unit="Bps",
        empty=NO_TRANSFER,
    )
    panels = (queue, usage, preempted, transfers, throughput, latency, gpu, lost)
    return Section("On one time axis", tuple(line(one, height=6) for one in panels))


def _latency() -> Section:
    return Section(
        "Latency",
        (
            line(
                _quantiles("First token", "From a request's arrival to its first token: queue and prefill.", TTFT),
                _quantiles("In the queue", "From a request's arrival to its first step.", QUEUE),
            ),
            line(
                heatmap(
                    "Times between tokens",
                    f"How they are spread (`{ITL}`), all chosen servers. Two bands are steps with and without a "
                    "prefill beside them.",
                    f"sum by (le) (increase({ITL}_bucket{{ENGINE}}[$__rate_interval]))",
                    unit="s",
                    empty=NO_ENDPOINT,
                ),
                series(
                    "Mean time between tokens",
                    f"By the endpoint (`{ITL}`), and by the log, where there is no endpoint: running requests over "
                    "the rate of tokens (`solpi_engine_mean_token_seconds`).",
                    [
                        query(
                            f"sum by (EACH_SERVER) (rate({ITL}_sum{{ENGINE}}[$__rate_interval])) "
                            f"/ (sum by (EACH_SERVER) (rate({ITL}_count{{ENGINE}}[$__rate_interval])) > 0)",
                            SERVER_NAME,
                        ),
                        query("avg by (EACH_SERVER) (solpi_engine_mean_token_seconds{ENGINE})", f"{SERVER_NAME} log"),
                    ],
                    unit="s",
                    empty="No traffic, or no engine tells it",
                ),
            ),
        ),
    )
