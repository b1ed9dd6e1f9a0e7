"""What Grafana would draw: a dashboard's file and a Prometheus become panels with frames, in plain data.

    dashboard, Prometheus  ->  drawn  ->  grafana/render (Grafana's components, in Chromium)

Only what our dashboards use: field overrides by name and by pattern, a panel repeated for each value of a variable, the
transformations of tables and of bars by category.
"""

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.http_client import request

Json = dict[str, Any]
Ask = Callable[[str, Mapping[str, str]], list[Json]]  # a path of Prometheus' API, and parameters; gives its result

VARIABLE = re.compile(r"\$\{?(\w+)\}?")
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
POINTS = 240  # in a line
CELL_HEIGHT, GAP = 30, 8  # Grafana's, in pixels


@dataclass(frozen=True, slots=True)
class Shown:
    """The time that is shown, in Unix seconds, and what each variable chooses."""

    start: float
    end: float
    rate_interval: str
    choices: Mapping[str, Sequence[str]]

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return (self.end - self.start) / POINTS

    def filled(self, text: str, one: Mapping[str, str]) -> str:
        """Return a text with variables replaced: those of `one` by one value, the others by whatever there is."""
        macros = {"__rate_interval": self.rate_interval, "__range": f"{self.end - self.start:.0f}s"}
        known = {**dict.fromkeys(self.choices, ".+"), **macros, **one}
        return VARIABLE.sub(lambda found: known.get(found[1], found[0]), text)


