"""Every metric there is: the names are a contract."""

import re
from pathlib import Path

import pytest

from solpi_exporter.catalog import METRICS, reference, unit_of
from solpi_exporter.gpu import fields
from solpi_exporter.metric import Kind, Metric

UNITS = ("seconds", "bytes", "joules", "watts", "celsius", "hertz", "ratio", "tokens", "requests")
RESERVED_LABELS = {"instance", "job", "le", "quantile", "hostname", "pid", "pstate", "type"}
DOCS = Path(__file__).parent.parent / "docs" / "metrics.md"


def test_names_are_unique() -> None:
    """Two tables must not define one name."""
    names = [metric.name for metric in METRICS]

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    """Prefix, snake case, `_total` on counters and on nothing else, a help text that is a sentence, legal labels."""
    assert re.fullmatch(r"solpi_[a-z][a-z0-9_]*[a-z0-9]", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help.endswith(".")
    assert not RESERVED_LABELS & set(metric.labels)
    assert not re.search(r"percent|milli|mega|_ms|_mb|_mhz|_mib", metric.name)


def test_histograms_have_a_unit() -> None:
    """Their bounds are seconds, or shares of a whole."""
    assert all(metric.name.endswith(("_seconds", "_ratio")) for metric in METRICS if metric.kind is Kind.HISTOGRAM)


def test_a_performance_state_is_no_flag() -> None:
    """P0 to P15, though its name ends as those that are 0 or 1."""
    assert {unit_of(metric) for metric in METRICS if metric.name.endswith("_state")} == {"0 or 1", "0 to 15"}
    assert unit_of(fields.PERFORMANCE_STATE) == "0 to 15"


def test_the_reference_in_docs_is_current() -> None:
    """docs/metrics.md is `solpi-exporter metrics` under a title; `make docs` writes it."""
    assert DOCS.read_text() == "# Metrics\n" + reference()


def test_the_reference_lists_every_metric() -> None:
    """One row each."""
    rows = re.findall(r"^\| `(solpi_\w+)` \|", reference(), re.MULTILINE)

    assert rows == [metric.name for metric in METRICS]
