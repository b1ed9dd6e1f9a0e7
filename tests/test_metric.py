"""The vocabulary of the trunk."""

import dataclasses

import pytest

from solpi_exporter.metric import Distribution, Kind, Metric, Sample, Tally


def test_sample_needs_a_value_for_each_label() -> None:
    """A sample whose label values do not fit its metric's label names is refused when it is made."""
    metric = Metric("solpi_x", "x", labels=("a", "b"))

    with pytest.raises(ValueError, match="solpi_x takes labels"):
        metric.sample(1.0, "only one")


@pytest.mark.parametrize("thing", [Metric("x", "x"), Metric("x", "x").sample(1.0), Distribution((), (), 0, 0)])
def test_values_are_frozen(thing: Metric | Sample | Distribution) -> None:
    """What travels through the trunk cannot be changed on its way, and carries no dict."""
    assert not hasattr(thing, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, dataclasses.fields(thing)[0].name, None)


def test_only_gauges_are_not_cumulative() -> None:
    """Totals stay true while their source fails; a gauge does not."""
    assert [kind for kind in Kind if not kind.cumulative] == [Kind.GAUGE]


def test_tally_counts_bounds_inclusively() -> None:
    """A value on a bound counts into that bound's bucket, as Prometheus' `le` says."""
    tally = Tally((1.0, 2.0))

    tally.observe([0.5, 1.0, 1.5, 2.0, 3.0])

    assert tally.distribution() == Distribution((1.0, 2.0), (2, 4), 5, 8.0)


def test_tally_keeps_counting() -> None:
    """Two observations add up; the distribution handed out before does not change."""
    tally = Tally((1.0,))
    tally.observe([0.5])
    before = tally.distribution()

    tally.observe([0.5, 7.0])

    assert before == Distribution((1.0,), (1,), 1, 0.5)
    assert tally.distribution() == Distribution((1.0,), (2,), 3, 8.0)


SEEN = Distribution((0.01, 0.02, 0.04), (10, 90, 100), 100, 1.5)


@pytest.mark.parametrize(
    ("share", "value"), [(0.05, 0.005), (0.1, 0.01), (0.5, 0.015), (0.9, 0.02), (0.99, 0.038), (1.0, 0.04)]
)
def test_a_quantile_lies_in_proportion_within_its_bucket(share: float, value: float) -> None:
    """The first bucket begins at 0, as for Prometheus' histogram_quantile()."""
    assert SEEN.quantile(share) == pytest.approx(value)


def test_a_quantile_above_the_last_bound_is_that_bound() -> None:
    """Nothing more is known of it."""
    assert Distribution((0.01,), (1,), 100, 9.0).quantile(0.5) == 0.01


@pytest.mark.parametrize("empty", [Distribution((0.01,), (0,), 0, 0.0), Distribution((), (), 7, 1.0)])
def test_what_was_not_observed_has_no_quantile(empty: Distribution) -> None:
    """Neither without values nor without buckets; it is not 0."""
    assert empty.quantile(0.5) is None


def test_what_came_between_two_states_is_a_distribution() -> None:
    """Bucket by bucket."""
    later = Distribution(SEEN.bounds, (10, 95, 110), 111, 2.0)

    assert later.since(SEEN) == Distribution(SEEN.bounds, (0, 5, 10), 11, 0.5)


@pytest.mark.parametrize(
    "other",
    [Distribution((0.01, 0.02, 0.05), (10, 90, 100), 100, 1.5), Distribution(SEEN.bounds, (11, 90, 100), 100, 1.5)],
    ids=["other bounds", "a bucket that was fuller"],
)
def test_what_is_no_earlier_state_gives_no_difference(other: Distribution) -> None:
    """Of another histogram, or of one that began anew."""
    assert SEEN.since(other) is None
