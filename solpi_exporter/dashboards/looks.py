"""What colours mean: thresholds with a reason, states with their names, and overrides by the name of a series."""

from collections.abc import Mapping

from solpi_exporter.dashboards.queries import Json
from solpi_exporter.rules.limits import chosen


def thresholds(*steps: tuple[str, float]) -> Json:
    """Return thresholds: green below the first step; each step is a colour and the value from which it holds."""
    return {
        "mode": "absolute",
        "steps": [{"color": "green", "value": None}, *({"color": color, "value": value} for color, value in steps)],
    }


def told(steps: Json) -> str:
    """Return what thresholds say: "orange from 0.4, red from 0.5"."""
    return ", ".join(f"{step['color']} from {step['value']:g}" for step in steps["steps"][1:])


def first(steps: Json) -> float:
    """Return from where on a value is not green."""
    return float(steps["steps"][1]["value"])


NEUTRAL: Json = {"mode": "absolute", "steps": [{"color": "blue", "value": None}]}  # a figure that is no verdict

# Orange from where an alert warns, red from where one pages, as they are shipped (tests/dashboards/test_thresholds.py).
# A figure that no alert holds has its reason beside it.
_LIMIT = chosen({})
CONTROL = thresholds(
    ("orange", _LIMIT["control_ratio"]),
    ("red", 0.5),  # the host takes longer than the GPU, as where each kernel is launched by itself
)
KV_USAGE = thresholds(
    ("orange", _LIMIT["kv_usage"]),  # what a loaded server should have: to be looked at, and no harm
    ("red", 0.98),  # the next token may find no block: requests are preempted
)
PREEMPTIONS = thresholds(("orange", _LIMIT["preemptions"]), ("red", 1))  # one a second is a storm
WAITING = thresholds(("orange", _LIMIT["queue_growing"]), ("red", 50))  # many steps of a server to work it off
BASELINE = thresholds(("orange", _LIMIT["token_ratio"]), ("red", _LIMIT["token_page_ratio"]))
PEERS = thresholds(("orange", _LIMIT["fleet_ratio"]))
LATENCY_RISE = thresholds(("orange", 1.5), ("red", _LIMIT["latency_rise"]))  # halfway there

# No alert has a limit for these.
ANY = thresholds(("red", 1))  # of things that should not be
SOME = thresholds(("orange", 1))  # of things to look at
CPU_WAIT = thresholds(("orange", 0.2), ("red", 0.5))  # a busy host has some; a batch job may have much and be well
HOT = thresholds(("orange", 80), ("red", 90))  # most cards slow down by themselves between 85 and 92 °C
FULL_MEMORY = thresholds(("orange", 0.95), ("red", 0.99))  # an engine takes what it is told to: the rest is reserve

PHASES = {"compute": "blue", "memory": "purple", "scheduling": "orange", "sync": "yellow"}
TOKEN = {"busy": "blue", "lost": "orange"}
KINDS = {"engine": "blue", "probe": "purple", "other": "orange"}

States = Mapping[str, tuple[str, str]]  # value -> text, colour

NO_YES: States = {"0": ("no", "green"), "1": ("yes", "orange")}
NO_YES_BAD: States = {"0": ("no", "green"), "1": ("yes", "red")}
YES_NO: States = {"1": ("yes", "green"), "0": ("no", "orange")}
CONDITIONS: States = {
    "0": ("Quiet", "green"),
    "1": ("Host starved", "orange"),
    "2": ("GPU contended", "blue"),
    "3": ("Both", "orange"),
}
SAME_CHANGED: States = {"0": ("as pinned", "green"), "1": ("changed", "orange")}
RECOVERY: States = {
    "0": ("nothing", "green"),
    "1": ("reset the GPU", "red"),
    "2": ("reboot", "red"),
    "3": ("drain P2P", "orange"),
    "4": ("drain and reset", "red"),
    "5": ("recover IMEX", "red"),
    "6": ("reset the PCIe bus", "red"),
    "7": ("reboot the system", "red"),
}


def mappings(states: States) -> list[Json]:
    """Return the value mappings of states."""
    options = {
        value: {"color": color, "index": index, "text": text}
        for index, (value, (text, color)) in enumerate(states.items())
    }
    return [{"type": "value", "options": options}]


def no_number(text: str) -> list[Json]:
    """Return the mapping of NaN, which a quantile is where nothing was observed."""
    return [{"type": "special", "options": {"match": "nan", "result": {"index": 0, "text": text}}}]


def by_name(name: str, **properties: object) -> Json:
    """Return an override of the field of this name; `custom_width` stands for the property custom.width."""
    return _override("byName", name, properties)


def by_pattern(pattern: str, **properties: object) -> Json:
    """Return an override of the fields whose name matches."""
    return _override("byRegexp", pattern, properties)


def _override(matcher: str, options: str, properties: Mapping[str, object]) -> Json:
    return {
        "matcher": {"id": matcher, "options": options},
        "properties": [
            {"id": name.replace("custom_", "custom."), "value": value} for name, value in properties.items()
        ],
    }


def fixed(color: str) -> Json:
    """Return one colour for everything."""
    return {"mode": "fixed", "fixedColor": color}


def colored(colors: Mapping[str, str]) -> list[Json]:
    """Return overrides that give series of these names, alone or at the legend's end, their colours."""
    return [by_pattern(f"/(^| ){name}$/", color=fixed(color)) for name, color in colors.items()]


# What was pinned or usual, beside what is.
REFERENCE = by_pattern(
    "/\\((baseline|week)\\)$/", custom_lineStyle={"fill": "dash", "dash": [8, 6]}, custom_fillOpacity=0
)
