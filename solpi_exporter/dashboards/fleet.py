"""The dashboard of the fleet: every host a row, worst first, from which the other dashboards are one click away."""

from collections.abc import Iterator

from solpi_exporter.dashboards import control, engine, fleet_peers, gpu, looks
from solpi_exporter.dashboards.fleet_peers import (
    CONTROL,
    LATENCY,
    LAUNCH_PEERS,
    NO_RULES,
    PREEMPTIONS,
    PROBE_PEERS,
    USAGE,
    WAITING,
    host_link,
)
from solpi_exporter.dashboards.frame import ALERTS, HOSTS, XIDS, Section, dashboard, line, tiles
from solpi_exporter.dashboards.gpu_health import NO_GPU
from solpi_exporter.dashboards.panels import stat
from solpi_exporter.dashboards.queries import Json
from solpi_exporter.dashboards.tables import Label, Value, table

UID = "solpi-fleet"

USUAL_P99 = (
    "max by (EACH_HOST) (server:solpi_engine_inter_token_latency_seconds:p99_rate5m{HOST}) "
    "/ max by (EACH_HOST) (server:solpi_engine_inter_token_latency_seconds:p99_rate5m_p50_1d{HOST})"
)
THROTTLED = "sum by (EACH_HOST) (solpi_gpu_clocks_event_active{HOST, HARMFUL})"
XID_COUNT = "sum by (EACH_HOST) (increase(solpi_gpu_xid_errors_total{HOST}[1d]))"
_LOSSY = looks.first(looks.CONTROL)
BROKEN = (
    "sum by (EACH_HOST) (solpi_gpu_state{HOST, NOT_OK}) "
    "+ on (EACH_HOST) clamp_min(solpi_gpus_expected{HOST} - solpi_gpus_present{HOST}, 0)"
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
            empty="No exporter",
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
            empty=NO_GPU,
        ),
        stat(
            "GPUs not ok",
            "Expected and not there (`solpi_gpus_expected`, `solpi_gpus_present`), or in a state other than ok and "
            "quiesced (`solpi_gpu_state`).",
            f"sum({BROKEN})",
            unit="none",
            empty=NO_GPU,
            steps=looks.ANY,
        ),
        stat(
            "Lossy hosts",
            f"Hosts with a server that loses {100 * _LOSSY:g} % of each token or more "
            "(`server:solpi_engine_control_ratio:avg5m`).",
            f"sum({CONTROL} >= bool {_LOSSY:g})",
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
            empty="No tokens, no joules, or no recording rules",
        ),
    )


READINGS = (
    Value("Lost share", CONTROL, "percentunit", looks.CONTROL),
    Value("Token P99", LATENCY, "s"),
    Value("P99 / usual", USUAL_P99, "none", looks.LATENCY_RISE),
    Value("KV usage", USAGE, "percentunit", looks.KV_USAGE),
    Value("Waiting", WAITING, "short", looks.WAITING),
    Value("Preemptions", PREEMPTIONS, "cps", looks.PREEMPTIONS),
    Value("Slowed", THROTTLED, "none", looks.ANY),
    Value("XIDs", XID_COUNT, "short", looks.SOME),
    Value("GPUs not ok", BROKEN, "none", looks.ANY),
    Value("Token / peers", PROBE_PEERS, "none", looks.PEERS),
    Value("Launch / peers", LAUNCH_PEERS, "none", looks.PEERS),
    Value("GPU utilisation", "max by (EACH_HOST) (instance:solpi_gpu_utilization_ratio:avg{HOST})", "percentunit"),
)


def _signs() -> str:
    """Return how many of a host's columns are coloured: by which the table is sorted."""
    signs = " or ".join(
        f'label_replace(({one.expr}) >= bool {looks.first(one.steps):g}, "sign", "{one.title}", "", "")'
        for one in READINGS
        if one.steps is not None
    )
    return f"sum by (EACH_HOST) ({signs})"


def _drill_downs() -> Iterator[tuple[str, str]]:
    for title, uid in (("Control layer", control.UID), ("Engine and KV cache", engine.UID), ("GPU", gpu.UID)):
        yield title, host_link(uid, "${__value.raw}")


def _hosts() -> Section:
    hosts = table(
        "Hosts, worst first",
        "A click on a host leads to its other dashboards. Signs: how many of the columns are coloured. Lost share: "
        "worst server (`server:solpi_engine_control_ratio:avg5m`). P99 / usual: against the median of its last day. "
        "Token and launch / peers: the probe against the median of hosts with the same GPU model and shape "
        "(`device:solpi_probe_token_seconds:ratio_fleet`, `device:solpi_probe_launch_seconds:ratio_fleet`). Slowed: "
        "reasons of heat, power brake or hardware that hold clocks down (`solpi_gpu_clocks_event_active`). XIDs: of a "
        "day (`solpi_gpu_xid_errors_total`).",
        [Label("instance", "Host", tuple(_drill_downs())), Label("job", "Job")],
        [Value("Signs", _signs(), "none", looks.SOME), *READINGS],
        empty=NO_RULES,
        sort=["Signs", "Lost share"],
    )
    return Section("", (line(hosts, height=12),))
