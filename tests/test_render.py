"""Our text against prometheus_client's for the same samples, byte for byte, in both formats."""

import math
import random
import struct

import pytest

from solpi_exporter.catalog import METRICS
from solpi_exporter.metric import Distribution, Kind, Metric
from solpi_exporter.render import Renderer
from tests.families import Collected, Merged, families, text

PLAIN = Metric("solpi_test_value", "A gauge.", labels=("zone", "key"))
BARE = Metric("solpi_test_bare", "A gauge without labels.")
HISTOGRAM = Metric("solpi_test_seconds", "A histogram.", Kind.HISTOGRAM, ("zone", "key"))
SEEN = Distribution((1, 2.5, 1e-05, 1e7), (3, 5, 6, 7), 8, 1234567.5)

NASTY = ["\\", '"', "\n", '\\"\n\\n', "a b,c={}", "é, 界, 🙂", "\t\r\0", "# HELP", " "]
NUMBERS = [0, 0.0, -0.0, 1, -1, True, 0.1, 1 / 3, 1e-9, 5e-324, 999999.9999999999, 1e6, 1000001, -1e6, -123456789.5]
NUMBERS += [123456789.5, 1.5e11, 1e15, 9007199254740993, 1e16, 1.5e22, 1e100, 1.7976931348623157e308, 2**64, 10**300]
NUMBERS += [math.inf, -math.inf, math.nan, -math.nan]


@pytest.fixture(params=[False, True], ids=["text", "openmetrics"])
def openmetrics(request: pytest.FixtureRequest) -> bool:
    """Say which format."""
    return bool(request.param)


def theirs(merged: Merged, *, openmetrics: bool) -> bytes:
    """Return prometheus_client's text; the end of OpenMetrics is not the renderer's to write."""
    return text(Collected(families(merged)), openmetrics=openmetrics).removesuffix(b"# EOF\n")


def assert_same(merged: Merged, *, openmetrics: bool) -> None:
    renderer = Renderer()
    expected = theirs(merged, openmetrics=openmetrics)

    assert renderer.render(merged, openmetrics=openmetrics) == expected
    assert renderer.render(merged, openmetrics=openmetrics) == expected  # by what is remembered


