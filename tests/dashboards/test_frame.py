"""The frame of the committed dashboards: what makes them load, fit the grid, and lead from one to the other."""

import re
from itertools import combinations
from typing import Any

import pytest

from solpi_exporter.dashboards.frame import COLUMNS, Line, Section, line, placed
from solpi_exporter.dashboards.panels import ROOM_IN_TILE, repeated, series
from tests.dashboards.read import COMMITTED, panels

Json = dict[str, Any]

PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
EVERY = pytest.mark.parametrize("uid", COMMITTED)


def walked(node: object) -> list[Json]:
    """Return every object within one."""
    if isinstance(node, dict):
        return [node, *(one for value in node.values() for one in walked(value))]
    return [one for value in node for one in walked(value)] if isinstance(node, list) else []


def variables(uid: str) -> dict[str, Json]:
    return {one["name"]: one for one in COMMITTED[uid]["templating"]["list"]}


def boxes(uid: str) -> list[Json]:
    """Return the places of all that is shown with every section open; those of a closed one lie below its heading."""
    top = COMMITTED[uid]["panels"]
    return [one["gridPos"] for panel in top for one in (panel, *panel.get("panels", []))]


def apart(one: Json, other: Json) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    return bool(beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"])


@EVERY
def test_it_loads_by_import_and_by_provisioning(uid: str) -> None:
    """Classic JSON of Grafana 10.4 and later, with a name of its own and nothing that only the import dialog fills."""
    one = COMMITTED[uid]

    assert (one["uid"], one["id"], one["tags"]) == (uid, None, ["solpi"])
    assert 39 <= one["schemaVersion"] <= 41
    assert "__inputs" not in one
    assert one["graphTooltip"] == 1
    assert one["description"]


@EVERY
def test_all_data_comes_from_the_chosen_source(uid: str) -> None:
    """Panels, queries, variables and annotations."""
    asking = [one for one in walked(COMMITTED[uid]) if "expr" in one or "targets" in one or "definition" in one]

    assert all(one["datasource"] == PROMETHEUS for one in asking)
    assert variables(uid)["datasource"] | {"type": "datasource", "query": "prometheus"} == variables(uid)["datasource"]


@EVERY
def test_its_variables_choose_any_number(uid: str) -> None:
    """As dashboard-linter asks: job and instance, labelled so, All as a regular expression."""
    chosen = {name: one for name, one in variables(uid).items() if name != "datasource"}

    assert {"job", "instance"} <= chosen.keys()
    for name, one in chosen.items():
        assert (one["label"], one["multi"], one["includeAll"], one["allValue"], one["refresh"]) == (
            name, True, True, ".+", 2,
        )  # fmt: skip


@EVERY
def test_it_uses_the_variables_that_it_has(uid: str) -> None:
    """A variable without a use misleads; a use without a variable is an error in Grafana."""
    texts = " ".join(
        one.get(key, "") for one in walked(COMMITTED[uid]) for key in ("expr", "definition") if isinstance(one, dict)
    )
    used = set(re.findall(r"\$(\w+)", texts)) - {"__rate_interval", "__range", "1"}

    assert used == variables(uid).keys() - {"datasource"}


@EVERY
def test_panels_lie_apart_on_the_grid(uid: str) -> None:
    """Within 24 columns, without overlap, each with an id of its own."""
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= COLUMNS and one["w"] > 0 for one in boxes(uid))
    assert all(apart(one, other) for one, other in combinations(boxes(uid), 2))
    ids = [one["id"] for one in walked(COMMITTED[uid]["panels"]) if "gridPos" in one]
    assert len(set(ids)) == len(ids)


@EVERY
def test_panels_explain_themselves(uid: str) -> None:
    """A title, a description that names a metric, a unit, and what it means when there is no data."""
    for one in panels(COMMITTED[uid]):
        assert one["title"], one
        assert re.search(r"`.*(solpi_|ALERTS|up)", one["description"]), one["title"]
        assert one["fieldConfig"]["defaults"]["unit"], one["title"]
        assert one["fieldConfig"]["defaults"]["noValue"], one["title"]


