"""The dashboard of the control layer: what of a token is lost, which part is to blame, what changed on the host."""

from solpi_exporter.dashboards import control_host, looks
from solpi_exporter.dashboards.control_host import NO_BASELINE, NO_PROBE, NO_PSI, NOT_MEASURED
from solpi_exporter.dashboards.engine_requests import NO_TOKENS
from solpi_exporter.dashboards.frame import (
    ALERTS,
    BASELINES,
    BATCH,
    ENGINE_ERRORS,
    HOSTS,
    SERVER,
    Section,
    dashboard,
    line,
    tiles,
)
from solpi_exporter.dashboards.panels import repeated, series, stacked_by, stat
from solpi_exporter.dashboards.queries import Json, query

UID = "solpi-control"

NO_GRAPHS = "No CUDA graph was measured"

CONTROL = "avg by (EACH_SERVER) (solpi_engine_control_ratio{ENGINE})"


def build() -> Json:
    """Return the dashboard."""
    return dashboard(
        UID,
        "Solpi: control layer",
        "How much of each token is lost between host and GPU, which part of the control layer is to blame, and what "
        "changed on the host since the probe's baseline was pinned.",
        [*HOSTS, SERVER, BATCH],
        [ALERTS, ENGINE_ERRORS, BASELINES],
        [_tiles(), _engine(), _probe(), control_host.costs(), control_host.conditions(), control_host.host()],
    )


def _tiles() -> Section:
    return tiles(
        stat(
            "Lost share",
            "Worst server. Share of the time between two tokens in which the GPU was not busy for them "
            "(`solpi_engine_control_ratio`, mean of engines and bases).",
            f"max({CONTROL})",
            unit="percentunit",
            empty=NO_TOKENS,
            steps=looks.CONTROL,
        ),
        stat(
            "Lost a token",
            "Worst server. Seconds lost between two tokens (`solpi_engine_token_lost_seconds`).",
            "max(avg by (EACH_SERVER) (solpi_engine_token_lost_seconds{ENGINE}))",
            unit="s",
            empty=NO_TOKENS,
        ),
        stat(
            "Probe's loss",
            "Worst batch size of the worst host. Scheduling and sync as a share of the probe's launched token "
            "(`solpi_probe_control_ratio`). It compares hosts and days; a real engine uses graphs and loses less.",
            'max(solpi_probe_control_ratio{BATCH, basis!="extrapolated"})',
            unit="percentunit",
            empty=NO_PROBE,
        ),
        stat(
            "Reclaimable",
            "Most that CUDA graphs with asynchronous read-back take off the launched token, over batch sizes "
            "(`solpi_probe_reclaimable_ratio`); not measured on a CPU, nor beside a busy GPU.",
            'max(solpi_probe_reclaimable_ratio{BATCH, basis="measured"})',
            unit="percentunit",
            empty=NO_GRAPHS,
        ),
        stat(
            "Token/baseline",
            "Worst batch size. The probe's launched token as a multiple of the pinned one "
            "(`solpi_probe_token_seconds` / `solpi_probe_baseline_token_seconds`). A host wanders from minute to "
            "minute: an alert wants it of every batch size, for a while.",
            'max(solpi_probe_token_seconds{BATCH, mode="eager_sync", basis="measured"} / ignoring (basis) '
            '(solpi_probe_baseline_token_seconds{BATCH, mode="eager_sync"} > 0))',
            unit="none",
            empty=NO_BASELINE,
            steps=looks.BASELINE,
        ),
        stat(
            "Conditions",
            "Of the probe, worst host: quiet; host starved, its thread kept from running "
            "(`solpi_probe_host_starved`); GPU contended, others keep it busy (`solpi_probe_gpu_contended`): then "
            "splits are modelled.",
            "max(solpi_probe_host_starved{HOST} "
            "+ 2 * (solpi_probe_gpu_contended{HOST} or 0 * solpi_probe_host_starved{HOST}))",
            unit="none",
            empty=NOT_MEASURED,
            states=looks.CONDITIONS,
            graph=False,
        ),
        stat(
            "Last split",
            "When the host that is furthest behind last measured one (`solpi_probe_last_success_timestamp_seconds`). "
            "Skipped cycles are told below, by reason.",
            "min(solpi_probe_last_success_timestamp_seconds{HOST}) * 1000",
            unit="dateTimeFromNow",
            empty=NO_PROBE,
            graph=False,
        ),
        stat(
            "Waits for CPUs",
            "Worst host. Share of the time in which some task was ready and no CPU took it "
            "(`solpi_host_pressure_waiting_seconds_total`, PSI), cut at 1.",
            "max(clamp_max("
            'rate(solpi_host_pressure_waiting_seconds_total{HOST, resource="cpu"}[$__rate_interval]), 1))',
            unit="percentunit",
            empty=NO_PSI,
            steps=looks.CPU_WAIT,
        ),
    )


