"""Sections of the fleet's dashboard: the worst hosts over time, and hosts against their peers."""

from solpi_exporter.dashboards import control, looks
from solpi_exporter.dashboards.control_host import NO_PSI
from solpi_exporter.dashboards.frame import Section, line
from solpi_exporter.dashboards.panels import series
from solpi_exporter.dashboards.queries import Json, query

NO_RULES = "No figures, or no recording rules"
NO_PROBES = "No figures of a probe, or no recording rules"
# Recorded: a fleet's raw series are too many to be worked out at each look.
CONTROL = "max by (EACH_HOST) (server:solpi_engine_control_ratio:avg5m{HOST})"
LATENCY = "max by (EACH_HOST) (instance:solpi_engine_inter_token_latency_seconds:p99_rate5m{HOST})"
USAGE = "max by (EACH_HOST) (instance:solpi_engine_kv_cache_usage_ratio:max{HOST})"
WAITING = "max by (EACH_HOST) (instance:solpi_engine_requests_waiting:sum{HOST})"
PREEMPTIONS = "max by (EACH_HOST) (instance:solpi_engine_preemptions:rate5m{HOST})"
PROBE_PEERS = "max by (EACH_HOST) (device:solpi_probe_token_seconds:ratio_fleet{HOST})"
LAUNCH_PEERS = "max by (EACH_HOST) (device:solpi_probe_launch_seconds:ratio_fleet{HOST})"


def host_link(uid: str, instance: str) -> str:
    """Return where a dashboard shows one host, at the same time and of the same data source."""
    return f"/d/{uid}?${{__url_time_range}}&${{datasource:queryparam}}&${{job:queryparam}}&var-instance={instance}"


def _top(title: str, description: str, expr: str, unit: str, empty: str, steps: Json | None = None) -> Json:
    """Return the ten hosts that are worst at each instant; a click on a line leads to the host."""
    made = series(
        title,
        f"{description} The ten worst at each instant.",
        [query(f"topk(10, {expr})", "{{instance}}")],
        unit=unit,
        empty=empty,
        steps=steps,
    )
    made["fieldConfig"]["defaults"]["links"] = [
        {
            "title": "Control layer of ${__field.labels.instance}",
            "url": host_link(control.UID, "${__field.labels.instance}"),
        }
    ]
    return made


def worst() -> Section:
    """Return the section on the worst hosts over time."""
    return Section(
        "The worst over time",
        (
            line(
                _top(
                    "Lost share",
                    "`server:solpi_engine_control_ratio:avg5m`.",
                    CONTROL,
                    "percentunit",
                    NO_RULES,
                    looks.CONTROL,
                ),
                _top(
                    "Lost share more than a week ago",
                    "Points by which it rose: an hour's mean less the week's median "
                    "(`server:solpi_engine_control_ratio:avg1h` - `:p50_7d`).",
                    "max by (EACH_HOST) (clamp_min(server:solpi_engine_control_ratio:avg1h{HOST} "
                    "- server:solpi_engine_control_ratio:p50_7d{HOST}, 0))",
                    "percentunit",
                    "Too few hours of tokens, or no recording rules",
                ),
                _top(
                    "Token P99",
                    "`instance:solpi_engine_inter_token_latency_seconds:p99_rate5m`.",
                    LATENCY,
                    "s",
                    "No latency is told, or no recording rules",
                ),
            ),
            line(
                _top(
                    "Probe's token against peers",
                    "`device:solpi_probe_token_seconds:ratio_fleet`: 1 is the median of its kind.",
                    PROBE_PEERS,
                    "none",
                    NO_PROBES,
                    looks.PEERS,
                ),
                _top(
                    "Kernel launch against peers",
                    "`device:solpi_probe_launch_seconds:ratio_fleet`: 1 is the median of its kind.",
                    LAUNCH_PEERS,
                    "none",
                    NO_PROBES,
                    looks.PEERS,
                ),
                _top(
                    "Waiting",
                    "`instance:solpi_engine_requests_waiting:sum`.",
                    WAITING,
                    "short",
                    NO_RULES,
                    looks.WAITING,
                ),
            ),
            line(
                _top(
                    "KV usage",
                    "`instance:solpi_engine_kv_cache_usage_ratio:max`.",
                    USAGE,
                    "percentunit",
                    NO_RULES,
                    looks.KV_USAGE,
                ),
                _top(
                    "Preemptions",
                    "A second (`instance:solpi_engine_preemptions:rate5m`).",
                    PREEMPTIONS,
                    "cps",
                    NO_RULES,
                ),
                _top(
                    "Waiting for CPUs",
                    "Share of the time in which some task was ready and no CPU took it "
                    "(`solpi_host_pressure_waiting_seconds_total`, cut at 1).",
                    "max by (EACH_HOST) (clamp_max("
                    'rate(solpi_host_pressure_waiting_seconds_total{HOST, resource="cpu"}[$__rate_interval]), 1))',
                    "percentunit",
                    NO_PSI,
                ),
            ),
        ),
    )


def models() -> Section:
    """Return what is usual for a GPU model, whatever hosts are chosen."""
    return Section(
        "What is usual, by GPU model",
        (
            line(
                series(
                    "Lost share of a token",
                    "Median of the fleet's servers (`model:solpi_engine_control_ratio:median`).",
                    [query("model:solpi_engine_control_ratio:median", "{{model}}")],
                    unit="percentunit",
                    empty=NO_RULES,
                    top=1,
                    steps=looks.CONTROL,
                ),
                series(
                    "Probe's token",
                    "Median of the fleet, launched (`model:solpi_probe_token_seconds:median`): comparable within "
                    "shape, layers and context.",
                    [
                        query(
                            'model:solpi_probe_token_seconds:median{mode="eager_sync"}',
                            "{{model}} {{shape}} x{{layers}} batch {{batch}} {{basis}}",
                        )
                    ],
                    unit="s",
                    empty=NO_RULES,
                ),
                series(
                    "Kernel launch",
                    "Median of the fleet (`model:solpi_probe_launch_seconds:median`).",
                    [query("model:solpi_probe_launch_seconds:median", "{{model}} {{shape}}")],
                    unit="s",
                    empty=NO_RULES,
                ),
            ),
        ),
        collapsed=True,
    )