def prometheus(port: int) -> Ask:
    """Return what asks a Prometheus on loopback."""

    def ask(path: str, parameters: Mapping[str, str]) -> list[Json]:
        answer = request(port, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        assert answer.status == 200, answer.text
        result: list[Json] = json.loads(answer.body)["data"]["result"]
        return result

    return ask


def drawn(dashboard: Json, shown: Shown, ask: Ask) -> Iterator[Json]:
    """Yield what is seen of a dashboard, from top to bottom: headings and panels with their frames."""
    moved = 0
    for panel in sorted(dashboard["panels"], key=lambda one: (one["gridPos"]["y"], one["gridPos"]["x"])):
        copies = list(_repeated(panel, shown.choices))
        for copy, one in copies:
            place = {**copy["gridPos"], "y": copy["gridPos"]["y"] + moved}
            yield {
                "kind": copy["type"],
                "title": shown.filled(copy["title"], one),
                "place": place,
                "options": copy.get("options", {}),
                "empty": copy.get("fieldConfig", {}).get("defaults", {}).get("noValue", ""),
                "frames": [] if copy["type"] == "row" else list(_frames(copy, shown, one, ask)),
            }
        moved += copies[-1][0]["gridPos"]["y"] - panel["gridPos"]["y"]


def _repeated(panel: Json, choices: Mapping[str, Sequence[str]]) -> Iterator[tuple[Json, dict[str, str]]]:
    """Yield a panel, or a copy for each value of its variable, with where it stands."""
    values = choices.get(panel.get("repeat", ""), ())
    if not values:
        yield panel, {}
        return
    in_a_line = min(panel["maxPerRow"], len(values))
    place = panel["gridPos"]
    for number, value in enumerate(values):
        line, column = divmod(number, in_a_line)
        width = 24 // in_a_line
        at = {"x": column * width, "y": place["y"] + line * place["h"], "w": width, "h": place["h"]}
        yield {**panel, "gridPos": at}, {panel["repeat"]: value}


def _frames(panel: Json, shown: Shown, one: Mapping[str, str], ask: Ask) -> Iterator[Json]:
    config = panel["fieldConfig"]
    if panel["type"] in ("table", "barchart"):
        answers = [_now(target, shown, one, ask) for target in panel["targets"]]
        frame = _matrix(panel, answers[0]) if panel["type"] == "barchart" else _table(panel, answers)
        if frame[0]["values"]:
            yield {"fields": [{**field, "config": configured(config, field["name"])} for field in frame]}
        return
    for target in panel["targets"]:
        for series in _range(target, shown, one, ask):
            name = legend(target["legendFormat"], series["metric"], target["expr"])
            times, values = _points(series["values"], shown)
            yield {
                "name": name,
                "fields": [
                    {"name": "Time", "type": "time", "values": times, "config": {}},
                    {"name": name, "type": "number", "values": values, "config": configured(config, name)},
                ],
            }


def _range(target: Json, shown: Shown, one: Mapping[str, str], ask: Ask) -> list[Json]:
    times = {"start": f"{shown.start}", "end": f"{shown.end}", "step": f"{shown.step}"}
    return ask("query_range", {"query": shown.filled(target["expr"], one), **times})


def _now(target: Json, shown: Shown, one: Mapping[str, str], ask: Ask) -> list[Json]:
    return ask("query", {"query": shown.filled(target["expr"], one), "time": f"{shown.end}"})


def _points(values: Sequence[tuple[float, str]], shown: Shown) -> tuple[list[float], list[float | None]]:
    """Return a point for each step, in milliseconds, None where there is none: a line has gaps."""
    known = {round((moment - shown.start) / shown.step): number(value) for moment, value in values}
    times = [1000 * (shown.start + index * shown.step) for index in range(POINTS + 1)]
    return times, [known.get(index) for index in range(POINTS + 1)]


def number(value: str) -> float | None:
    """Return a value of Prometheus; None for NaN and infinities, which JSON has not."""
    return None if value in ("NaN", "+Inf", "-Inf") else float(value)


def legend(form: str, labels: Mapping[str, str], expr: str) -> str:
    """Return how a series is called."""
    if form == "__auto":
        return labels.get("__name__", expr)
    return LEGEND.sub(lambda found: labels.get(found[1], ""), form).strip()


def configured(config: Json, name: str) -> Json:
    """Return a field's configuration: the defaults, with the overrides whose matcher takes its name."""
    made: Json = json.loads(json.dumps(config["defaults"]))
    for override in config["overrides"]:
        if _matches(override["matcher"], name):
            for one in override["properties"]:
                _put(made, one["id"].split("."), one["value"])
    return made


def _matches(matcher: Json, name: str) -> bool:
    if matcher["id"] == "byName":
        return bool(matcher["options"] == name)
    pattern = matcher["options"].strip("/")
    return re.search(pattern, name) is not None


def _put(tree: Json, path: Sequence[str], value: object) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _table(panel: Json, answers: Sequence[Sequence[Json]]) -> list[Json]:
    """Return the columns of a table: rows joined on the labels that all have, the columns that are named, sorted."""
    organize = next(one["options"] for one in panel["transformations"] if one["id"] == "organize")
    names: Mapping[str, str] = organize["renameByName"]
    labels = [name for name in names if not name.startswith("Value")]
    known = [set().union(*(series["metric"] for series in answer)) for answer in answers if answer]
    common = [label for label in labels if all(label in one for one in known)]
    found: list[Json] = []
    for index, answer in enumerate(answers):
        column = f"Value #{chr(ord('A') + index)}" if len(answers) > 1 else "Value"
        for series in answer:
            told = {label: series["metric"][label] for label in labels if label in series["metric"]}
            key = [told.get(label) for label in common]
            same = (row for row in found if column not in row and [row.get(label) for label in common] == key)
            row = next(same, None)
            if row is None:
                row = {}
                found.append(row)
            row |= {**told, column: number(series["value"][1])}
    titles = {title: name for name, title in names.items()}
    for sort in reversed(panel["options"]["sortBy"]):
        found.sort(key=lambda row: row.get(titles[sort["displayName"]]) or 0.0, reverse=sort["desc"])
    return [
        {
            "name": title,
            "type": "string" if name in labels else "number",
            "values": [row.get(name) for row in found],
        }
        for name, title in names.items()
    ]


def _matrix(panel: Json, answer: Sequence[Json]) -> list[Json]:
    """Return a column for each part of a bar, a row for each category."""
    options = next(one["options"] for one in panel["transformations"] if one["id"] == "groupingToMatrix")
    category, part = options["rowField"], options["columnField"]
    values = {(one["metric"][category], one["metric"][part]): number(one["value"][1]) for one in answer}
    categories = sorted({key for key, _ in values}, key=float)
    parts = dict.fromkeys(one["metric"][part] for one in answer)
    first = {"name": panel["options"]["xField"], "type": "string", "values": categories}
    return [
        first,
        *(
            {"name": name, "type": "number", "values": [values.get((key, name)) for key in categories]}
            for name in parts
        ),
    ]
