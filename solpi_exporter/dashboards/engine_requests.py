"""Sections of the engines' dashboard: KV cache, requests, and where it is known from."""

from solpi_exporter.dashboards import looks
from solpi_exporter.dashboards.frame import Section, line
from solpi_exporter.dashboards.panels import series, states
from solpi_exporter.dashboards.queries import query
from solpi_exporter.dashboards.tables import Label, Value, table

NO_ENDPOINT = "No traffic, or no endpoint (its /metrics) to tell it"
NOT_TOLD = "No engine tells it"
NO_TOKENS = "No tokens, or too little is told of them"
NO_TRANSFER = "No KV transfer is told"
NO_LOG = "No log tells it"
SERVER_NAME = "{{instance}} {{server}}"


def kv() -> Section:
    """Return the section on the KV cache: hits, transfers, swap."""
    hits = series(
        "Prefix cache hits",
        "Recent share of prompt tokens found in a cache, by tier (`solpi_engine_prefix_cache_hit_ratio`).",
        [query("solpi_engine_prefix_cache_hit_ratio{ENGINE}", f"{SERVER_NAME} {{{{tier}}}}")],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
    )
    busy = series(
        "Time in KV transfers",
        "Seconds a second, added up over transfers (`solpi_engine_kv_transfer_seconds_total`); failures a second "
        "(`solpi_engine_kv_transfer_failures_total`).",
        [
            query(
                "sum by (EACH_SERVER, direction) "
                "(rate(solpi_engine_kv_transfer_seconds_total{ENGINE}[$__rate_interval]))",
                f"{SERVER_NAME} {{{{direction}}}}",
            ),
            query(
                "sum by (EACH_SERVER) (rate(solpi_engine_kv_transfer_failures_total{ENGINE}[$__rate_interval]))",
                f"{SERVER_NAME} failures",
            ),
        ],
        unit="none",
        empty=NO_TRANSFER,
    )
    waiting = series(
        "Waiting for KV from elsewhere",
        "Requests whose KV cache is fetched, by stage (`solpi_engine_kv_fetch_requests`); share of the host's offload "
        "space in transfers is `solpi_engine_kv_offload_usage_ratio`.",
        [
            query(
                "sum by (EACH_SERVER, stage) (solpi_engine_kv_fetch_requests{ENGINE})",
                f"{SERVER_NAME} {{{{stage}}}}",
            )
        ],
        unit="short",
        empty="No fetch of KV is told",
    )
    swapped = series(
        "Swap",
        "Requests moved to the host's memory (`solpi_engine_swapped_requests`).",
        [query("sum by (EACH_SERVER) (solpi_engine_swapped_requests{ENGINE})", SERVER_NAME)],
        unit="short",
        empty="Only vLLM's V0 engine swaps",
    )
    space = series(
        "KV space on the host",
        "Share in use: for swap (`solpi_engine_swap_space_usage_ratio`), for offload "
        "(`solpi_engine_kv_offload_usage_ratio`).",
        [
            query("max by (EACH_SERVER) (solpi_engine_swap_space_usage_ratio{ENGINE})", f"{SERVER_NAME} swap"),
            query("max by (EACH_SERVER) (solpi_engine_kv_offload_usage_ratio{ENGINE})", f"{SERVER_NAME} offload"),
        ],
        unit="percentunit",
        empty="No swap, no offload is told",
        top=1,
    )
    capacity = table(
        "Size of the KV cache",
        "As told at start: tokens (`solpi_engine_kv_cache_capacity_tokens`), and requests of the longest length that "
        "fit (`solpi_engine_max_concurrency_requests`). Below 1 no such request can run.",
        [Label("instance", "Host"), Label("server", "Server"), Label("engine", "Engine")],
        [
            Value("Tokens", "solpi_engine_kv_cache_capacity_tokens{ENGINE}", "short"),
            Value("Longest requests", "solpi_engine_max_concurrency_requests{ENGINE}", "short"),
        ],
        empty=NOT_TOLD,
    )
    return Section("KV cache", (line(hits, busy, waiting), line(swapped, space, capacity)))


