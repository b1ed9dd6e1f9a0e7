"""The simulated hosts of `quiet_week`: every series of theirs for some days, minute by minute, as promtool reads it.

`graphs` serves people by day and idles at night, `eager` the same with half of its tokens lost, `batch` is full all
week. Noise as it was measured on H200 hosts: eager steps wander by 40 % and hold 1.45 times their median for up to
twenty minutes, the GPU's own time by 1 %, a launch by 20 %.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MINUTES = 24 * 60
# What pages, and what else may fire: the first silences the others by grafana/alertmanager.example.yml.
FAULTS = {
    "storm": ("SolpiSwapStorm", "SolpiKvCachePressure", "SolpiTokenLatencyHigh", "SolpiTokenLatencySpike"),
    "lost": ("SolpiGpuLost", "SolpiGpusMissing"),
    "regression": ("SolpiControlRegression",),
}

EDGES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
Value = Callable[[int], float | None]
Series = dict[str, str]


@dataclass(frozen=True, slots=True)
class Host:
    """What is said of a host; `tokens` is its mean time between tokens (s), `lost` the share of it that is lost."""

    name: str
    tokens: float
    lost: float
    always_full: bool = False

    def load(self, minute: int) -> float:
        """Return its load, 0 to 1: nothing from one to five at night."""
        if self.always_full:
            return 1.0
        hour = minute % MINUTES / 60
        return 0.0 if 1 <= hour < 5 else 0.2 + 0.6 * math.sin(math.pi * (hour - 5) / 20) ** 2

    def engine_is_away(self, minute: int) -> bool:
        """Whether a deploy goes on: five minutes of the third day, and a restart of the fifth."""
        deploy, restart = minute - 2 * MINUTES - 840, minute - 4 * MINUTES - 600
        return restart in range(4) or (deploy in range(5) and not self.always_full)

    def exporter_is_away(self, minute: int) -> bool:
        """Whether the exporter is restarted: for a minute on the second day, and upgraded on the fourth."""
        return minute in (MINUTES + 700, 3 * MINUTES + 645)


HOSTS = (Host("graphs", 0.008, 0.03), Host("eager", 0.015, 0.66), Host("batch", 0.03, 0.05, always_full=True))


def series_of_a_week(days: int, fault: str | None) -> Series:
    """Return promtool's series of all hosts."""
    random.seed(7)
    start = (days - 2) * MINUTES + 720
    return {
        name: values
        for host in HOSTS
        for name, values in _host(host, days * MINUTES, fault if host.name == "graphs" else None, start)
    }


def _host(host: Host, minutes: int, fault: str | None, start: int) -> Iterator[tuple[str, str]]:
    yield _series("up", host, minutes, lambda minute: float(not host.exporter_is_away(minute)), always=True)
    for parts in (_exporter(host), _gpus(host, fault, start), _engine(host, fault, start)):
        for name, value in parts:
            yield _series(name, host, minutes, value)
    for name, value in _probe(host, minutes, fault, start):
        yield _series(name, host, minutes, value)


def _series(name: str, host: Host, minutes: int, value: Value, *, always: bool = False) -> tuple[str, str]:
    """Return a series; while the exporter is away there is none but its target's."""
    metric, _, labels = name.partition("{")
    inner = f", {labels.rstrip('}')}" if labels else ""
    told = [None if host.exporter_is_away(minute) and not always else value(minute) for minute in range(minutes)]
    values = " ".join(_written(now, before) for now, before in zip(told, [None, *told], strict=False))
    return f'{metric}{{job="solpi", instance="{host.name}"{inner}}}', values


def _written(now: float | None, before: float | None) -> str:
    """Return a sample; Prometheus marks a series as stale where a scrape no longer has it."""
    if now is None:
        return "_" if before is None else "stale"
    return f"{now:.6g}"


