"""Tables of the present: columns are labels of the series, or a query each, joined on the labels that all have."""

from collections.abc import Sequence
from dataclasses import dataclass

from solpi_exporter.dashboards.looks import States, by_name, mappings, no_number, told
from solpi_exporter.dashboards.panels import panel
from solpi_exporter.dashboards.queries import Json, query_now

NO_CELL = "-"  # else an empty cell would say what an empty table does


@dataclass(frozen=True, slots=True)
class Label:
    """A column that shows a label; `links` are offered by its cells, as (title, URL)."""

    label: str
    title: str
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """A column of a query's values; coloured where it has thresholds or states. Without a title it is not shown."""

    title: str
    expr: str
    unit: str = "none"
    steps: Json | None = None
    states: States | None = None


def table(
    title: str,
    description: str,
    labels: Sequence[Label],
    values: Sequence[Value],
    *,
    empty: str,
    sort: Sequence[str] = (),
) -> Json:
    """Return a table; its rows are sorted by the columns `sort`, largest first. Other labels are hidden."""
    coloured = "; ".join(f"{one.title} {told(one.steps)}" for one in values if one.steps is not None)
    if coloured:
        description = f"{description} Coloured: {coloured}."
    made = panel("table", title, description, [query_now(one.expr) for one in values], unit="none", empty=empty)
    shown = {one.label: one.title for one in labels} | {
        _field(index, len(values)): one.title for index, one in enumerate(values) if one.title
    }
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": list(shown)}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {name: index for index, name in enumerate(shown)},
                "renameByName": shown,
            },
        },
    ]
    made["fieldConfig"]["defaults"] |= {
        "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True},
        "mappings": no_number("no traffic"),
    }
    made["fieldConfig"]["overrides"] = [
        *(_labelled(one) for one in labels),
        *(_valued(one) for one in values if one.title),
    ]
    made["options"] = {
        "cellHeight": "sm",
        "footer": {"show": False, "countRows": False, "fields": "", "reducer": ["sum"]},
        "showHeader": True,
        "sortBy": [{"displayName": name, "desc": True} for name in sort],
    }
    return made


def _field(index: int, queries: int) -> str:
    """Return how Grafana names a query's value, once its table is merged with others or alone."""
    return f"Value #{chr(ord('A') + index)}" if queries > 1 else "Value"


def _labelled(one: Label) -> Json:
    links = [{"title": title, "url": url} for title, url in one.links]
    linked: Json = {"links": links, "custom_minWidth": 160} if links else {}
    return by_name(one.title, noValue=NO_CELL, **linked)


def _valued(one: Value) -> Json:
    properties: Json = {"unit": one.unit, "noValue": NO_CELL}
    if one.states is not None:
        properties |= {"mappings": mappings(one.states), "custom_cellOptions": {"type": "color-text"}}
    if one.steps is not None:
        properties |= {
            "thresholds": one.steps,
            "color": {"mode": "thresholds"},
            "custom_cellOptions": {"type": "color-text"},
        }
    return by_name(one.title, **properties)
