"""A case of an alert: series, and when it fires on them; run by promtool, on the rules as they are shipped."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from solpi_exporter.rules.files import ALERTS, FILES
from solpi_exporter.rules.limits import chosen, filled
from solpi_exporter.rules.rule import Alert, Group

ALERT_FILES = Path(__file__).parents[2] / "grafana" / "alerts"

FIRES, SILENT, BOUNDARY, MISSING = "fires", "silent", "boundary", "missing"
KINDS = (FIRES, SILENT, BOUNDARY, MISSING)
# A site labels its targets with more than Prometheus does: no rule may stumble over that, or lose what alerts go by.
SITE = 'cluster="eu"'
ANYWHERE = f'job="solpi", instance="a", {SITE}'
BROKEN_TEXT = "<error expanding template"  # what Prometheus writes in its place

_LABELS_AND_TEXTS = re.compile(r"Labels:\{(.*)\}\n\s*Annotations:\{(.*)\}")
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LABEL = re.compile(r"\{\{ \$labels\.(\w+)")


@dataclass(frozen=True, slots=True)
class Case:
    """`series` are values a minute in promtool's notation, by name and labels; all are of one host, if they say none.

    The alert fires at the minutes `fires`, as often as they say, and not at those of `silent`.
    """

    alert: str
    kind: str
    about: str
    series: Mapping[str, str]
    silent: tuple[int, ...] = ()
    fires: Mapping[int, int] | None = None

    def __str__(self) -> str:
        """What pytest calls it."""
        return f"{self.alert}-{self.kind}-{self.about}".replace(" ", "_")


def fires(alert: str, about: str, series: Mapping[str, str], after: int, count: int = 1) -> Case:
    """Return a case that fires at a minute, and not at the one before."""
    return Case(alert, FIRES, about, series, (after - 1,) if after else (), {after: count})


def silent(alert: str, about: str, series: Mapping[str, str], until: int = 60) -> Case:
    """Return a case that never fires."""
    return Case(alert, SILENT, about, series, _moments(until))


def boundary(alert: str, about: str, series: Mapping[str, str], until: int = 60) -> Case:
    """Return a case that lies at the limit, and does not fire."""
    return Case(alert, BOUNDARY, about, series, _moments(until))


def missing(alert: str, about: str, series: Mapping[str, str], until: int = 60) -> Case:
    """Return a case in which what the alert asks for is not there, and it does not fire."""
    return Case(alert, MISSING, about, series, _moments(until))


def _moments(until: int) -> tuple[int, ...]:
    return tuple(range(0, until + 1, 5))


def prove(case: Case, promtool: str, folder: Path) -> None:
    """Have promtool evaluate the rules on the series of a case, minute by minute."""
    expected = [(minute, 0) for minute in case.silent] + [*(case.fires or {}).items()]
    tests = [
        {
            "expr": f'count(ALERTS{{alertname="{case.alert}", alertstate="firing"}})',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": count}] if count else [],
        }
        for minute, count in expected
    ]
    outcome = ask_promtool(case, {"promql_expr_test": tests}, promtool, folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def texts(case: Case, promtool: str, folder: Path) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Return labels and annotations of each alert that fires, as Prometheus fills them in."""
    assert case.fires
    test = {"alertname": case.alert, "eval_time": f"{next(iter(case.fires))}m", "exp_alerts": []}
    outcome = ask_promtool(case, {"alert_rule_test": [test]}, promtool, folder)
    return [
        (dict(_PAIR.findall(labels)), dict(_PAIR.findall(told)))
        for labels, told in _LABELS_AND_TEXTS.findall(outcome.stdout + outcome.stderr)  # which it is, is the release's
    ]


def ask_promtool(case: Case, tests: Mapping[str, Any], promtool: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "case.yml"
    file.write_text(yaml.safe_dump(_test_file(case, tests)))
    return subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)


def _test_file(case: Case, tests: Mapping[str, Any]) -> dict[str, Any]:
    series = [{"series": _anywhere(name), "values": values} for name, values in case.series.items()]
    return {
        "rule_files": [str(path) for path in sorted(ALERT_FILES.glob("*.yml"))],
        "evaluation_interval": "1m",
        "group_eval_order": [group.name for groups in FILES.values() for group in groups],  # else it is random
        "tests": [{"interval": "1m", "name": str(case), "input_series": series, **tests}],
    }


def _anywhere(series: str) -> str:
    """Return a series with a job and a host, unless it names one."""
    if "instance=" in series:
        return series
    name, _, labels = series.partition("{")
    inner = labels.rstrip("}")
    return f"{name}{{{ANYWHERE}{', ' if inner else ''}{inner}}}"


def asked_labels(alert: str) -> set[str]:
    """Return the labels that the text of an alert names."""
    (rule,) = (one for one in ALERTS if one.name == alert)
    return set(_LABEL.findall(filled(rule.description, chosen({}))))


def complete(alert: str, cases: Iterable[Case], promtool: str, folder: Path) -> None:
    """Assert that an alert has every kind of case, and that its text, filled in, names labels that are there."""
    own = [case for case in cases if case.alert == alert]
    assert {case.kind for case in own} == set(KINDS)
    fired = texts(next(case for case in own if case.fires), promtool, folder)
    assert fired
    for labels, told in fired:
        assert asked_labels(alert) <= labels.keys()
        assert alert == "SolpiWatchdog" or "cluster" in labels
        assert BROKEN_TEXT not in told["description"]


def alerts_of(groups: Iterable[Group]) -> list[str]:
    """Return the names of the alerts in some groups."""
    return [rule.name for group in groups for rule in group.rules if isinstance(rule, Alert)]
