"""The colours of the committed dashboards, held against the alerts: orange where one warns, red where one pages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from solpi_exporter.dashboards import looks
from solpi_exporter.dashboards.fleet import READINGS
from solpi_exporter.dashboards.queries import promql
from solpi_exporter.rules.files import ALERTS
from solpi_exporter.rules.limits import chosen
from solpi_exporter.rules.rule import CRITICAL, INFO, WARNING
from tests.dashboards.read import COMMITTED, panels

SEVERITIES = {"orange": {INFO, WARNING}, "red": {CRITICAL}}
BY_NAME = {alert.name: alert for alert in ALERTS}
WITHOUT_LIMIT = (looks.ANY, looks.SOME, looks.CPU_WAIT, looks.HOT, looks.FULL_MEMORY)


@dataclass(frozen=True, slots=True)
class Held:
    """What has this in its expression, alert or panel, is held against this limit."""

    asked: str
    color: str
    limit: str
    alert: str

    @property
    def value(self) -> float:
        return chosen({})[self.limit]


HELD = (
    Held("solpi_engine_control_ratio", "orange", "control_ratio", "SolpiEngineControlHigh"),
    Held("solpi_engine_kv_cache_usage_ratio", "orange", "kv_usage", "SolpiKvCacheFull"),
    Held("solpi_engine_preemptions", "orange", "preemptions", "SolpiPreemptions"),
    Held("solpi_engine_requests", "orange", "queue_growing", "SolpiQueueGrowing"),
    Held("solpi_probe_baseline_token_seconds", "orange", "token_ratio", "SolpiTokenSlower"),
    Held("solpi_probe_baseline_token_seconds", "red", "token_page_ratio", "SolpiControlRegression"),
    # The alert is on the token: of its parts the launch alone is held against peers.
    Held("solpi_probe_(token|launch)_seconds:ratio_fleet", "orange", "fleet_ratio", "SolpiSlowerThanPeers"),
    Held("_seconds:p99_rate5m_p50_1d", "red", "latency_rise", "SolpiTokenLatencySpike"),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The thresholds of a panel or a column, what it asks for, and where its colours are told."""

    title: str
    exprs: tuple[str, ...]
    steps: dict[str, Any]
    told: str

    @property
    def colors(self) -> dict[str, float]:
        return {step["color"]: step["value"] for step in self.steps["steps"] if step["value"] is not None}

    @property
    def counts(self) -> bool:
        """Whether it is how many are beyond a limit, which then stands in the expression."""
        return all(">= bool" in expr for expr in self.exprs)


def _drawn() -> Iterator[Drawn]:
    for uid, dashboard in COMMITTED.items():
        for panel in panels(dashboard):
            exprs = tuple(target["expr"] for target in panel["targets"])
            steps = panel["fieldConfig"]["defaults"].get("thresholds")
            if steps not in (None, looks.NEUTRAL):
                yield Drawn(f"{uid}: {panel['title']}", exprs, steps, panel["description"])
            names = {new: old for one in panel.get("transformations", []) if one["id"] == "organize"
                     for old, new in one["options"]["renameByName"].items()}  # fmt: skip
            for column in panel["fieldConfig"]["overrides"]:
                name, properties = (
                    column["matcher"]["options"],
                    {one["id"]: one["value"] for one in column["properties"]},
                )
                if "thresholds" in properties:
                    asked = exprs[ord(names[name][-1]) - ord("A")]
                    yield Drawn(f"{uid}: {name}", (asked,), properties["thresholds"], panel["description"])


DRAWN = tuple(_drawn())


@pytest.mark.parametrize("held", HELD, ids=str)
def test_a_limit_is_that_of_an_alert_of_its_color(held: Held) -> None:
    """On the same thing; whoever sees orange finds a warning, whoever sees red a page."""
    alert = BY_NAME[held.alert]

    assert re.search(held.asked, alert.expr)
    assert f"${{{held.limit}}}" in alert.expr
    assert alert.severity in SEVERITIES[held.color]


@pytest.mark.parametrize("one", DRAWN, ids=lambda one: one.title)
def test_a_threshold_is_the_alerts_limit(one: Drawn) -> None:
    """Where an alert holds one; what has no limit has a look that says so."""
    held = [row for row in HELD if not one.counts and any(re.search(row.asked, expr) for expr in one.exprs)]

    assert held or one.steps in WITHOUT_LIMIT
    for row in held:
        assert one.colors[row.color] == row.value, row


def test_the_fleet_is_sorted_by_all_its_colors() -> None:
    """A coloured column that does not count, or from another limit on, would be overlooked."""
    (signs,) = (one.exprs[0] for one in DRAWN if one.title == "solpi-fleet: Signs")
    columns = [(one, looks.first(one.steps)) for one in READINGS if one.steps is not None]

    assert re.findall(r'"sign", "([^"]+)"', signs) == [one.title for one, _ in columns]
    for one, limit in columns:
        assert f'({promql(one.expr)}) >= bool {limit:g}, "sign", "{one.title}"' in signs


def test_lossy_hosts_are_those_that_an_alert_warns_of() -> None:
    """By the same limit."""
    (lossy,) = (one.exprs[0] for one in DRAWN if one.title == "solpi-fleet: Lossy hosts")

    assert lossy.endswith(f" >= bool {chosen({})['control_ratio']:g})")


@pytest.mark.parametrize("one", DRAWN, ids=lambda one: one.title)
def test_a_description_tells_from_where_on_a_color_is(one: Drawn) -> None:
    """As the thresholds have it."""
    assert looks.told(one.steps) in one.told.replace("Orange", "orange").replace("Red", "red")
