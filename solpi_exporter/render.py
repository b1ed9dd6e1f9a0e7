"""Writes merged samples in Prometheus' text format 0.0.4 or in OpenMetrics 1.0.0, between collector and exposition.

It stands beside prometheus_client, which writes the same bytes, for speed alone: that checks and escapes each label of
each series at each scrape, and takes 5 times as long in text, 7 to 9 in OpenMetrics (`python -m benchmarks.render`).
Here everything before a line's value is written once, and again when the metric's series change. Names are taken to be
as the catalogue's are: legal, with `_total` on counters and no label `le`.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import cast

from solpi_exporter.metric import Distribution, Kind, Metric

Labels = tuple[str, ...]
Bounds = tuple[float, ...]
Series = Mapping[Labels, float | Distribution]

_NOT_FINITE = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


class Renderer:
    """Writes samples by metric. What was not in the last rendering is forgotten. Not for two threads at once."""

    def __init__(self) -> None:
        self._families: dict[Metric, _Family] = {}

    def render(self, merged: Mapping[Metric, Series], *, openmetrics: bool = False) -> bytes:
        """Return all metrics in the order given; the `# EOF` that ends OpenMetrics is the caller's."""
        self._families = {metric: self._families.get(metric) or _Family(metric) for metric in merged}
        parts: list[str] = []
        for metric, series in merged.items():
            family = self._families[metric]
            parts.append(family.openmetrics_head if openmetrics else family.text_head)
            parts += family.lines(series)
        return "".join(parts).encode()


class _Family:
    """One metric's heads, and what its lines began with in the last rendering: everything but the value."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._shape: tuple[list[Labels], list[Bounds]] = [], []
        self._starts: list[str] = []
        help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        self.text_head = _head(metric.name, help_text, metric.kind)
        base = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
        self.openmetrics_head = _head(base, help_text.replace('"', r"\""), metric.kind)

    def lines(self, series: Series) -> list[str]:
        """Return the lines of all series."""
        if self._metric.kind is Kind.HISTOGRAM:
            bounds, numbers = _spread(series)
        else:
            bounds, numbers = [], cast(Iterable[float], series.values())
        shape = list(series), bounds
        if shape != self._shape:
            self._shape, self._starts = shape, list(_starts(self._metric, *shape))
        return [
            f"{start}{repr(float(number)) if -inf < number < 1e6 else _large(number)}\n"  # a call each would cost 5 %
            for start, number in zip(self._starts, numbers, strict=True)
        ]


def _head(name: str, help_text: str, kind: Kind) -> str:
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind.value}\n"


def _spread(series: Series) -> tuple[list[Bounds], Iterable[float]]:
    """Return the bounds of each distribution, and the numbers of all in the order of their lines."""
    distributions = [cast(Distribution, value) for value in series.values()]
    numbers = [number for one in distributions for number in (*one.counts, one.count, one.count, one.sum)]
    return [one.bounds for one in distributions], numbers


def _starts(metric: Metric, labels: list[Labels], bounds: list[Bounds]) -> Iterator[str]:
    if metric.kind is not Kind.HISTOGRAM:
        for values in labels:
            yield _start(metric.name, _pairs(metric, values))
        return
    for values, limits in zip(labels, bounds, strict=True):
        pairs = _pairs(metric, values)
        for limit in (*map(str, map(float, limits)), "+Inf"):
            yield _start(f"{metric.name}_bucket", [*pairs, ("le", limit)])
        yield _start(f"{metric.name}_count", pairs)
        yield _start(f"{metric.name}_sum", pairs)


def _pairs(metric: Metric, labels: Labels) -> list[tuple[str, str]]:
    """Name the values. A label without one is left out, the same to Prometheus: most GPUs have no `gpu_instance`."""
    return [(name, value) for name, value in zip(metric.labels, labels, strict=True) if value]


def _start(name: str, pairs: list[tuple[str, str]]) -> str:
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(pairs))
    return f"{name}{{{labels}}} " if labels else f"{name} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _large(value: float) -> str:
    """Write what is not below a million, where Go takes to exponents sooner than Python, or what is no number."""
    text = repr(float(value))
    dot = text.find(".")
    if dot < 7:
        return _NOT_FINITE.get(text, text)
    digits = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
    return f"{digits}e+{dot - 1:02d}"
