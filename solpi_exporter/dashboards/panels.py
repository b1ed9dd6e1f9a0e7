"""Panels as plain dicts, without a place on the grid: tiles, time series, heatmaps, states over time, bars."""

from collections.abc import Mapping, Sequence

from solpi_exporter.dashboards.looks import NEUTRAL, REFERENCE, States, colored, fixed, mappings, no_number, told
from solpi_exporter.dashboards.queries import DATA_SOURCE, Json, query, query_buckets, query_now

ROOM_IN_TILE = 14  # characters: of more, Grafana makes them too small to read
UNKNOWN = "Not known"  # is what a tile says, and its description why
AXIS_WIDTH = 80  # of all time series, so that those below one another share their time axis


def panel(kind: str, title: str, description: str, queries: Sequence[Json], *, unit: str, empty: str) -> Json:
    """Return what all panels have; `empty` is what one says that has no data."""
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATA_SOURCE,
        "targets": [one | {"refId": chr(ord("A") + index)} for index, one in enumerate(queries)],
        "fieldConfig": {"defaults": {"unit": unit, "noValue": empty}, "overrides": []},
        "options": {},
    }


def stat(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str,
    empty: str,
    steps: Json = NEUTRAL,
    states: States | None = None,
    graph: bool = True,
) -> Json:
    """Return a tile with one figure; one with thresholds or states is a verdict, others are plain."""
    if steps is not NEUTRAL:
        description = _with_meaning(description, steps)
    if len(empty) > ROOM_IN_TILE:
        description, empty = f"{description} {UNKNOWN}: {empty[0].lower()}{empty[1:]}.", UNKNOWN
    made = panel("stat", title, description, [query(expr)], unit=unit, empty=empty)
    made["fieldConfig"]["defaults"] |= {
        "color": {"mode": "thresholds"},
        "thresholds": steps,
        "mappings": mappings(states) if states else no_number(empty),
    }
    made["options"] = {
        "colorMode": "none" if steps is NEUTRAL and states is None else "value",
        "graphMode": "area" if graph else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value",
        "wideLayout": True,
    }
    return made


def _with_meaning(description: str, steps: Json) -> str:
    return f"{description} {told(steps).capitalize()}."


def series(
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    unit: str,
    empty: str,
    top: float | None = None,
    stack: bool = False,
    bars: bool = False,
    steps: Json | None = None,
    colors: Mapping[str, str] | None = None,
) -> Json:
    """Return time series; `top` is the axis' end, `steps` are drawn as lines, `colors` go by the legend's last word."""
    if steps is not None:
        description = _with_meaning(description, steps)
    made = panel("timeseries", title, description, queries, unit=unit, empty=empty)
    custom: Json = {
        "axisWidth": AXIS_WIDTH,
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 70 if bars else 30 if stack else 8,
        "lineWidth": 1,
        "showPoints": "auto",
        "spanNulls": False,
    }
    if stack:
        custom["stacking"] = {"group": "A", "mode": "normal"}
    if steps is not None:
        custom["thresholdsStyle"] = {"mode": "dashed"}
    defaults = made["fieldConfig"]["defaults"]
    defaults |= {"color": {"mode": "palette-classic"}, "custom": custom, "min": 0}
    defaults |= {} if top is None else {"max": top}
    defaults |= {} if steps is None else {"thresholds": steps}
    made["fieldConfig"]["overrides"] = [*colored(colors or {}), REFERENCE]
    made["options"] = {
        "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return made


def heatmap(title: str, description: str, expr: str, *, unit: str, empty: str) -> Json:
    """Return how a histogram's observations are spread, over time."""
    made = panel("heatmap", title, description, [query_buckets(expr)], unit=unit, empty=empty)
    made["options"] = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Blues", "scale": "exponential", "exponent": 0.5, "steps": 64},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "axisWidth": AXIS_WIDTH, "unit": unit},
    }
    return made


def states(title: str, description: str, queries: Sequence[Json], names: States, *, empty: str) -> Json:
    """Return states over time, one line a series; `names` gives each value its text and colour."""
    made = panel("state-timeline", title, description, queries, unit="none", empty=empty)
    made["fieldConfig"]["defaults"] |= {
        "color": fixed("text"),  # by thresholds, it would show their ranges in place of the names
        "custom": {"fillOpacity": 70, "lineWidth": 0, "spanNulls": False},
        "mappings": mappings(names),
    }
    made["options"] = {
        "alignValue": "center",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single"},
    }
    return made


def stacked_by(
    category: str,
    part: str,
    title: str,
    description: str,
    expr: str,
    *,
    unit: str,
    empty: str,
    colors: Mapping[str, str],
) -> Json:
    """Return the present as one stacked bar for each value of the label `category`, made of the values of `part`."""
    made = panel("barchart", title, description, [query_now(expr)], unit=unit, empty=empty)
    made["transformations"] = [
        {
            "id": "convertFieldType",
            "options": {"conversions": [{"targetField": category, "destinationType": "number"}]},
        },
        {"id": "sortBy", "options": {"sort": [{"field": category}]}},
        {"id": "groupingToMatrix", "options": {"rowField": category, "columnField": part, "valueField": "Value"}},
    ]
    made["fieldConfig"]["defaults"] |= {"color": {"mode": "palette-classic"}, "custom": {"fillOpacity": 80}, "min": 0}
    made["fieldConfig"]["overrides"] = colored(colors)
    made["options"] = {
        "barWidth": 0.8,
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "orientation": "auto",
        "showValue": "never",
        "stacking": "normal",
        "tooltip": {"mode": "multi", "sort": "none"},
        "xField": f"{category}\\{part}",
    }
    return made


def repeated(one: Json, variable: str, in_a_line: int) -> Json:
    """Return a panel that is shown once for each chosen value of a variable."""
    return one | {"repeat": variable, "repeatDirection": "h", "maxPerRow": in_a_line}
