"""The dashboard of the fleet: every host a row, worst first, from which the other dashboards are one click away."""

from collections.abc import Iterator

from solpi_exporter.dashboards import control, engine, fleet_peers, gpu, looks
from solpi_exporter.dashboards.fleet_peers import (
    CONTROL,
    LATENCY,
    LAUNCH_PEERS,
    NO_RULES,
    PREEMPTIONS,
    TOKEN_PEERS,
    USAGE,
    WAITING,
    host_link,
)
from solpi_exporter.dashboards.frame import ALERTS, HOSTS, XIDS, Section, dashboard, line, tiles
from solpi_exporter.dashboards.panels import stat
from solpi_exporter.dashboards.queries import BY_HOST, HOST, Json, most, rise, select, total
from solpi_exporter.dashboards.tables import Label, Value, table

UID = "solpi-fleet"


FIRING = ('alertstate="firing"', 'alertname=~"Solpi.*"', 'severity!="info"')

USUAL_P99 = (
    f"{most(BY_HOST, select('server:solpi_engine_inter_token_latency_seconds:p99_rate5m', HOST))} / "
    f"{most(BY_HOST, select('server:solpi_engine_inter_token_latency_seconds:p99_rate5m_p50_1d', HOST))}"
)
THROTTLED = total(BY_HOST, select("solpi_gpu_clocks_event_active", HOST, gpu.HARMFUL))
XID_COUNT = total(BY_HOST, rise("solpi_gpu_xid_errors_total", HOST, window="1d"))
NOT_OK = (
    f"{total(BY_HOST, select('solpi_gpu_state', HOST, gpu.NOT_OK))} + on ({BY_HOST}) "
    f"clamp_min({select('solpi_gpus_expected', HOST)} - {select('solpi_gpus_present', HOST)}, 0)"
)


def build() -> Json:
    """Return the dashboard."""
    return dashboard(
        UID,
        "Solpi: fleet",
        "Every host one row, worst first. It needs the recording rules.",
        HOSTS,
        [ALERTS, XIDS],
        [_tiles(), _hosts(), fleet_peers.worst(), fleet_peers.models()],
    )


def _tiles() -> Section:
    return tiles(
        stat(
            "Hosts",
            "Exporters that answer (`solpi_build_info`).",
            "count(solpi_build_info{HOST})",
            unit="none",
            empty="No exporter answers",
        ),
        stat(
            "Exporters down",
            "Targets of these jobs that could not be scraped (`up` 0).",
            "sum(up{HOST} == bool 0)",
            unit="none",
            empty="No target",
            steps=looks.ANY,
        ),
        stat(
            "Alerts",
            'Firing ones of this exporter (`ALERTS{alertname=~"Solpi.*"}`), without those for information only.',
            'count(ALERTS{HOST, alertstate="firing", alertname=~"Solpi.*", severity!="info"})',
            unit="none",
            empty="None",
            steps=looks.ANY,
        ),
        stat(
            "GPUs",
            "That answer (`solpi_gpu_up`).",
            "sum(solpi_gpu_up{HOST})",
            unit="none",
            empty="No driver",
        ),
        stat(
            "GPUs missing or not ok",
            "Expected and not there (`solpi_gpus_expected`, `solpi_gpus_present`), or in a state other than ok "
            "and quiesced "
            "(`solpi_gpu_state`).",
            (
                'sum(sum by (EACH_HOST) (solpi_gpu_state{HOST, state!~"ok|quiesced"}) + on (EACH_HOST) '
                "clamp_min(solpi_gpus_expected{HOST} - solpi_gpus_present{HOST}, 0))"
            ),
            unit="none",
            empty="No driver",
            steps=looks.ANY,
        ),
        stat(
            "Hosts that lose half",
            "Hosts with a server that loses half of each token or more (`server:solpi_engine_control_ratio:avg5m`).",
            "sum(max by (EACH_HOST) (server:solpi_engine_control_ratio:avg5m{HOST}) >= bool 0.5)",
            unit="none",
            empty=NO_RULES,
            steps=looks.ANY,
        ),
        stat(
            "Generated",
            "Tokens a second of all servers (`server:solpi_engine_generation_tokens:rate5m`).",
            "sum(server:solpi_engine_generation_tokens:rate5m{HOST})",
            unit="count:tok/s",
            empty=NO_RULES,
        ),
        stat(
            "Tokens a joule",
            "Of the host that makes the least of its energy "
            "(`instance:solpi_engine_generation_tokens_per_joule:ratio_rate5m`).",
            "min(instance:solpi_engine_generation_tokens_per_joule:ratio_rate5m{HOST})",
            unit="none",
            empty="No traffic, or no recording rules",
        ),
    )


