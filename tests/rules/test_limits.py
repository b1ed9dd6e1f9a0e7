"""The table of limits, and how limits get into expressions and texts."""

import re

import pytest

from solpi_exporter.rules.files import ALERTS
from solpi_exporter.rules.limits import LIMITS, PHRASES, UnknownLimit, chosen, filled

PLACE = re.compile(r"\$\{(\w+)")


def test_a_limit_can_be_changed() -> None:
    """The others stay."""
    assert chosen({"kv_usage": 0.9}) == {**chosen({}), "kv_usage": 0.9}


def test_a_limit_that_is_none_is_refused() -> None:
    """A misspelt name would change nothing, and nobody would know."""
    with pytest.raises(UnknownLimit, match="kv_usag"):
        chosen({"kv_usag": 0.9})


def test_a_text_shows_limits_as_people_read_them() -> None:
    """A share in per cent, a small one without an exponent, and what Prometheus fills in."""
    text = filled("${value:percent} of ${server}, limit ${a:percent} or ${a}", {"a": 0.0001})

    assert text == (
        "{{ $value | humanizePercentage }} of {{ $labels.server }} on {{ $labels.instance }}, limit 0.01% or 0.0001"
    )


def test_every_limit_is_used_and_every_place_is_filled() -> None:
    """In an expression, since one that stands in texts alone would limit nothing."""
    used = {name for alert in ALERTS for name in PLACE.findall(alert.expr)}
    told = {name for alert in ALERTS for name in PLACE.findall(alert.description)}

    assert used == {limit.name for limit in LIMITS}
    assert told <= used | {name.partition(":")[0] for name in PHRASES}


def test_an_alert_tells_the_limits_that_it_holds() -> None:
    """At three in the morning nobody looks them up; one of two or three stands for all."""
    for alert in ALERTS:
        limits = set(PLACE.findall(alert.expr))
        assert not limits or limits & set(PLACE.findall(alert.description)), alert.name