def _total(rate: Callable[[int], float], away: Callable[[int], bool]) -> Value:
    """Return a counter of so much a minute, that begins anew whenever what counts it has been away."""
    reached: dict[str, float] = {"total": 0.0}

    def value(minute: int) -> float | None:
        if away(minute):
            reached["total"] = 0.0
            return None
        reached["total"] += rate(minute)
        return reached["total"]

    return value


def _exporter(host: Host) -> Iterator[tuple[str, Value]]:
    upgraded = 3 * MINUTES + 645
    yield 'solpi_build_info{version="1"}', lambda minute: 1.0 if minute < upgraded else None
    yield 'solpi_build_info{version="2"}', _from(upgraded, 1.0, None)
    yield 'solpi_source_last_success_timestamp_seconds{source="gpu"}', lambda minute: 60.0 * minute
    polls = _total(lambda _: 12.0, host.exporter_is_away)
    yield 'solpi_source_polls_total{source="gpu", outcome="success"}', polls
    for source, state in (("gpu", "ok"), ("host", "ok"), ("probe", "ok")):
        yield f'solpi_source_state{{source="{source}", state="{state}"}}', lambda _: 1.0
    away = host.engine_is_away
    yield 'solpi_source_state{source="engine:vllm", state="down"}', lambda minute: float(away(minute))
    yield 'solpi_log_lost_bytes_total{server="vllm"}', lambda _: 0.0
    yield 'solpi_state_write_failures_total{state="log"}', lambda _: 0.0


