"""The dashboard of the GPUs: what they do, what holds them back, what they hold, and what is wrong with them."""

from solpi_exporter.dashboards import gpu_health, looks
from solpi_exporter.dashboards.frame import ALERTS, HOSTS, XIDS, Section, dashboard, line, tiles
from solpi_exporter.dashboards.frame import GPU as GPU_VARIABLE
from solpi_exporter.dashboards.gpu_health import NAME, NO_GPU, NOT_TOLD
from solpi_exporter.dashboards.panels import heatmap, series, stat, states
from solpi_exporter.dashboards.queries import (
    BY_GPU,
    BY_HOST,
    GPU,
    Json,
    quantile,
    query,
    select,
)

UID = "solpi-gpu"


NOT_OK = 'state!~"ok|quiesced"'
# Reasons that are no fault: nothing to do, or somebody's setting.
USUAL = 'reason!~"gpu_idle|applications_clocks_setting|display_clock_setting|sync_boost"'
HARMFUL = 'reason=~"hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown|reliability"'


def build() -> Json:
    """Return the dashboard."""
    return dashboard(
        UID,
        "Solpi: GPU",
        "What the GPUs do, what holds their clocks down, what is in their memory, and what is wrong with them.",
        [*HOSTS, GPU_VARIABLE],
        [ALERTS, XIDS],
        [_tiles(), _work(), _power(), gpu_health.memory(), gpu_health.faults(), gpu_health.links()],
    )


def _tiles() -> Section:
    return tiles(
        stat(
            "GPUs missing",
            "GPUs that should be there and are not (`solpi_gpus_expected` - `solpi_gpus_present`).",
            "sum(solpi_gpus_expected{HOST} - solpi_gpus_present{HOST})",
            unit="none",
            empty="No driver",
            steps=looks.ANY,
        ),
        stat(
            "Not OK",
            "GPUs in a state other than ok or quiesced (`solpi_gpu_state`): lost, hung, in want of a reset.",
            'sum(solpi_gpu_state{GPU, state!~"ok|quiesced"})',
            unit="none",
            empty=NO_GPU,
            steps=looks.ANY,
        ),
        stat(
            "Utilisation",
            "Mean share of the time in which any kernel ran (`solpi_gpu_utilization_ratio`). 1 does not mean full.",
            "avg(solpi_gpu_utilization_ratio{GPU})",
            unit="percentunit",
            empty=NO_GPU,
        ),
        stat(
            "SMs active",
            "Mean share of SMs with work (`solpi_gpu_sm_active_ratio`, Hopper and later). Far below utilisation: "
            "small kernels.",
            "avg(solpi_gpu_sm_active_ratio{GPU})",
            unit="percentunit",
            empty="Hopper and later",
        ),
        stat(
            "Bandwidth used",
            "Mean use of memory bandwidth (`solpi_gpu_dram_active_ratio`, Hopper and later), which bounds decoding.",
            "avg(solpi_gpu_dram_active_ratio{GPU})",
            unit="percentunit",
            empty="Hopper and later",
        ),
        stat(
            "Power",
            "Power drawn by all chosen GPUs (`solpi_gpu_power_watts`).",
            "sum(solpi_gpu_power_watts{GPU})",
            unit="watt",
            empty=NO_GPU,
        ),
        stat(
            "Slowed down",
            "GPUs whose clocks are held down by heat, a power brake or the hardware (`solpi_gpu_clocks_event_active`).",
            (
                "sum(max by (EACH_GPU) (solpi_gpu_clocks_event_active{GPU, "
                'reason=~"hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown|reliability"}))'
            ),
            unit="none",
            empty=NO_GPU,
            steps=looks.ANY,
        ),
        stat(
            "XIDs",
            "XIDs in the range that is shown (`solpi_gpu_xid_errors_total`). The table below has class and "
            "action of each.",
            "sum(increase(solpi_gpu_xid_errors_total{GPU}[$__range]))",
            unit="short",
            empty=NO_GPU,
            steps=looks.SOME,
            graph=False,
        ),
    )


