"""The shipped rules over simulated series, by promtool, which is Prometheus' own engine; and what their alerts did.

promtool works every group out at one interval. So the hourly ones are asked at the full hour only: their series then
have samples an hour apart, as they have on a server. That they end in between harms nothing, since rules look them up
over days.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.week.fleet import DAY
from solpi_exporter.rules.files import FILES, rule_files
from solpi_exporter.rules.limits import chosen

HOUR = "(\n{}\n) and on () (vector(time()) % 3600 == 0)"
SAID = "max by (alertname, instance, alertstate) (count_over_time(ALERTS[{}m]))"
_BLOCK = re.compile(r"time: ([0-9dhms]+),.*?got:(.*?)(?=\n\s+expr:|\Z)", re.DOTALL)
_SAMPLE = re.compile(r"\{([^}]*)\} ([0-9.E+]+)")
_SPAN = re.compile(r"(\d+)([dhm])")
_MINUTES = {"d": DAY, "h": 60, "m": 1}


@dataclass(frozen=True, slots=True)
class Active:
    """An alert that was pending or firing on a host, for so many minutes of a day; the first day is 1."""

    alert: str
    instance: str
    is_firing: bool
    day: int
    minutes: int


def alerts_of(series: Iterable[tuple[str, str]], days: int, every: int) -> list[Active]:
    """Work all rules out every so many minutes; a rule that fails, or one that is not asked, ends the program."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in rule_files(chosen({})).items():
            (Path(folder) / name).write_text(yaml.safe_dump(_hourly(yaml.safe_load(text))))
        tree = {
            "rule_files": list(FILES),
            "evaluation_interval": f"{every}m",
            "group_eval_order": [group.name for groups in FILES.values() for group in groups],
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series],
                    "promql_expr_test": [_asked(day, every) for day in range(1, days + 1)],
                }
            ],
        }
        (Path(folder) / "week.yml").write_text(json.dumps(tree))
        command = ["promtool", "test", "rules", "week.yml"]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return list(_read(outcome.stdout + outcome.stderr, every))


def _hourly(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    for group in tree["groups"]:
        if group.get("interval") == "1h":
            for rule in group["rules"]:
                rule["expr"] = HOUR.format(rule["expr"])
    return tree


def _asked(day: int, every: int) -> Mapping[str, Any]:
    """Return the question how often each alert was there in a day; that nothing was is never true, so it is told."""
    return {"expr": SAID.format(DAY - every), "eval_time": f"{day * DAY - every}m", "exp_samples": []}


def _read(said: str, every: int) -> Iterator[Active]:
    """Read what promtool says that it got instead of nothing; any other complaint ends the program."""
    found = _BLOCK.findall(said)
    if not found or "err:" in said:
        raise SystemExit(said[-3000:])
    for time, got in found:
        day = sum(int(count) * _MINUTES[unit] for count, unit in _SPAN.findall(time)) // DAY + 1
        for labels, count in _SAMPLE.findall(got):
            names = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            is_firing = names["alertstate"] == "firing"
            yield Active(names["alertname"], names.get("instance", ""), is_firing, day, every * round(float(count)))
