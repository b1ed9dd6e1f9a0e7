"""Rule files for Prometheus from the tables, as YAML that also 2.42 takes."""

from collections.abc import Mapping
from typing import Any

import yaml

from solpi_exporter.rules import control, engine, exporter, gpu, records
from solpi_exporter.rules.limits import filled
from solpi_exporter.rules.rule import RUNBOOKS, Alert, Group, Record

# What is recorded comes before what asks for it. Prometheus works groups out side by side; promtool goes by this order.
FILES: Mapping[str, tuple[Group, ...]] = {
    "solpi-engine.yml": engine.GROUPS,
    "solpi-records.yml": records.GROUPS,
    "solpi-control.yml": control.GROUPS,
    "solpi-gpu.yml": gpu.GROUPS,
    "solpi-exporter.yml": exporter.GROUPS,
}
ALERTS = tuple(rule for groups in FILES.values() for group in groups for rule in group.rules if isinstance(rule, Alert))
RECORDS = tuple(
    rule for groups in FILES.values() for group in groups for rule in group.rules if isinstance(rule, Record)
)

HEAD = (
    "# Written by `solpi-exporter rules`: change limits with its --set, since the next release writes this file anew.\n"
)


class _Dumper(yaml.SafeDumper):
    """Writes several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def printed(limits: Mapping[str, float], runbooks: str = RUNBOOKS) -> str:
    """Return all of them as one file."""
    every = (group for groups in FILES.values() for group in groups)
    return HEAD + _dump({"groups": [_group(one, limits, runbooks) for one in every]})


def rule_files(limits: Mapping[str, float], runbooks: str = RUNBOOKS) -> dict[str, str]:
    """Return the text of each file, by name; `runbooks` is where the runbooks are to be read."""
    return {
        name: HEAD + _dump({"groups": [_group(one, limits, runbooks) for one in groups]})
        for name, groups in FILES.items()
    }


def _dump(tree: Mapping[str, Any]) -> str:
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def _group(group: Group, limits: Mapping[str, float], runbooks: str) -> dict[str, Any]:
    rules = [_alert(rule, limits, runbooks) if isinstance(rule, Alert) else _record(rule) for rule in group.rules]
    interval = {"interval": group.interval} if group.interval else {}
    return {"name": group.name, **interval, "rules": rules}


def _record(rule: Record) -> dict[str, Any]:
    return {"record": rule.name, "expr": rule.expr}


def _alert(rule: Alert, limits: Mapping[str, float], runbooks: str) -> dict[str, Any]:
    times = {name: value for name, value in (("for", rule.wait), ("keep_firing_for", rule.keep)) if value}
    return {
        "alert": rule.name,
        "expr": filled(rule.expr, limits),
        **times,
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary,
            "description": filled(rule.description, limits),
            "runbook_url": f"{runbooks}#{rule.name.lower()}",
        },
    }
