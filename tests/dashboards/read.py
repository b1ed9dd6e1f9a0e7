"""What the tests of the dashboards look at: the committed files, their panels, their expressions, and those parsed."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql

from solpi_exporter.catalog import METRICS
from solpi_exporter.dashboards.files import DASHBOARDS
from solpi_exporter.metric import Kind, Metric
from solpi_exporter.rules.files import RECORDS

Json = dict[str, Any]

FOLDER = Path(__file__).parent.parent.parent / "grafana" / "dashboards"
COMMITTED: Mapping[str, Json] = {
    name.removesuffix(".json"): json.loads((FOLDER / name).read_text()) for name in DASHBOARDS
}

CATALOGUE: Mapping[str, Metric] = {
    name: metric
    for metric in METRICS
    for name in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind is Kind.HISTOGRAM
        else [metric.name]
    )
}

RECORDED = frozenset(record.name for record in RECORDS)

MACROS = {"$__rate_interval": "20s", "$__range": "60s"}  # seconds of a demo that is played fast


VARIABLE = re.compile(r"\$\{?(job|instance|server|gpu|batch)\}?")


@dataclass(frozen=True, slots=True)
class Asked:
    """One expression, and where it stands; `legend` is how its series are named."""

    dashboard: str
    title: str
    expr: str
    legend: str = ""

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.title}: {self.expr}"

    @property
    def filled(self) -> str:
        """The expression with all variables at All, as Prometheus gets it."""
        filled = self.expr
        for macro, value in MACROS.items():
            filled = filled.replace(macro, value)
        return VARIABLE.sub(".+", filled)

    @property
    def metrics(self) -> frozenset[str]:
        """The names that it asks for."""
        return frozenset(one.name for one in selectors(self.filled) if one.name is not None)


def panels(dashboard: Json) -> list[Json]:
    """Return all panels but headings, those within collapsed sections included."""
    top = dashboard["panels"]
    inner = [one for panel in top for one in panel.get("panels", [])]
    return [one for one in (*top, *inner) if one["type"] != "row"]


def _asked() -> Iterator[Asked]:
    for uid, dashboard in COMMITTED.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield Asked(uid, panel["title"], target["expr"], target["legendFormat"])
        for note in dashboard["annotations"]["list"]:
            yield Asked(uid, note["name"], note["expr"], note["titleFormat"] + note["textFormat"])


ASKED = tuple(_asked())


def _choices() -> Iterator[Asked]:
    for uid, dashboard in COMMITTED.items():
        for one in dashboard["templating"]["list"]:
            if values := re.fullmatch(r"label_values\((.+), (\w+)\)", one.get("definition", "")):
                yield Asked(uid, f"variable {one['name']}", values[1], f"{{{{{values[2]}}}}}")


# The series whose labels a variable offers.
CHOICES = tuple(_choices())


def selectors(expr: str) -> list[promql.VectorSelector]:
    """Return an expression's selectors; raises ValueError where it cannot be parsed."""
    return [one for one, _ in _visited(promql.parse(expr), "")]


def under_functions(expr: str) -> list[tuple[str, str]]:
    """Return (name, function) of every selector: the function whose argument it is, "" for none."""
    return [(one.name or "", function) for one, function in _visited(promql.parse(expr), "")]


def divisors(expr: str) -> list[object]:
    """Return what an expression divides by."""
    return list(_divisors(promql.parse(expr)))


def _divisors(node: object) -> Iterator[object]:
    match node:
        case promql.BinaryExpr():
            if str(node.op) == "/":
                yield node.rhs
            yield from _divisors(node.lhs)
            yield from _divisors(node.rhs)
        case promql.Call():
            for argument in node.args:
                yield from _divisors(argument)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from _divisors(node.expr)


def _visited(node: object, function: str) -> Iterator[tuple[promql.VectorSelector, str]]:
    """Yield the selectors below a node with the function right above them."""
    match node:
        case promql.VectorSelector():
            yield node, function
        case promql.MatrixSelector():
            yield node.vector_selector, function
        case promql.Call():
            for argument in node.args:
                yield from _visited(argument, node.func.name)
        case promql.BinaryExpr():
            yield from _visited(node.lhs, "")
            yield from _visited(node.rhs, "")
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from _visited(node.expr, "")