@EVERY
def test_texts_of_tiles_are_short(uid: str) -> None:
    """Longer titles are cut at their width, longer values are made too small to read."""
    for one in (one for one in panels(COMMITTED[uid]) if one["type"] == "stat"):
        defaults = one["fieldConfig"]["defaults"]
        states = [option["text"] for mapped in defaults["mappings"] if mapped["type"] == "value"
                  for option in mapped["options"].values()]  # fmt: skip
        assert max(map(len, (one["title"], defaults["noValue"], *states))) <= ROOM_IN_TILE, one["title"]


@EVERY
def test_panels_have_titles_of_their_own(uid: str) -> None:
    """Within a dashboard, so that one can speak of them; a tile may share its title with a graph."""
    titles = [one["title"] for one in panels(COMMITTED[uid]) if one["type"] != "stat"]

    assert len(set(titles)) == len(titles)


@EVERY
def test_it_begins_with_tiles(uid: str) -> None:
    """In one line; what follows them explains them."""
    top = [one for one in COMMITTED[uid]["panels"] if one["gridPos"]["y"] == 0]

    assert len(top) == 8
    assert {one["type"] for one in top} == {"stat"}


@EVERY
def test_queries_are_told_apart(uid: str) -> None:
    """By refId, within a panel."""
    for one in panels(COMMITTED[uid]):
        names = [target["refId"] for target in one["targets"]]
        assert names == sorted(set(names))


@EVERY
def test_alerts_are_marked_on_its_graphs(uid: str) -> None:
    """This exporter's, while they fire."""
    assert any(
        one["expr"].startswith('ALERTS{alertstate="firing", alertname=~"Solpi.*"')
        for one in COMMITTED[uid]["annotations"]["list"]
    )


@EVERY
def test_it_leads_to_the_others(uid: str) -> None:
    """By tag, with time range and variables."""
    (link,) = COMMITTED[uid]["links"]

    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == ("dashboards", ["solpi"], True, True)


def test_drill_downs_lead_to_dashboards_that_there_are() -> None:
    """With the data source, the jobs and the time range that were chosen."""
    urls = [one["url"] for one in walked(COMMITTED["solpi-fleet"]) if one.get("url")]

    assert {url.split("/")[2].split("?")[0] for url in urls} == COMMITTED.keys() - {"solpi-fleet"}
    for url in urls:
        assert "${__url_time_range}&${datasource:queryparam}&${job:queryparam}&var-instance=" in url


def test_a_line_takes_the_place_below_the_one_before() -> None:
    """Widths are equal unless they are given; ids count on."""
    parts = [Section("", (Line(({}, {}), 4),)), Section("more", (Line(({}, {}), 8, (18, 6)),))]

    assert [(one["id"], *one["gridPos"].values()) for one in placed(parts)] == [
        (1, 0, 0, 12, 4),
        (2, 12, 0, 12, 4),
        (3, 0, 4, 24, 1),
        (4, 0, 5, 18, 8),
        (5, 18, 5, 6, 8),
    ]


@pytest.mark.parametrize(
    ("width", "in_a_line", "figures"), [(24, 1, True), (12, 1, True), (8, 1, False), (24, 2, True), (24, 4, False)]
)
def test_a_narrow_legend_has_names_alone(width: int, in_a_line: int, figures: bool) -> None:
    """With last and largest values, those of three series would be cut; a repeated panel is a part as wide."""
    one = repeated(series("x", "", [], unit="s", empty="None"), "batch", in_a_line)
    (made,) = placed([Section("", (line(one, widths=(width,)),))])

    assert made["options"]["legend"]["calcs"] == (["lastNotNull", "max"] if figures else [])


def test_the_panels_of_a_closed_section_lie_within_its_heading() -> None:
    """As Grafana wants it: beside it they would be shown."""
    (heading,) = placed([Section("more", (Line(({},)),), collapsed=True)])

    assert heading["collapsed"]
    assert [one["id"] for one in heading["panels"]] == [2]