def _work() -> Section:
    activity = {
        "utilisation": "solpi_gpu_utilization_ratio",
        "SM": "solpi_gpu_sm_active_ratio",
        "bandwidth": "solpi_gpu_dram_active_ratio",
        "tensor": "solpi_gpu_tensor_active_ratio",
    }
    against = series(
        "Utilisation against activity",
        "Utilisation (`solpi_gpu_utilization_ratio`) is 1 while any kernel runs, however small. What it does not "
        "tell: share of "
        "SMs with work (`solpi_gpu_sm_active_ratio`), use of memory bandwidth (`solpi_gpu_dram_active_ratio`) "
        "and of tensor "
        "cores (`solpi_gpu_tensor_active_ratio`). High above low is a GPU that looks busy.",
        [query(select(metric, GPU), f"{NAME} {name}") for name, metric in activity.items()],
        unit="percentunit",
        empty=NO_GPU,
        top=1,
        colors={"utilisation": "blue", "SM": "green", "bandwidth": "purple", "tensor": "orange"},
    )
    sawtooth = heatmap(
        "Sawtooth",
        "The driver's own samples of utilisation, several a second (`solpi_gpu_utilization_samples_ratio`). One "
        "band is steady "
        "load. Two, at the top and at the bottom, are load that comes and goes between them: the GPU waits for "
        "its host, and "
        "the mean hides it.",
        "sum by (le) (increase(solpi_gpu_utilization_samples_ratio_bucket{GPU}[$__rate_interval]))",
        unit="percentunit",
        empty="No samples by this driver",
    )
    spread = series(
        "Utilisation samples, P10 and P90",
        "Of `solpi_gpu_utilization_samples_ratio`. Their distance is how deep the sawtooth is.",
        [
            query(quantile(of, "solpi_gpu_utilization_samples_ratio", GPU, BY_GPU), f"{NAME} P{of * 100:g}")
            for of in (0.1, 0.9)
        ],
        unit="percentunit",
        empty="No samples by this driver",
        top=1,
    )
    busy = series(
        "Busy time",
        "Seconds a second in which any kernel or copy ran (`solpi_gpu_busy_seconds_total`): complete where "
        "gauges are samples.",
        [query("rate(solpi_gpu_busy_seconds_total{GPU}[$__rate_interval])", NAME)],
        unit="percentunit",
        empty=NO_GPU,
        top=1,
    )
    occupancy = series(
        "Warp slots in use",
        "Mean share (`solpi_gpu_sm_occupancy_ratio`). Low is usual in decoding, which waits for memory.",
        [query("solpi_gpu_sm_occupancy_ratio{GPU}", NAME)],
        unit="percentunit",
        empty="Hopper and later",
        top=1,
    )
    return Section("Work", (line(against, sawtooth), line(spread, busy, occupancy)))


def _power() -> Section:
    power = series(
        "Power",
        "Drawn (`solpi_gpu_power_watts`) and limit (`solpi_gpu_power_limit_watts`). At the limit the clocks come "
        "down: usual in "
        "prefill, and no fault.",
        [
            query("solpi_gpu_power_watts{GPU}", NAME),
            query("solpi_gpu_power_limit_watts{GPU}", f"{NAME} limit"),
        ],
        unit="watt",
        empty=NO_GPU,
    )
    clocks = series(
        "Clocks",
        "As a share of the highest (`solpi_gpu_clock_hertz` / `solpi_gpu_clock_max_hertz`), by domain. An idle "
        "GPU lowers them.",
        [
            query(
                "solpi_gpu_clock_hertz{GPU} / (solpi_gpu_clock_max_hertz{GPU} > 0)",
                f"{NAME} {{{{domain}}}}",
            )
        ],
        unit="percentunit",
        empty=NO_GPU,
        top=1,
    )
    temperature = series(
        "Temperature",
        "Of chip and memory (`solpi_gpu_temperature_celsius`). Most cards slow down by themselves from 85 to 92 °C.",
        [query("solpi_gpu_temperature_celsius{GPU}", f"{NAME} {{{{sensor}}}}")],
        unit="celsius",
        empty=NO_GPU,
        steps=looks.HOT,
    )
    reasons = states(
        "What holds the clocks down",
        "`solpi_gpu_clocks_event_active` by reason, without idling and settings. sw_power_cap is the power limit "
        "and usual under "
        "load; thermal, power brake and hw_slowdown are faults of cooling or supply.",
        [
            query(
                (
                    "solpi_gpu_clocks_event_active{GPU, "
                    'reason!~"gpu_idle|applications_clocks_setting|display_clock_setting|sync_boost"}'
                ),
                f"{NAME} {{{{reason}}}}",
            )
        ],
        looks.NO_YES,
        empty=NO_GPU,
    )
    held = series(
        "Time held down",
        "Share of the time, by reason (`solpi_gpu_clocks_event_seconds_total`): complete where the states are samples.",
        [query("rate(solpi_gpu_clocks_event_seconds_total{GPU}[$__rate_interval])", f"{NAME} {{{{reason}}}}")],
        unit="percentunit",
        empty=NOT_TOLD,
        bars=True,
    )
    energy = series(
        "Energy",
        "Joules a second, by the driver's counter (`solpi_gpu_energy_joules_total`): mean power without gaps.",
        [query("rate(solpi_gpu_energy_joules_total{GPU}[$__rate_interval])", NAME)],
        unit="watt",
        empty="Volta and later",
    )
    return Section(
        "Power, clocks, throttling",
        (line(power, clocks, temperature), line(reasons, held, energy, widths=(10, 7, 7))),
    )


_MODEL = f"* on ({BY_HOST}, uuid) group_left (model, pci_bus_id) {select('solpi_gpu_info', GPU)}"
