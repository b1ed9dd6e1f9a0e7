"""What is recorded: the five readings of each host, and what alerts and dashboards would else work out again and again.

Names are level:metric:operations, and levels are instance (a host), server, device (a GPU that is probed) and model
(all hosts with one kind of GPU). Rates are taken over five minutes, so scrape once a minute at least.
"""

from collections.abc import Iterator

from solpi_exporter.rules.rule import Group, Record

ENGINES = "server, engine"
GPUS = "gpu, uuid, gpu_instance"
# What makes probes comparable: machine and method.
KIND = "model, shape, layers, context, dtype"
DEVICE = "job, instance, device, uuid"


def quantile(share: float, histogram: str, without: str, window: str) -> str:
    """Return a quantile of a histogram, absent while nothing is counted: NaN would outlive the traffic."""
    return (
        f"histogram_quantile({share}, sum without ({without}) (rate({histogram}_bucket[{window}])))\n"
        f"  and (sum without ({without}) (rate({histogram}_count[{window}])) > 0)"
    )


def _quantiles(level: str, histogram: str, without: str, window: str) -> Iterator[Record]:
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield Record(f"{level}:{histogram}:{name}_rate{window}", quantile(share, histogram, without, window))


def _of_kind(metric: str) -> str:
    """Return a series of the probe with what makes it comparable."""
    return f"({metric} * on ({DEVICE}) group_left ({KIND}) solpi_probe_info)"


def _against_peers(metric: str, labels: str) -> Iterator[Record]:
    by = f"{KIND}{labels}"
    yield Record(f"model:{metric}:median", f"quantile by ({by}) (0.5, {_of_kind(metric)})")
    yield Record(f"model:{metric}:count", f"count by ({by}) ({_of_kind(metric)})")
    yield Record(
        f"device:{metric}:ratio_fleet",
        f"{_of_kind(metric)}\n  / on ({by}) group_left () model:{metric}:median",
    )


TOKENS = "solpi_engine_inter_token_latency_seconds"

READINGS = Group(
    "solpi-readings",
    (
        Record("instance:solpi_gpu_utilization_ratio:avg", f"avg without ({GPUS}) (solpi_gpu_utilization_ratio)"),
        Record(
            "instance:solpi_engine_kv_cache_usage_ratio:max",
            f"max without ({ENGINES}) (solpi_engine_kv_cache_usage_ratio)",
        ),
        *_quantiles("instance", TOKENS, ENGINES, "5m"),
        Record(
            "instance:solpi_engine_preemptions:rate5m",
            f"sum without ({ENGINES}) (rate(solpi_engine_preemptions_total[5m]))",
        ),
        Record(
            "instance:solpi_engine_requests_waiting:sum",
            f'sum without ({ENGINES}, state) (solpi_engine_requests{{state="waiting"}})',
        ),
        Record(
            "instance:solpi_engine_generation_tokens_per_joule:ratio_rate5m",
            f"sum without ({ENGINES}) (rate(solpi_engine_generation_tokens_total[5m]))\n"
            f"  / (sum without ({GPUS}) (rate(solpi_gpu_energy_joules_total[5m])) > 0)",
        ),
    ),
)

# Of one server; they stand in the group of the alerts that ask for them, which would else be an evaluation late.
SERVERS = (
    *_quantiles("server", TOKENS, "engine", "5m"),
    *_quantiles("server", "solpi_engine_time_to_first_token_seconds", "engine", "5m"),
    *_quantiles("server", "solpi_engine_queue_seconds", "engine", "5m"),
    Record(
        "server:solpi_engine_preemptions:rate5m",
        "sum without (engine) (rate(solpi_engine_preemptions_total[5m]))",
    ),
    Record(
        "server:solpi_engine_generation_tokens:rate5m",
        "sum without (engine) (rate(solpi_engine_generation_tokens_total[5m]))",
    ),
    Record(
        "server:solpi_engine_prompt_tokens:rate5m",
        "sum without (engine) (rate(solpi_engine_prompt_tokens_total[5m]))",
    ),
    Record(
        "server:solpi_engine_kv_transfer_bytes:rate5m",
        "sum without (engine) (rate(solpi_engine_kv_transfer_bytes_total[5m]))",
    ),
    Record("server:solpi_engine_swapped_requests:sum", "sum without (engine) (solpi_engine_swapped_requests)"),
    Record("server:solpi_engine_requests:sum", "sum without (engine) (solpi_engine_requests)"),
    Record(
        "server:solpi_engine_control_ratio:avg5m",
        "avg without (engine, basis) (avg_over_time(solpi_engine_control_ratio[5m]))",
    ),
    Record(
        "server:solpi_engine_control_ratio:p50_7d",
        "quantile_over_time(0.5, server:solpi_engine_control_ratio:avg1h[7d] offset 1h)",
    ),
    Record(
        f"server:{TOKENS}:p99_rate5m_p50_1d",
        f"quantile_over_time(0.5, server:{TOKENS}:p99_rate5m_p50_1h[1d] offset 1h)",
    ),
)

# A sample an hour, read over days: at every evaluation they would be a hundred times as many.
HOURLY = Group(
    "solpi-hourly",
    (
        Record(
            "server:solpi_engine_control_ratio:avg1h",
            "avg without (engine, basis) (avg_over_time(solpi_engine_control_ratio[1h]))",
        ),
        Record(f"server:{TOKENS}:p99_rate5m_p50_1h", f"quantile_over_time(0.5, server:{TOKENS}:p99_rate5m[1h])"),
        Record("device:solpi_probe_control_ratio:avg1h", "avg_over_time(solpi_probe_control_ratio[1h])"),
    ),
    interval="1h",
)

PROBES = Group(
    "solpi-probes",
    (
        *_quantiles("device", "solpi_probe_step_seconds", "", "1h"),
        Record(
            "device:solpi_probe_control_ratio:p50_7d",
            "quantile_over_time(0.5, device:solpi_probe_control_ratio:avg1h[7d] offset 1h)",
        ),
        *_against_peers("solpi_probe_token_seconds", ", batch, mode, basis"),
        *_against_peers("solpi_probe_launch_seconds", ""),
        Record(
            "model:solpi_engine_control_ratio:median",
            "quantile by (model) (0.5,\n"
            "  max by (job, instance, server, model) (\n"
            "    solpi_engine_gpu_info * on (job, instance, uuid) group_left (model) solpi_gpu_info\n"
            "  ) * on (job, instance, server) group_left () server:solpi_engine_control_ratio:avg5m\n"
            ")",
        ),
    ),
)

GROUPS = (READINGS, HOURLY, PROBES)
