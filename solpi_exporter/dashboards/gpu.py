"""The dashboard of the GPUs: what they do, what holds them back, what they hold, and what is wrong with them."""

from solpi_exporter.dashboards import gpu_health, looks
from solpi_exporter.dashboards.frame import ALERTS, HOSTS, XIDS, Section, dashboard, line, tiles
from solpi_exporter.dashboards.frame import GPU as GPU_VARIABLE
from solpi_exporter.dashboards.gpu_health import NAME, NO_GPU, NOT_TOLD
from solpi_exporter.dashboards.panels import heatmap, series, stat, states
from solpi_exporter.dashboards.queries import Json, query

UID = "solpi-gpu"


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
            empty="No driver tells it",
            steps=looks.ANY,
        ),
        stat(
            "Not OK",
            "GPUs in a state other than ok or quiesced (`solpi_gpu_state`): lost, hung, in want of a reset.",
            "sum(solpi_gpu_state{GPU, NOT_OK})",
            unit="none",
            empty=NO_GPU,
            steps=looks.ANY,
        ),
        stat(
            "Utilisation",
            "Mean share of the time in which any kernel ran (`solpi_gpu_utilization_ratio`). 1 does not mean full.",
            "avg(solpi_gpu_utilization_ratio{GPU})",
            unit="percentunit",
            empty=NOT_TOLD,
        ),
        stat(
            "SMs active",
            "Mean share of SMs with work (`solpi_gpu_sm_active_ratio`, Hopper and later). Far below utilisation: "
            "small kernels.",
            "avg(solpi_gpu_sm_active_ratio{GPU})",
            unit="percentunit",
            empty=NOT_TOLD,
        ),
        stat(
            "Bandwidth used",
            "Mean use of memory bandwidth (`solpi_gpu_dram_active_ratio`, Hopper and later), which bounds decoding.",
            "avg(solpi_gpu_dram_active_ratio{GPU})",
            unit="percentunit",
            empty=NOT_TOLD,
        ),
        stat(
            "Power",
            "Power drawn by all chosen GPUs (`solpi_gpu_power_watts`).",
            "sum(solpi_gpu_power_watts{GPU})",
            unit="watt",
            empty=NOT_TOLD,
        ),
        stat(
            "Slowed down",
            "GPUs whose clocks are held down by heat, a power brake or the hardware (`solpi_gpu_clocks_event_active`).",
            "sum(max by (EACH_GPU) (solpi_gpu_clocks_event_active{GPU, HARMFUL}))",
            unit="none",
            empty=NOT_TOLD,
            steps=looks.ANY,
        ),
        stat(
            "XIDs",
            "XIDs in the range that is shown (`solpi_gpu_xid_errors_total`). The table below has class and action of "
            "each.",
            "sum(increase(solpi_gpu_xid_errors_total{GPU}[$__range]))",
            unit="short",
            empty="None seen",
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
        "tell: share of SMs with work (`solpi_gpu_sm_active_ratio`), use of memory bandwidth "
        "(`solpi_gpu_dram_active_ratio`) and of tensor cores (`solpi_gpu_tensor_active_ratio`). High above low is a "
        "GPU that looks busy.",
        [query(f"{metric}{{GPU}}", f"{NAME} {name}") for name, metric in activity.items()],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
        colors={"utilisation": "blue", "SM": "green", "bandwidth": "purple", "tensor": "orange"},
    )
    sawtooth = heatmap(
        "Sawtooth",
        "The driver's own samples of utilisation, several a second (`solpi_gpu_utilization_samples_ratio`). One band "
        "is steady load. Two, at the top and at the bottom, are load that comes and goes between them: the GPU waits "
        "for its host, and the mean hides it.",
        "sum by (le) (increase(solpi_gpu_utilization_samples_ratio_bucket{GPU}[$__rate_interval]))",
        unit="percentunit",
        empty=NOT_TOLD,
    )
    spread = series(
        "Utilisation samples, P10 and P90",
        "Of `solpi_gpu_utilization_samples_ratio`. Their distance is how deep the sawtooth is.",
        [
            query(
                f"histogram_quantile({of:g}, sum by (EACH_GPU, le) "
                "(rate(solpi_gpu_utilization_samples_ratio_bucket{GPU}[$__rate_interval])))",
                f"{NAME} P{of * 100:g}",
            )
            for of in (0.1, 0.9)
        ],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
    )
    busy = series(
        "Busy time",
        "Share of the time in which any kernel or copy ran (`solpi_gpu_busy_seconds_total`): complete where gauges "
        "are samples. Cut at 1: the counter is read at other instants than it is scraped, so that a rate may come out "
        "above.",
        [query("clamp_max(rate(solpi_gpu_busy_seconds_total{GPU}[$__rate_interval]), 1)", NAME)],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
    )
    occupancy = series(
        "Warp slots in use",
        "Mean share (`solpi_gpu_sm_occupancy_ratio`, Hopper and later). Low is usual in decoding, which waits for "
        "memory.",
        [query("solpi_gpu_sm_occupancy_ratio{GPU}", NAME)],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
    )
    return Section("Work", (line(against, sawtooth), line(spread, busy, occupancy)))


