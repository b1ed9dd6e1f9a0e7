"""The rule files: as they are committed, as Prometheus takes them, and what every rule must hold."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from solpi_exporter.catalog import METRICS
from solpi_exporter.metric import Kind
from solpi_exporter.rules.files import ALERTS, FILES, RECORDS, rule_files
from solpi_exporter.rules.limits import chosen
from solpi_exporter.rules.rule import CRITICAL, INFO, WARNING, Alert, Record
from tests.rules.cases import ALERT_FILES

NAME = re.compile(r"(?<![\w:])((?:\w+:)?solpi_\w+(?::\w+)?)")


def known_names() -> set[str]:
    names = {record.name for record in RECORDS}
    for metric in METRICS:
        parts = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
        names |= {metric.name + part for part in parts}
    return names


def test_the_committed_files_are_those_of_this_version() -> None:
    """`make docs` writes them."""
    assert {path.name: path.read_text() for path in ALERT_FILES.glob("*.yml")} == rule_files(chosen({}))


def test_prometheus_takes_them(tool: Callable[[str], str], tmp_path: Path) -> None:
    """Debian's 2.42, which knows less than later ones."""
    for name, text in rule_files(chosen({"kv_usage": 0.9}), "https://wiki/runbooks").items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in FILES]

    outcome = subprocess.run([tool("promtool"), "check", "rules", *files], capture_output=True, text=True, check=False)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_a_changed_limit_is_in_expression_and_text() -> None:
    """And the runbooks are where the site keeps them."""
    text = rule_files(chosen({"kv_usage": 0.77}), "https://wiki/runbooks")["solpi-engine.yml"]
    rules = {
        rule["alert"]: rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "alert" in rule
    }

    assert "> 0.77" in rules["SolpiKvCacheFull"]["expr"]
    assert "limit 77%" in rules["SolpiKvCacheFull"]["annotations"]["description"]
    assert rules["SolpiKvCacheFull"]["annotations"]["runbook_url"] == "https://wiki/runbooks#solpikvcachefull"


RULES: tuple[Record | Alert, ...] = (*RECORDS, *ALERTS)


@pytest.mark.parametrize("rule", RULES, ids=[one.name for one in RULES])
def test_a_rule_asks_for_what_there_is(rule: Record | Alert) -> None:
    """Every metric is in the catalogue, or recorded by another rule."""
    assert set(NAME.findall(rule.expr)) <= known_names()


@pytest.mark.parametrize("alert", ALERTS, ids=[one.name for one in ALERTS])
def test_an_alert_can_be_acted_on(alert: Alert) -> None:
    """It has a severity, a comparison, a summary that no value changes, and text; one that pages does not flap."""
    assert alert.severity in (CRITICAL, WARNING, INFO)
    assert re.search(r"[<>]|==|unless|vector\(1\)", alert.expr)
    assert alert.summary.endswith(".")
    assert "$" not in alert.summary
    assert alert.description.endswith((".", "?"))
    assert alert.keep or alert.severity != CRITICAL


def test_no_name_stands_twice() -> None:
    """Two alerts of one name would share their silences, two records their series."""
    names = [record.name for record in RECORDS] + [alert.name for alert in ALERTS]

    assert len(names) == len(set(names))
