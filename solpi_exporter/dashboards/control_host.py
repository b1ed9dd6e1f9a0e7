"""Sections of the control layer's dashboard on the host: single costs, conditions, and what changed."""

from solpi_exporter.dashboards import looks
from solpi_exporter.dashboards.frame import Section, line
from solpi_exporter.dashboards.panels import series, states
from solpi_exporter.dashboards.queries import Json, query
from solpi_exporter.dashboards.tables import Label, Value, table

NO_PROBE = "No split by the probe"
NOT_MEASURED = "Not measured by the probe"
NO_BASELINE = "No baseline, or nothing to compare with it"
NO_PSI = "No PSI known"
NOT_KNOWN = "Not known of any server"


def _cost(title: str, what: str, name: str, legend: str, chosen: str = "HOST", unit: str = "s") -> Json:
    """Return a raw cost beside its baseline, which has no basis: it was measured."""
    pinned = chosen.removesuffix(', basis="measured"')
    return series(
        title,
        f"{what} (`solpi_probe_{name}`); dashed: as it was pinned (`solpi_probe_baseline_{name}`).",
        [
            query(f"solpi_probe_{name}{{{chosen}}}", legend),
            query(f"solpi_probe_baseline_{name}{{{pinned}}}", f"{legend} (baseline)"),
        ],
        unit=unit,
        empty=NOT_MEASURED,
    )


def costs() -> Section:
    """Return the section on what single things cost, beside their baseline."""
    on_host, on_batch, percentile = "{{instance}}", "{{instance}} batch {{batch}}", "{{instance}} P{{percentile}}"
    return Section(
        "What single things cost, against the baseline",
        (
            line(
                _cost("Token, launched", "Wall time of a step, call by call", "token_seconds", on_batch,
                      'BATCH, mode="eager_sync", basis="measured"'),
                _cost("Token, as a graph", "Wall time of a step as one CUDA graph", "token_seconds",
                      f"{on_batch} {{{{mode}}}}", 'BATCH, mode!="eager_sync", basis="measured"'),
                _cost("Enqueue", "Host time to enqueue a step, call by call", "enqueue_seconds", on_batch,
                      'BATCH, mode="eager_sync"'),
                _cost("Kernel launch", "Host time to launch one small kernel", "launch_seconds", on_host),
            ),
            line(
                _cost("Graph launch", "Host time to launch a step's graph", "graph_launch_seconds", on_host),
                _cost("Graph node", "Device time of an empty node", "graph_node_seconds", on_host),
                _cost("Round trip", "From launching one small kernel to knowing that it has run", "round_trip_seconds",
                      percentile),
                _cost("Wake-up", "By how much a short sleep is overslept: timers, power states, CPU limits",
                      "wakeup_overshoot_seconds", percentile),
            ),
            line(
                _cost("Copy bandwidth", "Memory bandwidth of a copy: the GPU's own health", "copy_bytes_per_second",
                      on_host, unit="Bps"),
                series(
                    "Off the CPU",
                    "Mean time of a launched step in which its thread did not run (`solpi_probe_off_cpu_seconds`): a "
                    "starved host.",
                    [query('solpi_probe_off_cpu_seconds{BATCH, mode="eager_sync"}', on_batch)],
                    unit="s",
                    empty=NOT_MEASURED,
                ),
            ),
        ),
    )  # fmt: skip


def conditions() -> Section:
    """Return the section on under which conditions the probe measured."""
    return Section(
        "Under which conditions the probe measured",
        (
            line(
                states(
                    "Contended, starved",
                    "`solpi_probe_gpu_contended`, `solpi_probe_host_starved`. Compare figures of like conditions.",
                    [
                        query("solpi_probe_gpu_contended{HOST}", "{{instance}} GPU contended"),
                        query("solpi_probe_host_starved{HOST}", "{{instance}} host starved"),
                    ],
                    looks.NO_YES,
                    empty=NOT_MEASURED,
                ),
                series(
                    "Batch sizes measured, by outcome",
                    "`solpi_probe_runs_total`: success; noisy, without a split; contended, modelled beside a busy GPU.",
                    [
                        query(
                            "sum by (outcome) (increase(solpi_probe_runs_total{HOST}[$__rate_interval]))",
                            "{{outcome}}",
                        )
                    ],
                    unit="short",
                    empty="No batch size was measured",
                    stack=True,
                    bars=True,
                    colors={"success": "green", "noisy": "orange", "contended": "blue"},
                ),
                series(
                    "Cycles left out, by reason",
                    "`solpi_probe_skipped_total`: cycles that would have done harm or meant nothing; tried again "
                    "after 15 s. docs/probe.md explains each reason.",
                    [
                        query(
                            "sum by (reason) (increase(solpi_probe_skipped_total{HOST}[$__rate_interval]))",
                            "{{reason}}",
                        )
                    ],
                    unit="short",
                    empty="No cycle was left out",
                    stack=True,
                    bars=True,
                ),
            ),
        ),
    )


def _differs(what: str, present: str) -> Json:
    """Return a query that is 1 where a label of the baseline is not so at present; hosts without either are absent."""
    pinned = f'group by (EACH_HOST, {what}) (solpi_probe_baseline_info{{HOST, {what}!=""}})'
    known = f"({pinned} and on (EACH_HOST) {present})"
    return query(
        f"count by (EACH_HOST) ({known} unless on (EACH_HOST, {what}) {present}) or 0 * count by (EACH_HOST) ({known})",
        f"{{{{instance}}}} {what}",
    )


