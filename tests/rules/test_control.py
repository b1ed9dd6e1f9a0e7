"""The alerts on the control layer: probe figures as they were measured on H200s, and the engine's own token."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solpi_exporter.rules.control import GROUPS
from tests.rules.cases import SITE, Case, alerts_of, boundary, complete, fires, missing, prove, silent

D = 'device="cuda:0", uuid="GPU-0"'
KIND = 'model="H200", shape="8b", layers="4", context="512", dtype="bfloat16", torch="2"'
INFO = {f"solpi_probe_info{{{D}, {KIND}}}": "1x200"}


def token(values: str, base: float = 0.0016, batch: str = "1", basis: str = "measured") -> dict[str, str]:
    return {
        f'solpi_probe_token_seconds{{{D}, batch="{batch}", mode="eager_sync", basis="{basis}"}}': values,
        f'solpi_probe_baseline_token_seconds{{{D}, batch="{batch}", mode="eager_sync"}}': f"{base}x200",
    }


def phase(
    name: str, values: str, base: float, batch: str = "1", device: str = D, basis: str = "measured"
) -> dict[str, str]:
    return {
        f'solpi_probe_phase_seconds{{{device}, batch="{batch}", phase="{name}", basis="{basis}"}}': values,
        f'solpi_probe_baseline_phase_seconds{{{device}, batch="{batch}", phase="{name}"}}': f"{base}x200",
    }


def launch(values: str, base: float = 9e-6) -> dict[str, str]:
    return {
        f"solpi_probe_launch_seconds{{{D}}}": values,
        f"solpi_probe_baseline_launch_seconds{{{D}}}": f"{base}x200",
    }


def wakeup(values: str, base: float = 6e-5) -> dict[str, str]:
    return {
        f'solpi_probe_wakeup_overshoot_seconds{{{D}, percentile="50"}}': values,
        f'solpi_probe_baseline_wakeup_overshoot_seconds{{{D}, percentile="50"}}': f"{base}x200",
    }


def off_cpu(values: str) -> dict[str, str]:
    return {f'solpi_probe_off_cpu_seconds{{{D}, batch="1", mode="eager_sync"}}': values, **token("0.002x200")}


def peers(last: float, hosts: int = 4) -> dict[str, str]:
    """Hosts of one kind, of which the last is as slow as it is said."""
    series = {}
    for number in range(hosts):
        at = f'job="solpi", instance="{number}", {SITE}, {D}'
        value = last if number == hosts - 1 else 0.0016
        series[f"solpi_probe_info{{{at}, {KIND}}}"] = "1x100"
        series[f'solpi_probe_token_seconds{{{at}, batch="1", mode="eager_sync", basis="measured"}}'] = f"{value}x100"
    return series


S = 'server="vllm"'
OF = f'{S}, engine="0"'


def control(values: str) -> dict[str, str]:
    return {f'solpi_engine_control_ratio{{{OF}, basis="endpoint"}}': values}


def week(before: float, hours: int) -> dict[str, str]:
    """The records of a week, one an hour, the last of them now; the test begins when they are there."""
    return {
        f"server:solpi_engine_control_ratio:avg1h{{{S}}}": " ".join(f"{before}" + " _x59" for _ in range(hours)),
    }


PREEMPTING = {f"solpi_engine_preemptions_total{{{OF}}}": "0+60x200"}
EAGER = {f'solpi_engine_setting_info{{{S}, setting="enforce_eager", value="True"}}': "1x200"}
GRAPHS = {f'solpi_engine_setting_info{{{S}, setting="enforce_eager", value="False"}}': "1x200"}


def reclaimable(value: float) -> dict[str, str]:
    return {f'solpi_probe_reclaimable_ratio{{{D}, batch="1", mode="graph_async", basis="measured"}}': f"{value}x200"}


WANDERING = (
    "0.0016x4 0.0022x4 0.0014x4 0.0024x9 0.0016x4 0.00232x9 0.0018x60"  # a host's own wander, cycles of 5 minutes
)
SLEEP_ON_GPU = phase("compute", "0.00075x4 0.00277x60", 7.5e-4) | phase("memory", "0.000017x60", 1.7e-5)
ON_CPU = {
    name.replace(D, 'device="cpu"'): values
    for name, values in (token("0.0016x4 0.0037x60") | phase("compute", "0.001x4 0.003x60", 1e-3)).items()
}

CASES = (
    fires("SolpiControlRegression", "late read-back as recorded", token("0.0016x4 0.0037x60"), 20),
    silent("SolpiControlRegression", "a host that wanders by 50 percent", token(WANDERING)),
    fires("SolpiControlRegression", "on a CPU, where the host is the device", ON_CPU, 20),
    silent("SolpiControlRegression", "a sleep on the GPU as recorded", SLEEP_ON_GPU | token("0.0016x4 0.0037x60")),
    silent("SolpiControlRegression", "one batch size only", token("0.004x60") | token("0.0016x60", batch="8")),
    silent("SolpiControlRegression", "modelled beside a busy GPU", token("0.004x60", basis="modelled")),
    boundary("SolpiControlRegression", "at the limit", token("1.6x60", base=1)),
    missing(
        "SolpiControlRegression", "no baseline yet", {k: v for k, v in token("0.004x60").items() if "baseline" not in k}
    ),
    missing("SolpiControlRegression", "cycles are left out", token("0.004x10 stale")),
    fires("SolpiTokenSlower", "an upgrade", token("0.0016x4 0.0022x60"), 35),
    silent("SolpiTokenSlower", "twenty-five minutes", token("0.0016x4 0.0023x25 0.0016x60")),
    boundary("SolpiTokenSlower", "at the limit", token("1.3x60", base=1)),
    missing("SolpiTokenSlower", "no probe", {"solpi_build_info": "1x60"}),
    fires(
        "SolpiSyncSlower",
        "late read-back as recorded",
        phase("sync", "0.00004x4 0.002x60", 4e-5) | token("0.0037x60"),
        15,
    ),
    silent("SolpiSyncSlower", "twice of little", phase("sync", "0.00008x60", 4e-5) | token("0.0016x60")),
    boundary("SolpiSyncSlower", "at the limit", phase("sync", "1.25x60", 1) | token("1x60", base=1)),
    missing("SolpiSyncSlower", "no baseline of the token", phase("sync", "0.002x60", 4e-5)),
    fires("SolpiLaunchSlower", "slow dispatch as recorded", launch("0.000009x4 0.0000227x60"), 15),
    silent("SolpiLaunchSlower", "a loaded host as recorded", launch("0.0000106x60")),
    boundary("SolpiLaunchSlower", "at the limit", launch("1.5x60", base=1)),
    missing("SolpiLaunchSlower", "no baseline", {f"solpi_probe_launch_seconds{{{D}}}": "0.1x60"}),
    fires("SolpiWakeupLate", "deep C-states", wakeup("0.00006x4 0.0002x60"), 15),
    silent("SolpiWakeupLate", "twice of little", wakeup("0.00008x60", base=3e-5)),
    boundary("SolpiWakeupLate", "at the limit", wakeup("2x60", base=1)),
    missing("SolpiWakeupLate", "no probe", {"solpi_build_info": "1x60"}),
    fires("SolpiHostStarved", "a loaded host as recorded", off_cpu("0x4 0.0033x60"), 15),
    silent("SolpiHostStarved", "a quiet host", off_cpu("0.00001x60")),
    boundary("SolpiHostStarved", "at the limit", off_cpu("0.0002x60")),
    missing(
        "SolpiHostStarved",
        "a split that was modelled",
        off_cpu("0.003x60")
        | token("0.002x60", basis="modelled")
        | {f'solpi_probe_token_seconds{{{D}, batch="1", mode="eager_sync", basis="measured"}}': "_x60"},
    ),
    fires(
        "SolpiGpuTokenSlower",
        "a sleep on the GPU as recorded",
        SLEEP_ON_GPU,
        15,
    ),
    silent(
        "SolpiGpuTokenSlower",
        "one percent",
        phase("compute", "0.0007575x60", 7.5e-4) | phase("memory", "0.000017x60", 1.7e-5),
    ),
    fires("SolpiGpuTokenSlower", "modelled beside others", phase("compute", "2x60", 1, basis="modelled"), 10),
    silent("SolpiGpuTokenSlower", "a CPU", phase("compute", "2x60", 1, device='device="cpu"')),
    boundary("SolpiGpuTokenSlower", "at the limit", phase("compute", "1.1x60", 1)),
    missing("SolpiGpuTokenSlower", "no probe", {"solpi_build_info": "1x60"}),
    fires("SolpiSlowerThanPeers", "one of four", peers(0.0032), 30),
    silent("SolpiSlowerThanPeers", "too few to compare with", peers(0.0064, hosts=3)),
    boundary("SolpiSlowerThanPeers", "at the limit", peers(0.0024)),
    missing("SolpiSlowerThanPeers", "a host alone", token("0.01x60") | INFO),
    fires("SolpiEngineControlHigh", "eager as recorded", control("0.7x100"), 15),
    silent("SolpiEngineControlHigh", "graphs as recorded", control("0.03x100")),
    silent("SolpiEngineControlHigh", "waits of preempted requests", control("0.7x100") | PREEMPTING),
    boundary("SolpiEngineControlHigh", "at the limit", control("0.4x100")),
    missing("SolpiEngineControlHigh", "idle", control("0.7x4 stale")),
    Case(
        "SolpiEngineControlRisen",
        "fires",
        "after a day of records",
        week(0.05, 26) | control(" ".join(["0.05x1560", "0.3x60"])),
        (1570,),
        {1590: 1},
    ),
    silent("SolpiEngineControlRisen", "an eager server all week", week(0.65, 26) | control("0.65x1620"), 1620),
    boundary("SolpiEngineControlRisen", "at the limit", week(0.25, 26) | control("0.25x1560 0.399x60"), 1620),
    missing("SolpiEngineControlRisen", "no day of records yet", week(0.05, 3) | control("0.05x180 0.3x60"), 240),
    fires("SolpiGraphsWouldHelp", "eager, and much to give back", EAGER | reclaimable(0.47), 60),
    fires("SolpiGraphsWouldHelp", "its control share is high", control("0.7x200") | reclaimable(0.47), 60),
    fires("SolpiGraphsWouldHelp", "both, said once", EAGER | control("0.7x200") | reclaimable(0.47), 60),
    silent("SolpiGraphsWouldHelp", "it has graphs", GRAPHS | reclaimable(0.47), 120),
    boundary("SolpiGraphsWouldHelp", "at the limit", EAGER | reclaimable(0.25), 120),
    missing("SolpiGraphsWouldHelp", "no probe", EAGER, 120),
    fires("SolpiEngineCpuThrottled", "a quota", {f"solpi_engine_cpu_throttled_seconds_total{{{S}}}": "0+6x60"}, 13),
    silent("SolpiEngineCpuThrottled", "long ago", {f"solpi_engine_cpu_throttled_seconds_total{{{S}}}": "500x60"}),
    boundary("SolpiEngineCpuThrottled", "at the limit", {f"solpi_engine_cpu_throttled_seconds_total{{{S}}}": "0+3x60"}),
    missing("SolpiEngineCpuThrottled", "no quota known", {"solpi_build_info": "1x60"}),
    fires(
        "SolpiEngineCpuStarved",
        "others take its CPUs",
        {
            f"solpi_engine_run_delay_seconds_total{{{S}}}": "0+30x60",
            f"solpi_engine_cpu_seconds_total{{{S}}}": "0+60x60",
        },
        11,
    ),
    silent(
        "SolpiEngineCpuStarved",
        "it hardly runs",
        {
            f"solpi_engine_run_delay_seconds_total{{{S}}}": "0+3x60",
            f"solpi_engine_cpu_seconds_total{{{S}}}": "0+3x60",
        },
    ),
    boundary(
        "SolpiEngineCpuStarved",
        "at the limit",
        {
            f"solpi_engine_run_delay_seconds_total{{{S}}}": "0+12x60",
            f"solpi_engine_cpu_seconds_total{{{S}}}": "0+60x60",
        },
    ),
    missing("SolpiEngineCpuStarved", "no CPU time", {f"solpi_engine_run_delay_seconds_total{{{S}}}": "0+60x60"}),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_fires_when_it_should(case: Case, tool: Callable[[str], str], tmp_path: Path) -> None:
    """At the minute that it says, and at no other."""
    prove(case, tool("promtool"), tmp_path)


@pytest.mark.parametrize("alert", alerts_of(GROUPS))
def test_every_alert_has_every_kind_of_case(alert: str, tool: Callable[[str], str], tmp_path: Path) -> None:
    """It fires, stays silent, lies at its limit, and finds nothing; its text names labels that are there."""
    complete(alert, CASES, tool("promtool"), tmp_path)