def _signs() -> str:
    """Return how many of a host's readings are beyond their orange: by which the table is sorted."""
    limits = (
        ("control", CONTROL, 0.2),
        ("p99", USUAL_P99, 1.5),
        ("kv", USAGE, 0.98),
        ("queue", WAITING, 50),
        ("preemptions", PREEMPTIONS, 0.001),
        ("throttled", THROTTLED, 1),
        ("xids", XID_COUNT, 1),
        ("gpus", NOT_OK, 1),
        ("token", TOKEN_PEERS, 1.2),
        ("launch", LAUNCH_PEERS, 1.2),
    )
    signs = " or ".join(
        f'label_replace(({expr}) >= bool {limit:g}, "sign", "{sign}", "", "")' for sign, expr, limit in limits
    )
    return total(BY_HOST, signs)


def _drill_downs() -> Iterator[tuple[str, str]]:
    for title, uid in (("Control layer", control.UID), ("Engine and KV cache", engine.UID), ("GPU", gpu.UID)):
        yield title, host_link(uid, "${__value.raw}")


def _hosts() -> Section:
    hosts = table(
        "Hosts, worst first",
        "A click on a host leads to its other dashboards. Signs: how many of the columns are beyond their limit. "
        "Lost share: "
        "worst server (`server:solpi_engine_control_ratio:avg5m`). P99 / usual: against the median of its last "
        "day. Token and "
        "launch / peers: the probe against the median of hosts with the same GPU model and shape "
        "(`device:solpi_probe_token_seconds:ratio_fleet`, `device:solpi_probe_launch_seconds:ratio_fleet`). "
        "Slowed: reasons of "
        "heat, power brake or hardware that hold clocks down (`solpi_gpu_clocks_event_active`). XIDs: of a day "
        "(`solpi_gpu_xid_errors_total`).",
        [Label("instance", "Host", tuple(_drill_downs())), Label("job", "Job")],
        [
            Value(
                "Signs",
                (
                    "sum by (EACH_HOST) (label_replace((max by (EACH_HOST) "
                    '(server:solpi_engine_control_ratio:avg5m{HOST})) >= bool 0.2, "sign", "control", "", "") or '
                    "label_replace((max by (EACH_HOST) "
                    "(server:solpi_engine_inter_token_latency_seconds:p99_rate5m{HOST}) / max by (EACH_HOST) "
                    '(server:solpi_engine_inter_token_latency_seconds:p99_rate5m_p50_1d{HOST})) >= bool 1.5, "sign",'
                    ' "p99", "", "") or label_replace((max by (EACH_HOST) '
                    '(instance:solpi_engine_kv_cache_usage_ratio:max{HOST})) >= bool 0.98, "sign", "kv", "", "") or '
                    "label_replace((max by (EACH_HOST) (instance:solpi_engine_requests_waiting:sum{HOST})) >= bool "
                    '50, "sign", "queue", "", "") or label_replace((max by (EACH_HOST) '
                    '(instance:solpi_engine_preemptions:rate5m{HOST})) >= bool 0.001, "sign", "preemptions", "", "")'
                    " or label_replace((sum by (EACH_HOST) (solpi_gpu_clocks_event_active{HOST, "
                    'reason=~"hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown|reliability"}))'
                    ' >= bool 1, "sign", "throttled", "", "") or label_replace((sum by (EACH_HOST) '
                    '(increase(solpi_gpu_xid_errors_total{HOST}[1d]))) >= bool 1, "sign", "xids", "", "") or '
                    'label_replace((sum by (EACH_HOST) (solpi_gpu_state{HOST, state!~"ok|quiesced"}) + on '
                    "(EACH_HOST) clamp_min(solpi_gpus_expected{HOST} - solpi_gpus_present{HOST}, 0)) >= bool 1, "
                    '"sign", "gpus", "", "") or label_replace((max by (EACH_HOST) '
                    '(device:solpi_probe_token_seconds:ratio_fleet{HOST})) >= bool 1.2, "sign", "token", "", "") or '
                    "label_replace((max by (EACH_HOST) (device:solpi_probe_launch_seconds:ratio_fleet{HOST})) >= "
                    'bool 1.2, "sign", "launch", "", ""))'
                ),
                "none",
                looks.SOME,
            ),
            Value("Lost share", CONTROL, "percentunit", looks.CONTROL),
            Value("Token P99", LATENCY, "s"),
            Value("P99 / usual", USUAL_P99, "none", looks.AGAINST_USUAL),
            Value("KV usage", USAGE, "percentunit", looks.KV_USAGE),
            Value("Waiting", WAITING, "short", looks.WAITING),
            Value("Preemptions", PREEMPTIONS, "cps", looks.PREEMPTIONS),
            Value("Slowed", THROTTLED, "none", looks.ANY),
            Value("XIDs", XID_COUNT, "short", looks.SOME),
            Value("GPUs not ok", NOT_OK, "none", looks.ANY),
            Value("Token / peers", TOKEN_PEERS, "none", looks.AGAINST_USUAL),
            Value("Launch / peers", LAUNCH_PEERS, "none", looks.AGAINST_USUAL),
            Value(
                "GPU utilisation",
                "max by (EACH_HOST) (instance:solpi_gpu_utilization_ratio:avg{HOST})",
                "percentunit",
            ),
        ],
        empty=NO_RULES,
        sort=["Signs", "Lost share"],
    )
    return Section("", (line(hosts, height=12),))