def _power() -> Section:
    power = series(
        "Power",
        "Drawn (`solpi_gpu_power_watts`) and limit (`solpi_gpu_power_limit_watts`). At the limit the clocks come "
        "down: usual in prefill, and no fault.",
        [
            query("solpi_gpu_power_watts{GPU}", NAME),
            query("solpi_gpu_power_limit_watts{GPU}", f"{NAME} limit"),
        ],
        unit="watt",
        empty=NOT_TOLD,
    )
    clocks = series(
        "Clocks",
        "As a share of the highest (`solpi_gpu_clock_hertz` / `solpi_gpu_clock_max_hertz`), by domain. An idle GPU "
        "lowers them.",
        [
            query(
                "solpi_gpu_clock_hertz{GPU} / (solpi_gpu_clock_max_hertz{GPU} > 0)",
                f"{NAME} {{{{domain}}}}",
            )
        ],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
    )
    temperature = series(
        "Temperature",
        "Of chip and memory (`solpi_gpu_temperature_celsius`). Most cards slow down by themselves from 85 to 92 °C.",
        [query("solpi_gpu_temperature_celsius{GPU}", f"{NAME} {{{{sensor}}}}")],
        unit="celsius",
        empty=NOT_TOLD,
        steps=looks.HOT,
    )
    reasons = states(
        "What holds the clocks down",
        "`solpi_gpu_clocks_event_active` by reason, without idling and settings. sw_power_cap is the power limit and "
        "usual under load; thermal, power brake and hw_slowdown are faults of cooling or supply.",
        [
            query(
                "solpi_gpu_clocks_event_active{GPU, "
                'reason!~"gpu_idle|applications_clocks_setting|display_clock_setting|sync_boost"}',
                f"{NAME} {{{{reason}}}}",
            )
        ],
        looks.NO_YES,
        empty=NOT_TOLD,
    )
    held = series(
        "Time held down",
        "Share of the time, by reason (`solpi_gpu_clocks_event_seconds_total`): complete where the states are "
        "samples; cut at 1, as busy time is.",
        [
            query(
                "clamp_max(rate(solpi_gpu_clocks_event_seconds_total{GPU}[$__rate_interval]), 1)",
                f"{NAME} {{{{reason}}}}",
            )
        ],
        unit="percentunit",
        empty=NOT_TOLD,
        bars=True,
    )
    energy = series(
        "Energy",
        "Joules a second, by the driver's counter (`solpi_gpu_energy_joules_total`, Volta and later): mean power "
        "without gaps.",
        [query("rate(solpi_gpu_energy_joules_total{GPU}[$__rate_interval])", NAME)],
        unit="watt",
        empty=NOT_TOLD,
    )
    return Section(
        "Power, clocks, throttling",
        (line(power, clocks, temperature), line(reasons, held, energy, widths=(10, 7, 7))),
    )