def plausible(metric: Metric) -> dict[tuple[str, ...], float | Distribution]:
    """Return a few series of a metric."""
    chance = random.Random(metric.name)
    series: dict[tuple[str, ...], float | Distribution] = {}
    for number in range(3):
        labels = tuple(f"{name}-{number}" for name in metric.labels)
        count = chance.randrange(10**8)
        if metric.kind is Kind.HISTOGRAM:
            series[labels] = Distribution((0.001, 0.01, 0.1), (count // 3, count // 2, count), count, count * 0.004)
        else:
            series[labels] = count if metric.kind is Kind.COUNTER else chance.choice([0.0, 1.0, chance.random() * 1e9])
    return series


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_of_the_catalogue(metric: Metric, openmetrics: bool) -> None:
    """Heads, `_total`, labels by name, values."""
    assert_same({metric: plausible(metric)}, openmetrics=openmetrics)


def test_the_whole_catalogue_in_its_order(openmetrics: bool) -> None:
    """Families follow one another as they are given."""
    assert_same({metric: plausible(metric) for metric in reversed(METRICS)}, openmetrics=openmetrics)


@pytest.mark.parametrize("value", [*NASTY, ""])
def test_nasty_label_values(value: str, openmetrics: bool) -> None:
    """Escaped where they must be, and left out where they are empty, in plain metrics and in histograms."""
    labels = [(value, "x"), ("x", value), (value, value)]

    assert_same({PLAIN: dict.fromkeys(labels, 1.0), HISTOGRAM: dict.fromkeys(labels, SEEN)}, openmetrics=openmetrics)


@pytest.mark.parametrize("help_text", [*NASTY, ""])
def test_nasty_help_texts(help_text: str, openmetrics: bool) -> None:
    """OpenMetrics escapes quotes, the text format does not."""
    assert_same({Metric("solpi_test", help_text): {(): 1.0}}, openmetrics=openmetrics)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers(number: float, openmetrics: bool) -> None:
    """With an exponent from a million on, as Go writes them; what is no number by its name; integers as floats."""
    counted = Distribution((1.0,), (number,), number, number)

    assert_same({BARE: {(): number}, HISTOGRAM: {("", "x"): counted}}, openmetrics=openmetrics)


def test_any_number(openmetrics: bool) -> None:
    """Ten thousand patterns of 64 bits."""
    numbers = struct.iter_unpack("d", random.Random(1).randbytes(80_000))

    assert_same({PLAIN: {("", str(at)): one for at, (one,) in enumerate(numbers)}}, openmetrics=openmetrics)


def test_a_number_too_large_for_a_float_is_refused_as_it_is_there() -> None:
    """No text would be right."""
    with pytest.raises(OverflowError):
        Renderer().render({BARE: {(): 10**400}})
    with pytest.raises(OverflowError):
        theirs({BARE: {(): 10**400}}, openmetrics=False)


@pytest.mark.parametrize("labels", [(), ("aa",), ("zz",), ("zz", "aa"), ("lf", "ld")])
def test_histograms(labels: tuple[str, ...], openmetrics: bool) -> None:
    """Buckets, count, sum, with `le` in its place among the labels."""
    metric = Metric("solpi_test_seconds", "h", Kind.HISTOGRAM, labels)

    assert_same({metric: {tuple("x" for _ in labels): SEEN}}, openmetrics=openmetrics)


def test_bounds_are_written_as_floats_and_closed_with_inf() -> None:
    """So that the same bucket always has the same label; and no `_created`, which Prometheus would store."""
    lines = Renderer().render({HISTOGRAM: {("", "x"): Distribution((1, 2.5), (3, 5), 6, 9.5)}}).decode().splitlines()

    assert lines[2:] == [
        'solpi_test_seconds_bucket{key="x",le="1.0"} 3.0',
        'solpi_test_seconds_bucket{key="x",le="2.5"} 5.0',
        'solpi_test_seconds_bucket{key="x",le="+Inf"} 6.0',
        'solpi_test_seconds_count{key="x"} 6.0',
        'solpi_test_seconds_sum{key="x"} 9.5',
    ]


CHANGES: list[Merged] = [
    {PLAIN: {("", "x"): 1.0, ("", "y"): 2.0}, HISTOGRAM: {("", "x"): SEEN}},
    {PLAIN: {("", "x"): 1.5, ("", "y"): 2.0}, HISTOGRAM: {("", "x"): SEEN}},
    {PLAIN: {("", "y"): 1.0, ("", "x"): 2.0}},
    {BARE: {(): 7.0}, PLAIN: {("", "z"): 3.0, ("", "y"): 2.0}},
    {HISTOGRAM: {("", "x"): Distribution((1.0, 2.0), (1, 2), 3, 4.0)}, PLAIN: {}},
    {HISTOGRAM: {("", "x"): Distribution((1.0, 3.0), (1, 2), 3, 4.0), ("", "y"): SEEN}},
    {HISTOGRAM: {("", "y"): SEEN, ("", "x"): Distribution((1.0,), (1,), 3, 4.0)}},
    {},
]


def test_what_is_remembered_is_never_shown_in_the_wrong_place() -> None:
    """Series come, go, change places, and histograms their bounds; the formats take turns."""
    renderer = Renderer()
    for merged in (*CHANGES, *CHANGES):
        for openmetrics in (False, True):
            expected = theirs(merged, openmetrics=openmetrics)
            assert renderer.render(merged, openmetrics=openmetrics) == expected


def test_what_does_not_change_is_written_once() -> None:
    """Other values of the same series, in the other format too, find what their lines begin with."""
    renderer = Renderer()
    renderer.render({PLAIN: {("", "x"): 1.0}})
    starts = renderer._families[PLAIN]._starts

    renderer.render({PLAIN: {("", "x"): 2.0}}, openmetrics=True)

    assert renderer._families[PLAIN]._starts is starts


def test_a_series_that_vanished_is_forgotten() -> None:
    """A thousand processes that came and went leave nothing behind."""
    renderer = Renderer()
    renderer.render({PLAIN: {("", str(number)): 1.0 for number in range(1000)}, BARE: {(): 1.0}})

    renderer.render({PLAIN: {("", "x"): 1.0}})

    assert list(renderer._families) == [PLAIN]
    assert renderer._families[PLAIN]._starts == ['solpi_test_value{key="x"} ']
    assert renderer._families[PLAIN]._shape == ([("", "x")], [])
