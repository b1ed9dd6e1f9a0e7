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
