"""The table of limits that alerts are made with, and how they get into expressions and texts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PLACE = re.compile(r"\$\{(\w+)(?::(\w+))?\}")
# What Prometheus fills in: of whom an alert speaks, and what its expression came to.
PHRASES: Mapping[str, str] = {
    "host": "{{ $labels.instance }}",
    "server": "{{ $labels.server }} on {{ $labels.instance }}",
    "gpu": "GPU {{ $labels.gpu }} of {{ $labels.instance }} ({{ $labels.uuid }})",
    "device": "{{ $labels.device }} of {{ $labels.instance }}",
    "value": "{{ $value | humanize }}",
    "value:percent": "{{ $value | humanizePercentage }}",
    "value:duration": "{{ $value | humanizeDuration }}",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: `meaning` names what is held against it, `unit` its unit ("" is a plain number or a ratio)."""

    name: str
    value: float
    unit: str
    meaning: str


class UnknownLimit(Exception):
    """There is no limit of this name."""


# fmt: off
LIMITS = (
    # control layer: the probe against its baseline. A host wanders by 40 % from minute to minute, a GPU by 1 %.
    Limit("token_ratio", 1.3, "", "the probe's eager token against its baseline, at every batch size: a warning"),
    Limit("token_page_ratio", 1.6, "", "the same: a page"),
    Limit("gpu_token_ratio", 1.1, "", "the GPU's own part of that token (compute and memory) against its baseline"),
    Limit("sync_share", 0.25, "", "growth of the probe's sync since its baseline, in shares of the baseline's token"),
    Limit("launch_ratio", 1.5, "", "what a kernel's launch costs against its baseline"),
    Limit("wakeup_ratio", 2, "", "how late a sleeper wakes up (P50) against its baseline"),
    Limit("wakeup_seconds", 1e-4, "seconds", "how late a sleeper wakes up, below which it is no matter"),
    Limit("off_cpu_share", 0.1, "", "time in which the probe's thread did not run, in shares of its token"),
    Limit("fleet_ratio", 1.5, "", "a host's probe against the median of hosts of its kind"),
    Limit("fleet_hosts", 4, "", "hosts of a kind below which none is compared with its peers"),
    # control layer: the engine's own token
    Limit("control_ratio", 0.4, "", "share of an engine's own token in which its GPU was not busy for it"),
    Limit("control_rise", 0.15, "", "growth of that share against the median of its week"),
    Limit("reclaimable_ratio", 0.25, "", "share of the probe's token that graphs give back"),
    Limit("cpu_throttled_ratio", 0.05, "", "seconds a second for which its CPU limit holds an engine back"),
    Limit("run_delay_ratio", 0.2, "", "time for which an engine's threads wait for a CPU, against what they run"),
    # the engine
    Limit("preemptions", 0.1, "per second", "preemptions: a warning; with a full KV cache, slower or queued, a page"),
    Limit("kv_usage", 0.95, "", "share of the KV cache in use"),
    Limit("waiting", 5, "requests", "waiting requests that count as a queue"),
    Limit("waiting_rise", 1.5, "", "the queue of five minutes against the ninth decile of the day before"),
    Limit("queue_growing", 20, "requests", "waiting requests above which a queue that goes on growing is a warning"),
    Limit("latency_rise", 2, "", "P99 between two tokens against its median of a day"),
    Limit("latency_floor", 0.05, "seconds", "P99 between two tokens below which a rise is no matter"),
    Limit("latency", 0.5, "seconds", "P99 between two tokens, whatever it was before"),
    Limit("silence", 60, "seconds", "since an engine with running requests last reported"),
    Limit("busy_ratio", 0.8, "", "utilisation of a server's GPUs above which tokens should come"),
    # the GPUs
    Limit("throttled_ratio", 0.25, "", "share of the time for which heat or hardware holds the clocks down"),
    Limit("capped_ratio", 0.9, "", "share of the time for which the power limit holds the clocks down"),
    Limit("xid_seconds", 600, "seconds", "for how long an XID is news"),
    # the exporter
    Limit("probe_seconds", 3600, "seconds", "since the probe last measured a split"),
    Limit("clock_seconds", 60, "seconds", "between the clock of a host and Prometheus'"),
)
# fmt: on


def chosen(changes: Mapping[str, float]) -> Mapping[str, float]:
    """Return every limit by name, some changed; raise UnknownLimit for a name that is none."""
    values = {limit.name: limit.value for limit in LIMITS}
    for name in changes:
        if name not in values:
            raise UnknownLimit(name)
    return {**values, **changes}


def filled(text: str, values: Mapping[str, float]) -> str:
    """Put limits and phrases in the places of a text: ${name} as a number, ${name:percent} as a person reads it."""
    return _PLACE.sub(lambda place: _written(place, values), text)


def _written(place: re.Match[str], values: Mapping[str, float]) -> str:
    name, form = place[1], place[2]
    phrase = PHRASES.get(name if form is None else f"{name}:{form}")
    if phrase is not None:
        return phrase
    return f"{100 * values[name]:.4g}%" if form == "percent" else f"{values[name]:.6g}"