def _as(what: str, metric: str, label: str) -> str:
    """Return a series with one of its labels under another name, and without the others."""
    return f'max by (EACH_HOST, {what}) (label_replace({metric}{{HOST}}, "{what}", "$1", "{label}", "(.+)"))'


def host() -> Section:
    """Return the section on what changed on the host."""
    changed = states(
        "Differs from the baseline",
        "Driver, torch and frequency governor now (`solpi_nvml_info`, `solpi_probe_info`, "
        "`solpi_host_cpu_governor_info`) against the baseline's (`solpi_probe_baseline_info`). What changed right "
        "before a cost did is the first suspect.",
        [
            _differs("driver", _as("driver", "solpi_nvml_info", "driver_version")),
            _differs("torch", _as("torch", "solpi_probe_info", "torch")),
            _differs("governor", _as("governor", "solpi_host_cpu_governor_info", "governor")),
        ],
        looks.SAME_CHANGED,
        empty=NO_BASELINE,
    )
    pinned = table(
        "Set up as",
        "How the machine was set up when the baseline was pinned (`solpi_probe_baseline_info`), and driver and torch "
        "now (`solpi_nvml_info`, `solpi_probe_info`). `solpi-exporter repin` asks for another baseline.",
        [
            Label("instance", "Host"),
            Label("driver", "Driver pinned"),
            Label("driver_now", "Driver now"),
            Label("torch", "torch pinned"),
            Label("torch_now", "torch now"),
            Label("cuda", "CUDA pinned"),
            Label("kernel", "Kernel pinned"),
            Label("governor", "Governor pinned"),
            Label("ecc", "ECC pinned"),
            Label("persistence", "Persistence pinned"),
        ],
        [
            Value("Pinned", "solpi_probe_baseline_timestamp_seconds{HOST} * 1000", "dateTimeAsIso"),
            Value("", "solpi_probe_baseline_info{HOST}"),
            Value("", _as("driver_now", "solpi_nvml_info", "driver_version")),
            Value("", _as("torch_now", "solpi_probe_info", "torch")),
        ],
        empty=NO_BASELINE,
    )
    versions = table(
        "CUDA versions",
        "What torch was built for, the probe's and each server's (`solpi_cuda_toolkit_version`), against the newest "
        "that the driver supports (`solpi_cuda_driver_version`). Above it, it runs slower or not at all.",
        [Label("instance", "Host"), Label("user", "Of"), Label("server", "Server")],
        [
            Value("torch's CUDA", "solpi_cuda_toolkit_version{HOST}"),
            Value(
                "Driver's CUDA",
                "0 * solpi_cuda_toolkit_version{HOST} + on (EACH_HOST) group_left () solpi_cuda_driver_version{HOST}",
            ),
        ],
        empty="No torch's CUDA is known",
    )
    throttled = series(
        "Held back by a CPU limit",
        "`solpi_engine_cpu_throttled_seconds_total`, seconds a second over CPUs: a cgroup's limit stopped the server. "
        "Any is latency; raise the limit.",
        [query("rate(solpi_engine_cpu_throttled_seconds_total{ENGINE}[$__rate_interval])", "{{instance}} {{server}}")],
        unit="s",
        empty=NOT_KNOWN,
    )
    delay = series(
        "Waiting for a CPU",
        "`solpi_engine_run_delay_seconds_total`, seconds a second over threads: ready, and no CPU took them. A "
        "neighbour on the CPUs, or too few of them.",
        [query("rate(solpi_engine_run_delay_seconds_total{ENGINE}[$__rate_interval])", "{{instance}} {{server}}")],
        unit="s",
        empty=NOT_KNOWN,
    )
    pressure = series(
        "Some task waits",
        "Share of the time in which some task of the host waited for the resource "
        "(`solpi_host_pressure_waiting_seconds_total`, PSI), cut at 1.",
        [
            query(
                "clamp_max(rate(solpi_host_pressure_waiting_seconds_total{HOST}[$__rate_interval]), 1)",
                "{{instance}} {{resource}}",
            )
        ],
        unit="percentunit",
        empty=NO_PSI,
    )
    clock = series(
        "CPU frequency",
        "Mean of the CPUs online (`solpi_host_cpu_frequency_hertz`). Launching is one thread's work: it scales with "
        "this.",
        [query("solpi_host_cpu_frequency_hertz{HOST}", "{{instance}}")],
        unit="hertz",
        empty="No frequency is known",
    )
    governors = states(
        "CPU governor",
        "`solpi_host_cpu_governor_info`: each governor in use. `performance` is what an inference host wants.",
        [query("solpi_host_cpu_governor_info{HOST}", "{{instance}} {{governor}}")],
        {"1": ("in use", "blue")},
        empty="No governor is known",
    )
    numa = states(
        "Beside its GPU",
        "`solpi_host_gpu_numa_match`: whether the engine may run only on CPUs of its GPU's NUMA node.",
        [query("solpi_host_gpu_numa_match{HOST}", "{{instance}} GPU {{gpu}}")],
        looks.YES_NO,
        empty="One NUMA node, or its GPUs are not known",
    )
    return Section(
        "What changed on the host",
        (
            line(changed, versions, widths=(14, 10)),
            line(pinned, height=6),
            line(throttled, delay, pressure),
            line(clock, governors, numa),
        ),
    )