def requests() -> Section:
    """Return the section on requests: how they end, how many tokens they bring."""
    finished = series(
        "Finished requests",
        "Requests a second, by reason (`solpi_engine_finished_requests_total`). `error` and `abort` are lost to "
        "somebody.",
        [query("sum by (reason) (rate(solpi_engine_finished_requests_total{ENGINE}[$__rate_interval]))", "{{reason}}")],
        unit="reqps",
        empty=NO_ENDPOINT,
        stack=True,
        colors={"stop": "blue", "length": "purple", "abort": "orange", "error": "red", "repetition": "yellow"},
    )
    steps = series(
        "Tokens a step",
        "Generated tokens over engine steps (`solpi_engine_generation_tokens_total` / `solpi_engine_steps_total`): "
        "the batch size in effect, over which a step's fixed cost is shared.",
        [
            query(
                "sum by (EACH_SERVER) (rate(solpi_engine_generation_tokens_total{ENGINE}[$__rate_interval])) "
                "/ (sum by (EACH_SERVER) (rate(solpi_engine_steps_total{ENGINE}[$__rate_interval])) > 0)",
                SERVER_NAME,
            )
        ],
        unit="short",
        empty=NO_ENDPOINT,
    )
    speculation = series(
        "Speculative decoding",
        "Share of drafted tokens that were accepted (`solpi_engine_spec_decode_acceptance_ratio`). Drafts that are "
        "refused are work for nothing.",
        [query("solpi_engine_spec_decode_acceptance_ratio{ENGINE}", SERVER_NAME)],
        unit="percentunit",
        empty="No speculation is told",
        top=1,
    )
    logged = series(
        "Throughput by the log",
        "The log's own means over its interval, where there is no endpoint: "
        "`solpi_engine_generation_tokens_per_second`, `solpi_engine_prompt_tokens_per_second`.",
        [
            query(f"sum by (EACH_SERVER) (solpi_engine_{kind}_tokens_per_second{{ENGINE}})", f"{SERVER_NAME} {kind}")
            for kind in ("generation", "prompt")
        ],
        unit="count:tok/s",
        empty=NO_LOG,
    )
    return Section("Requests and steps", (line(finished, steps), line(speculation, logged)))


def sources() -> Section:
    """Return the section on where it is known from, and how fresh that is."""
    errors = series(
        "Lines of trouble",
        "Lines of the engine's log that speak of trouble, by kind (`solpi_engine_errors_total`); one crash has "
        "several.",
        [
            query(
                "sum by (EACH_SERVER, kind) (increase(solpi_engine_errors_total{ENGINE}[$__rate_interval])) > 0",
                f"{SERVER_NAME} {{{{kind}}}}",
            )
        ],
        unit="short",
        empty="No new ones",
        bars=True,
    )
    silence = series(
        "Since the log's last report",
        "`time() - solpi_engine_last_report_timestamp_seconds`. A log falls silent when its engine idles, and when it "
        "hangs: with requests running, it hangs.",
        [
            query(
                "time() - solpi_engine_last_report_timestamp_seconds{ENGINE}",
                f"{SERVER_NAME} engine {{{{engine}}}}",
            )
        ],
        unit="s",
        empty=NO_LOG,
    )
    state = states(
        "Endpoint answers",
        "`solpi_engine_up`: 1 if the engine's endpoint answered.",
        [query("solpi_engine_up{ENGINE}", SERVER_NAME)],
        looks.YES_NO,
        empty="No endpoint",
    )
    lost = series(
        "Log unread and lost",
        "Bytes written and not yet read (`solpi_log_lag_bytes`), and bytes a second that were gone before they were "
        "read (`solpi_log_lost_bytes_total`).",
        [
            query("solpi_log_lag_bytes{ENGINE}", f"{SERVER_NAME} unread"),
            query("rate(solpi_log_lost_bytes_total{ENGINE}[$__rate_interval])", f"{SERVER_NAME} lost a second"),
        ],
        unit="bytes",
        empty=NO_LOG,
    )
    running = table(
        "What runs",
        "Software, version and model (`solpi_engine_info`).",
        [
            Label("instance", "Host"),
            Label("server", "Server"),
            Label("software", "Software"),
            Label("version", "Version"),
            Label("model", "Model"),
        ],
        [Value("", "solpi_engine_info{ENGINE}")],
        empty=NOT_TOLD,
    )
    settings = table(
        "Settings",
        "What the engine printed at its start (`solpi_engine_setting_info`): compare before and after a change.",
        [
            Label("instance", "Host"),
            Label("server", "Server"),
            Label("setting", "Setting"),
            Label("value", "Value"),
        ],
        [Value("", "solpi_engine_setting_info{ENGINE}")],
        empty="No start was seen in the log",
    )
    return Section("Trouble, sources and settings", (line(errors, silence), line(state, lost), line(running, settings)))