def _engine() -> Section:
    shares = series(
        "Lost share of a token, engines",
        "`solpi_engine_control_ratio` by server. Dashed: the median of its last week "
        "(`server:solpi_engine_control_ratio:p50_7d`). A jump without more load: look at what changed on the host, "
        "below.",
        [
            query(CONTROL, "{{instance}} {{server}}"),
            query("server:solpi_engine_control_ratio:p50_7d{ENGINE}", "{{instance}} {{server}} (week)"),
        ],
        unit="percentunit",
        empty=NO_TOKENS,
        top=1,
        steps=looks.CONTROL,
    )
    probes = series(
        "Lost share of a token, probe",
        "`solpi_probe_control_ratio` by batch size; dashed: the baseline's. Both views rise: the host. Only the "
        "engine's rises: its own doing, such as its scheduler, tokenizer or KV cache.",
        [
            query('solpi_probe_control_ratio{BATCH, basis!="extrapolated"}', "{{instance}} batch {{batch}}"),
            query("solpi_probe_baseline_control_ratio{BATCH}", "{{instance}} batch {{batch}} (baseline)"),
        ],
        unit="percentunit",
        empty=NO_PROBE,
        top=1,
    )
    token = series(
        "$server: one token, busy and lost",
        "Stacked to the time between two tokens: the GPU busy for it (`solpi_engine_token_busy_seconds`), and not "
        "(`solpi_engine_token_lost_seconds`); mean of the chosen hosts. A longer busy part is more work a step; a "
        "longer lost part is the control layer, or stalls for KV.",
        [
            query(f"avg(solpi_engine_token_{part}_seconds{{ENGINE}})", part)  # as the repeat's server
            for part in looks.TOKEN
        ],
        unit="s",
        empty=NO_TOKENS,
        stack=True,
        bars=True,
        colors=looks.TOKEN,
    )
    return Section(
        "The engine's own token, beside the probe's", (line(shares, probes), line(repeated(token, "server", 2)))
    )


def _probe() -> Section:
    # As deep as the probe's stack is: measured, or modelled beside a busy GPU.
    phases = 'avg by (batch, phase) (solpi_probe_phase_seconds{BATCH, basis!="extrapolated"})'
    over_time = series(
        "Probe, batch $batch",
        "What the launched token is spent on (`solpi_probe_phase_seconds`), mean of the chosen hosts. Scheduling: the "
        "GPU idle within a step, because the host had not launched yet. Sync: from its end until the host knows. Both "
        "are the control layer; memory is traffic to the KV cache, compute all else.",
        [query(phases, "{{phase}}")],
        unit="s",
        empty=NO_PROBE,
        stack=True,
        bars=True,
        colors=looks.PHASES,
    )
    now = stacked_by(
        "batch",
        "phase",
        "Split by batch size, now",
        "`solpi_probe_phase_seconds` at present. Control layer that does not shrink with the batch size is a fixed "
        "cost of a step: larger batches hide it, CUDA graphs remove it.",
        phases,
        unit="s",
        empty=NO_PROBE,
        colors=looks.PHASES,
    )
    reclaimable = series(
        "Reclaimable share",
        "What graphs (`graph_sync`), and graphs with asynchronous read-back (`graph_async`), take off the launched "
        "token (`solpi_probe_reclaimable_ratio`); dashed: the baseline's. More of it is more that the host costs. Not "
        "measured on a CPU, nor beside a busy GPU.",
        [
            query('solpi_probe_reclaimable_ratio{BATCH, basis="measured"}', "{{instance}} batch {{batch}} {{mode}}"),
            query(
                "solpi_probe_baseline_reclaimable_ratio{BATCH}",
                "{{instance}} batch {{batch}} {{mode}} (baseline)",
            ),
        ],
        unit="percentunit",
        empty=NO_GRAPHS,
        top=1,
    )
    steps = series(
        "Steps of the probe, P50 and P99 of an hour",
        "Single decode steps (`device:solpi_probe_step_seconds:p50_rate1h`, `:p99_rate1h`; launched). A P99 that "
        "leaves its P50 is jitter: other tasks, interrupts, a neighbour on the GPU.",
        [
            query(
                f'device:solpi_probe_step_seconds:{quantile}_rate1h{{BATCH, mode="eager_sync"}}',
                f"{{{{instance}}}} batch {{{{batch}}}} {quantile.upper()}",
            )
            for quantile in ("p50", "p99")
        ],
        unit="s",
        empty="No steps within an hour, or no recording rules",
    )
    errors = series(
        "Standard error of a phase",
        "`solpi_probe_phase_standard_error_seconds`, worst of the chosen hosts and batch sizes: a change of a phase "
        "that is within three of these is none.",
        [query('max by (phase) (solpi_probe_phase_standard_error_seconds{BATCH, basis!="extrapolated"})', "{{phase}}")],
        unit="s",
        empty=NOT_MEASURED,
        colors=looks.PHASES,
    )
    return Section(
        "The probe's split", (line(repeated(over_time, "batch", 4)), line(now, reclaimable), line(steps, errors))
    )
