"""A whole dashboard: panels in sections on a grid of 24 columns, under variables, annotations and links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solpi_exporter.dashboards.queries import DATA_SOURCE, Json, promql

TAG = "solpi"
SCHEMA_VERSION = 39  # of Grafana 10.4: later ones migrate it, earlier ones are out of support
COLUMNS = 24
TILE_HEIGHT, HEIGHT = 4, 8
ROOM_FOR_FIGURES = COLUMNS // 2  # in a legend: narrower ones would be cut


@dataclass(frozen=True, slots=True)
class Line:
    """Panels from left to right, of equal width unless `widths` says otherwise."""

    panels: tuple[Json, ...]
    height: int = HEIGHT
    widths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Lines under a heading; without a title there is no heading."""

    title: str
    lines: tuple[Line, ...]
    collapsed: bool = False


def line(*panels: Json, height: int = HEIGHT, widths: tuple[int, ...] = ()) -> Line:
    """Return a line of panels."""
    return Line(panels, height, widths)


def tiles(*panels: Json) -> Section:
    """Return the tiles that a dashboard begins with."""
    return Section("", (Line(panels, TILE_HEIGHT),))


def dashboard(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Json],
    annotations: Sequence[Json],
    parts: Sequence[Section],
) -> Json:
    """Return a dashboard in Grafana's classic form, to be imported or provisioned as it is."""
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "weekStart": "",
        "fiscalYearStartMonth": 0,
        "links": [_LINKS],
        "templating": {"list": list(variables)},
        "annotations": {"list": list(annotations)},
        "panels": placed(parts),
    }


_LINKS: Json = {
    "type": "dashboards",
    "tags": [TAG],
    "title": "Solpi",
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
    "icon": "external link",
    "tooltip": "",
    "url": "",
}


def placed(parts: Sequence[Section]) -> list[Json]:
    """Return all panels with ids and places, section below section; those of a collapsed one lie within its heading."""
    panels: list[Json] = []
    top, number = 0, 1
    for part in parts:
        inner: list[Json] = []
        if part.title:
            panels.append(_heading(part, number, top))
            number, top = number + 1, top + 1
        for one in part.lines:
            inner += [panel | {"id": number + index} for index, panel in enumerate(_in_line(one, top))]
            number, top = number + len(one.panels), top + one.height
        if part.collapsed:
            panels[-1]["panels"] = inner
        else:
            panels += inner
    return panels


def _heading(part: Section, number: int, top: int) -> Json:
    return {
        "type": "row",
        "id": number,
        "title": part.title,
        "collapsed": part.collapsed,
        "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _in_line(one: Line, top: int) -> Iterator[Json]:
    widths = one.widths or (COLUMNS // len(one.panels),) * len(one.panels)
    left = 0
    for width, panel in zip(widths, one.panels, strict=True):
        yield _legible(panel, width) | {"gridPos": {"x": left, "y": top, "w": width, "h": one.height}}
        left += width


def _legible(panel: Json, width: int) -> Json:
    """Return a panel without last and largest values in its legend, where there is no room for them."""
    options = panel.get("options", {})
    narrow = width // panel.get("maxPerRow", 1) < ROOM_FOR_FIGURES
    if not (narrow and options.get("legend", {}).get("calcs")):
        return panel
    return panel | {"options": options | {"legend": options["legend"] | {"calcs": []}}}


def variable(name: str, selector: str, *, sort: int = 1) -> Json:
    """Return a variable of a label's values among the series of a selector; any number of them, or all."""
    expr = f"label_values({promql(selector)}, {name})"
    return {
        "type": "query",
        "name": name,
        "label": name,
        "datasource": DATA_SOURCE,
        "definition": expr,
        "query": {"qryType": 1, "query": expr, "refId": f"variable-{name}"},
        "refresh": 2,  # with the time range
        "sort": sort,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "options": [],
        "regex": "",
        "skipUrlSync": False,
    }


DATA_SOURCE_VARIABLE: Json = {
    "type": "datasource",
    "name": "datasource",
    "label": "Data source",
    "query": "prometheus",
    "current": {},
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "refresh": 1,
    "regex": "",
    "skipUrlSync": False,
}
NUMERICALLY = 3
HOSTS = (
    DATA_SOURCE_VARIABLE,
    variable("job", "solpi_build_info"),
    variable("instance", 'solpi_build_info{job=~"$job"}'),
)
SERVER = variable("server", "solpi_engine_requests{HOST}")
GPU = variable("gpu", "solpi_gpu_up{HOST}", sort=NUMERICALLY)
BATCH = variable("batch", "solpi_probe_control_ratio{HOST}", sort=NUMERICALLY)


def annotation(name: str, expr: str, color: str, title: str, text: str, tags: str, *, at_value: bool = False) -> Json:
    """Return marks on all graphs where a query has values; with `at_value`, at the times in ms that are its values."""
    return {
        "name": name,
        "datasource": DATA_SOURCE,
        "enable": True,
        "expr": promql(expr),
        "iconColor": color,
        "step": "30s",
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": tags,
        "useValueForTime": at_value,
    }


ALERTS = annotation(
    "Alerts",
    'ALERTS{alertstate="firing", alertname=~"Solpi.*", job=~"$job|", instance=~"$instance|"}',
    "red",
    "{{alertname}}",
    "{{severity}} {{instance}} {{server}} {{gpu}}",
    "alertname,severity",
)
XIDS = annotation(
    "XIDs",
    "solpi_gpu_xid_last_timestamp_seconds{HOST} * 1000",
    "purple",
    "XID {{xid}}",
    "{{instance}} GPU {{gpu}}",
    "xid",
    at_value=True,
)
ENGINE_ERRORS = annotation(
    "Engine errors",
    'rate(solpi_engine_errors_total{ENGINE, kind!~"ulimit|preemption"}[$__rate_interval]) > 0',
    "orange",
    "{{kind}}",
    "{{instance}} {{server}}",
    "kind",
)
BASELINES = annotation(
    "Baselines pinned",
    "solpi_probe_baseline_timestamp_seconds{HOST} * 1000",
    "blue",
    "baseline of the probe",
    "{{instance}} {{device}}",
    "",
    at_value=True,
)
