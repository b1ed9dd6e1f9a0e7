"""Every query of the committed dashboards, parsed: it asks for what there is, and as its kind wants to be asked."""

import re

import pytest

from solpi_exporter.dashboards.queries import HOST, quantile, query_buckets, select, share
from solpi_exporter.metric import Kind
from tests.dashboards.read import ASKED, CATALOGUE, RECORDED, Asked, selectors, under_functions

FOREIGN = {"ALERTS", "up"}  # Prometheus' own
LEVELS = {  # counters of which the total itself is told, not how it rose
    "solpi_gpu_ecc_errors_total": "the GPU keeps it: an error from before the exporter's start counts",
    "solpi_gpu_row_remaps_total": "the same",
    "solpi_gpu_xid_errors_total": "a code that is seen first is born at 1, which no increase shows",
}
TARGET_LABELS = {"job", "instance"}
RATES = {"rate", "increase"}


def cumulative(name: str) -> bool:
    return CATALOGUE[name].kind is not Kind.GAUGE


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_it_asks_for_metrics_that_there_are(one: Asked) -> None:
    """In the catalogue, recorded by a rule, or Prometheus' own."""
    assert one.metrics <= CATALOGUE.keys() | RECORDED | FOREIGN


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_it_selects_by_labels_that_a_metric_has(one: Asked) -> None:
    """A matcher of another label would select nothing, or everything."""
    for selector in selectors(one.filled):
        if selector.name is not None and selector.name in CATALOGUE:
            labels = {*CATALOGUE[selector.name].labels, *TARGET_LABELS}
            assert {matcher.name for matcher in selector.matchers.matchers} <= labels, selector


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_it_is_bound_to_the_chosen_hosts(one: Asked) -> None:
    """Each of its selectors, but for what is usual in the whole fleet."""
    for selector in selectors(one.filled):
        names = {matcher.name for matcher in selector.matchers.matchers}
        assert names >= TARGET_LABELS or str(selector.name).startswith("model:"), selector


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_it_takes_the_rate_of_counters_and_of_nothing_else(one: Asked) -> None:
    """Raw totals say when a daemon was started; rates of gauges say nothing."""
    for name, function in under_functions(one.filled):
        if name in CATALOGUE and name not in LEVELS:
            assert (function in RATES) == cumulative(name), f"{function}({name})"


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_its_windows_fit_the_scrape_interval(one: Asked) -> None:
    """Rates over $__rate_interval; totals over what is shown, or over the day that a title tells of."""
    assert set(re.findall(r"rate\(\w+\{[^}]*\}\[([^]]+)\]", one.expr)) <= {"$__rate_interval"}
    assert set(re.findall(r"\[([^]]+)\]", one.expr)) <= {"$__rate_interval", "$__range", "1d"}


def test_a_quotient_of_nothing_is_absent() -> None:
    """The whole is filtered, lest an idle server is shown as NaN."""
    assert share("a", "b") == "a / (b > 0)"


def test_a_selector_carries_its_scope_and_what_is_added() -> None:
    """In that order."""
    assert select("up", HOST, 'x="1"') == 'up{job=~"$job", instance=~"$instance", x="1"}'


def test_a_quantile_keeps_its_buckets_apart() -> None:
    """By `le`, and by what it is asked for."""
    assert quantile(0.99, "h", "a", "job").startswith("histogram_quantile(0.99, sum by (job, le) (rate(h_bucket{a}[")


def test_buckets_are_asked_for_as_a_heatmap() -> None:
    """Without which Grafana shows them as lines."""
    assert query_buckets("x")["format"] == "heatmap"
