"""What the pictures of the dashboards are drawn from (benchmarks/panels.py)."""

from collections.abc import Mapping
from typing import Any

from benchmarks.panels import POINTS, Json, Shown, configured, drawn, legend
from tests.dashboards.read import COMMITTED

SHOWN = Shown(0.0, float(POINTS), "20s", {"instance": ("a",), "batch": ("1", "8")})


def panel(kind: str = "timeseries", **more: Any) -> Json:
    return {
        "type": kind,
        "title": "T",
        "gridPos": {"x": 0, "y": 0, "w": 24, "h": 8},
        "fieldConfig": {"defaults": {"noValue": "None"}, "overrides": []},
        "targets": [{"expr": 'x{instance=~"$instance"}[$__rate_interval]', "legendFormat": "{{a}} y"}],
        **more,
    }


class Prometheus:
    """Answers every query with one series, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: str, parameters: Mapping[str, str]) -> list[Json]:
        self.asked.append(parameters["query"])
        series: Json = {"metric": {"a": "A"}, "value": [9, "2"], "values": [[0, "1"], [2, "NaN"], [3, "4"]]}
        return [series]


def test_a_line_has_gaps_where_there_is_no_value() -> None:
    """At each step a point, which is none before the first scrape and where a quantile is of nothing."""
    (one,) = drawn({"panels": [panel()]}, SHOWN, Prometheus())

    (frame,) = one["frames"]
    assert frame["name"] == "A y"
    assert frame["fields"][1]["values"][:5] == [1.0, None, None, 4.0, None]


def test_variables_are_at_all_and_macros_are_times() -> None:
    """As Grafana asks when it is opened."""
    prometheus = Prometheus()

    list(drawn({"panels": [panel()]}, SHOWN, prometheus))

    assert prometheus.asked == ['x{instance=~".+"}[20s]']


def test_a_repeated_panel_pushes_down_what_is_below() -> None:
    """Each of its copies is of one value."""
    above = panel(repeat="batch", maxPerRow=1, title="batch $batch")
    below = panel(gridPos={"x": 0, "y": 8, "w": 24, "h": 8})

    found = list(drawn({"panels": [above, below]}, SHOWN, Prometheus()))

    assert [(one["title"], one["place"]["y"]) for one in found] == [("batch 1", 0), ("batch 8", 8), ("T", 16)]


def test_overrides_go_by_name_and_by_pattern() -> None:
    """A property with a point belongs into a part of the configuration."""
    overrides = [
        {"matcher": {"id": "byName", "options": "a"}, "properties": [{"id": "unit", "value": "s"}]},
        {"matcher": {"id": "byRegexp", "options": "/^b$/"}, "properties": [{"id": "custom.width", "value": 3}]},
    ]
    config = {"defaults": {"unit": "none"}, "overrides": overrides}

    assert configured(config, "a") == {"unit": "s"}
    assert configured(config, "b") == {"unit": "none", "custom": {"width": 3}}


def test_a_legend_without_a_form_is_the_metric_or_the_query() -> None:
    """As Grafana's __auto."""
    assert legend("__auto", {"__name__": "x"}, "x") == "x"
    assert legend("__auto", {}, "rate(x[1m])") == "rate(x[1m])"


def test_every_panel_of_every_dashboard_can_be_drawn() -> None:
    """Without an answer it is empty, and of a kind that the renderer knows."""
    kinds = {"row", "stat", "timeseries", "table", "barchart", "heatmap", "state-timeline"}
    for dashboard in COMMITTED.values():
        found = list(drawn(dashboard, SHOWN, lambda path, parameters: []))

        assert len(found) >= len(dashboard["panels"])
        assert {one["kind"] for one in found} <= kinds
        assert all(one["frames"] == [] for one in found)
