"""Every query of the committed dashboards, parsed: it asks for what there is, and as its kind wants to be asked."""

import re

import pytest

from solpi_exporter.catalog import METRICS
from solpi_exporter.dashboards.queries import promql, query_buckets
from solpi_exporter.metric import Kind
from tests.dashboards.read import (
    ASKED,
    CATALOGUE,
    CHOICES,
    COMMITTED,
    RECORDED,
    Asked,
    divisors,
    panels,
    selectors,
    under_functions,
)

FOREIGN = {"ALERTS", "up"}  # Prometheus' own
LEVELS = {  # counters of which the total itself is told, not how it rose
    "solpi_gpu_ecc_errors_total": "the GPU keeps it: an error from before the exporter's start counts",
    "solpi_gpu_row_remaps_total": "the same",
    "solpi_gpu_xid_errors_total": "a code that is seen first is born at 1, which no increase shows",
}
TARGET_LABELS = {"job", "instance"}
RATES = {"rate", "increase"}
NAME = re.compile(r"(?:\w+:)?\bsolpi_\w+(?::\w+)?")


def cumulative(name: str) -> bool:
    return CATALOGUE[name].kind is not Kind.GAUGE


@pytest.mark.parametrize("one", [*ASKED, *CHOICES], ids=str)
def test_it_asks_for_metrics_that_there_are(one: Asked) -> None:
    """In the catalogue, recorded by a rule, or Prometheus' own."""
    assert one.metrics <= CATALOGUE.keys() | RECORDED | FOREIGN


@pytest.mark.parametrize("one", [*ASKED, *CHOICES], ids=str)
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


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_it_divides_by_nothing_that_is_zero(one: Asked) -> None:
    """The divisor is filtered, lest an idle server is shown as NaN; a record is absent while nothing is counted."""
    for divisor in divisors(one.filled):
        names = {str(selector.name) for selector in selectors(str(divisor))}
        assert re.fullmatch(r"\(.* > 0\)", str(divisor), re.DOTALL) or names <= RECORDED, divisor


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_variable_offers_a_label_that_its_series_has(choice: Asked) -> None:
    """Else it is empty, and with it every panel."""
    (name,) = choice.metrics

    assert choice.legend.strip("{}") in {*CATALOGUE[name].labels, *TARGET_LABELS}


@pytest.mark.parametrize("uid", COMMITTED)
def test_every_variable_was_looked_at(uid: str) -> None:
    """But for the data source, whose values are no labels."""
    variables = {one["name"] for one in COMMITTED[uid]["templating"]["list"]}

    assert {f"variable {name}" for name in variables - {"datasource"}} == {
        one.title for one in CHOICES if one.dashboard == uid
    }


@pytest.mark.parametrize("uid", COMMITTED)
def test_a_description_names_metrics_that_there_are(uid: str) -> None:
    """A name that was changed would be searched for in vain."""
    known = {metric.name for metric in METRICS} | RECORDED

    for one in panels(COMMITTED[uid]):
        assert set(NAME.findall(one["description"])) <= known, one["title"]


@pytest.mark.parametrize("uid", COMMITTED)
def test_a_share_of_the_time_ends_at_the_whole(uid: str) -> None:
    """A rate over scrapes comes out above it, where a counter is read at other instants."""
    for one in panels(COMMITTED[uid]):
        if one["fieldConfig"]["defaults"]["unit"] == "percentunit":
            for target in one["targets"]:
                assert not re.search(r"(?<!clamp_max\()\brate\((?!\w+_bucket\{)", target["expr"]), target["expr"]


def test_words_stand_for_matchers_and_labels() -> None:
    """Each as a whole word."""
    assert promql("sum by (EACH_HOST, le) (x{HOST, y='HOSTS'})") == (
        'sum by (job, instance, le) (x{job=~"$job", instance=~"$instance", y=\'HOSTS\'})'
    )


def test_buckets_are_asked_for_as_a_heatmap() -> None:
    """Without which Grafana shows them as lines."""
    assert query_buckets("x")["format"] == "heatmap"