def _gpus(host: Host, fault: str | None, start: int) -> Iterator[tuple[str, Value]]:
    yield "solpi_gpus_expected", lambda _: 2.0
    for gpu in range(2):
        on = f'gpu="{gpu}", uuid="GPU-{host.name}-{gpu}"'
        gone = start if fault == "lost" and gpu == 0 else math.inf
        yield f'solpi_gpu_state{{{on}, state="lost"}}', _from(gone, 1.0, 0.0)
        yield f'solpi_gpu_state{{{on}, state="ok"}}', _from(gone, 0.0, 1.0)
        yield f'solpi_gpu_info{{{on}, model="H200"}}', lambda _: 1.0
        yield f"solpi_gpu_utilization_ratio{{{on}}}", lambda minute: min(1.0, 0.1 + host.load(minute))
        yield f"solpi_gpu_energy_joules_total{{{on}}}", _total(lambda minute: 6e3 + 3e4 * host.load(minute), _never)
        yield f"solpi_gpu_persistence_mode_enabled{{{on}}}", lambda _: 1.0
        yield f'solpi_gpu_ecc_enabled{{{on}, when="current"}}', lambda _: 1.0
        yield f"solpi_gpu_recovery_action{{{on}}}", lambda _: 0.0
        yield f'solpi_gpu_ecc_errors_total{{{on}, severity="corrected", scope="volatile"}}', lambda m: float(m // 900)
        for reason in ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"):
            yield f'solpi_gpu_clocks_event_active{{{on}, reason="{reason}"}}', lambda _: float(random.random() < 0.005)
        yield f'solpi_gpu_clocks_event_active{{{on}, reason="sw_power_cap"}}', lambda m: float(host.load(m) > 0.9)
        if host.name == "graphs":
            failed = 2 * MINUTES + 800
            yield f'solpi_gpu_xid_last_timestamp_seconds{{{on}, xid="31"}}', _from(failed, 60.0 * failed, None)
    yield 'solpi_xid_info{xid="31", class="application", action="restart_app"}', lambda _: 1.0
    yield "solpi_cuda_driver_version", lambda _: 13.0
    yield 'solpi_cuda_toolkit_version{user="engine", server="vllm"}', lambda _: 12.8


def _from(start: float, then: float, before: float | None) -> Value:
    """Return what changes once."""
    return lambda minute: then if minute >= start else before


def _never(_: int) -> bool:
    return False


def _engine(host: Host, fault: str | None, start: int) -> Iterator[tuple[str, Value]]:
    of, one = 'server="vllm"', 'server="vllm", engine="0"'
    away = host.engine_is_away

    def storm(minute: int) -> bool:
        return fault == "storm" and minute >= start

    def running(minute: int) -> float:
        return round(64 * host.load(minute))

    def waiting(minute: int) -> float:
        usual = random.choice((1, 2, 3, 4)) if host.always_full else float(random.random() < 0.05)
        return 60.0 if storm(minute) else float(usual)

    def present(value: Callable[[int], float]) -> Value:
        return lambda minute: None if away(minute) else value(minute)

    def tokens(minute: int) -> float:
        return running(minute) * 60 / host.tokens

    yield f"solpi_engine_up{{{of}}}", lambda minute: float(not away(minute))
    yield f'solpi_engine_requests{{{one}, state="running"}}', present(running)
    yield f'solpi_engine_requests{{{one}, state="waiting"}}', present(waiting)
    usage = present(lambda minute: 0.99 if host.always_full or storm(minute) else 0.9 * host.load(minute))
    yield f"solpi_engine_kv_cache_usage_ratio{{{one}}}", usage
    yield f"solpi_engine_generation_tokens_total{{{one}}}", _total(tokens, away)
    yield f"solpi_engine_prompt_tokens_total{{{one}}}", _total(lambda minute: tokens(minute) / 2, away)
    yield f"solpi_engine_steps_total{{{one}}}", _total(lambda m: 60 / host.tokens * (running(m) > 0), away)
    preempted = _total(lambda m: 120.0 if storm(m) else 0.3 * host.always_full, away)
    yield f"solpi_engine_preemptions_total{{{one}}}", preempted
    yield f'solpi_engine_kv_transfer_bytes_total{{{one}, direction="load"}}', _total(lambda _: 1e11, away)
    yield f"solpi_engine_last_report_timestamp_seconds{{{one}}}", _last_report(host)
    ratio = host.lost
    yield (
        f'solpi_engine_control_ratio{{{one}, basis="endpoint"}}',
        lambda minute: None if away(minute) or not running(minute) else ratio + random.uniform(-0.02, 0.05),
    )
    eager = str(host.name == "eager")
    yield f'solpi_engine_setting_info{{{of}, setting="enforce_eager", value="{eager}"}}', lambda _: 1.0
    for gpu in range(2):
        yield f'solpi_engine_gpu_info{{{of}, uuid="GPU-{host.name}-{gpu}"}}', lambda _: 1.0
    for kind in ("engine_dead", "start_failed", "worker_died", "out_of_memory", "ulimit"):
        yield f'solpi_engine_errors_total{{{of}, kind="{kind}"}}', lambda _: 0.0
    yield f"solpi_engine_cpu_seconds_total{{{of}}}", _total(lambda _: 70.0, away)
    yield f"solpi_engine_run_delay_seconds_total{{{of}}}", _total(lambda _: random.uniform(0, 4), away)
    yield f"solpi_engine_cpu_throttled_seconds_total{{{of}}}", lambda _: 0.0
    yield from _latency(host, tokens, storm)


def _last_report(host: Host) -> Value:
    told = {"time": 0.0}

    def value(minute: int) -> float | None:
        if host.engine_is_away(minute):
            return None
        if host.load(minute) > 0:
            told["time"] = 60.0 * minute
        return told["time"]

    return value


def _latency(host: Host, tokens: Callable[[int], float], storm: Callable[[int], bool]) -> Iterator[tuple[str, Value]]:
    """Yield the histogram: most tokens at their mean, some twice and four times as late, more of them under load."""
    one = 'server="vllm", engine="0"'
    name = "solpi_engine_inter_token_latency_seconds"

    def below(edge: float) -> Callable[[int], float]:
        def share(minute: int) -> float:
            scale = host.tokens * (1 + 0.3 * host.load(minute)) * (30 if storm(minute) else 1)
            return 0.9 * (edge >= scale) + 0.08 * (edge >= 2 * scale) + 0.02 * (edge >= 3 * scale)

        return lambda minute: tokens(minute) * share(minute)

    for edge in EDGES:
        yield f'{name}_bucket{{{one}, le="{edge:g}"}}', _total(below(edge), host.engine_is_away)
    yield f'{name}_bucket{{{one}, le="+Inf"}}', _total(tokens, host.engine_is_away)
    yield f"{name}_count{{{one}}}", _total(tokens, host.engine_is_away)


def _probe(host: Host, minutes: int, fault: str | None, start: int) -> Iterator[tuple[str, Value]]:
    on = f'device="cuda:0", uuid="GPU-{host.name}-0"'
    kind = 'model="H200", shape="8b", layers="4", context="512", dtype="bfloat16"'
    basis = "modelled" if host.always_full else "measured"
    yield f'solpi_probe_info{{{on}, {kind}, torch="2"}}', lambda _: 1.0
    yield "solpi_probe_last_success_timestamp_seconds", lambda minute: 60.0 * (minute - minute % 5)
    yield 'solpi_probe_skipped_total{reason="memory_moving"}', lambda minute: float(minute // MINUTES)
    slow = {"factor": 1.0, "until": 0.0}
    factors = [_factor(slow, cycle) for cycle in range(minutes // 5 + 1)]
    for batch in (1, 8, 32):
        at = f'{on}, batch="{batch}"'
        for figure, base, wander in _figures(batch):
            labels = f"{at}, {figure.partition('|')[2]}".rstrip(", ")
            name = figure.partition("|")[0]
            yield (
                f'solpi_probe_{name}{{{labels}, basis="{basis}"}}',
                _figure(base, wander, factors, start if fault == "regression" else None),
            )
            yield f"solpi_probe_baseline_{name}{{{labels}}}", lambda _, base=base: base  # type: ignore[misc]
    for name, base, wander in (("launch_seconds", 9e-6, 0.2), ("graph_launch_seconds", 2e-5, 0.4)):
        yield f"solpi_probe_{name}{{{on}}}", _figure(base, wander, [1.0] * len(factors), None)
        yield f"solpi_probe_baseline_{name}{{{on}}}", lambda _, base=base: base  # type: ignore[misc]
    wake = f'solpi_probe_{{}}wakeup_overshoot_seconds{{{{{on}, percentile="50"}}}}'
    yield wake.format(""), _figure(6e-5, 0.1, [1.0] * len(factors), None)
    yield wake.format("baseline_"), lambda _: 6e-5
    yield f'solpi_probe_off_cpu_seconds{{{on}, batch="1", mode="eager_sync"}}', lambda _: random.uniform(0, 2e-5)
    yield f'solpi_probe_reclaimable_ratio{{{on}, batch="1", mode="graph_async", basis="measured"}}', lambda _: 0.45


def _figures(batch: int) -> Iterator[tuple[str, float, float]]:
    """Yield name and labels, the baseline in seconds, and by how much of it wanders with the host."""
    graph = 7.5e-4 * (1 + batch / 300)
    host = 9e-4
    yield 'token_seconds|mode="eager_sync"', graph + host, 0.4
    yield 'token_seconds|mode="graph_sync"', graph, 0.01
    yield 'phase_seconds|phase="compute"', graph, 0.01
    yield 'phase_seconds|phase="scheduling"', host, 0.4
    yield 'phase_seconds|phase="sync"', 4e-5, 0.6


def _factor(slow: dict[str, float], cycle: int) -> float:
    """Return how slow the host is in a cycle: at times half as slow again, for up to four of them."""
    if cycle >= slow["until"] and random.random() < 0.02:
        slow |= {"factor": 1.45, "until": cycle + random.randint(2, 4)}
    return slow["factor"] if cycle < slow["until"] else 1.0


def _figure(base: float, wander: float, factors: list[float], worse_from: int | None) -> Value:
    """Return a figure that changes every five minutes."""
    host = wander > 0.3
    cycles = [base * (1 + random.uniform(-wander, wander) * 0.6) * (factor if host else 1.0) for factor in factors]

    def value(minute: int) -> float:
        worse = 2.2 if host and worse_from is not None and minute >= worse_from else 1.0
        return cycles[minute // 5] * worse

    return value
