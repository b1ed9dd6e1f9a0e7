"""The reference for our renderer: the same samples as prometheus_client's families, written by prometheus_client."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from solpi_exporter.metric import Distribution, Kind, Metric

Merged = Mapping[Metric, Mapping[tuple[str, ...], float | Distribution]]

_KINDS = {Kind.GAUGE: GaugeMetricFamily, Kind.COUNTER: CounterMetricFamily, Kind.HISTOGRAM: HistogramMetricFamily}


class Collected(Collector):
    """Families that are given, where prometheus_client wants something to collect from."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Family]:
        """Return the families."""
        return self._families


def families(merged: Merged) -> Iterator[Family]:
    """Yield one family a metric, without labels that have no value."""
    for metric, series in merged.items():
        family: Family = _KINDS[metric.kind](metric.name, metric.help)
        for values, value in series.items():
            labels = {name: text for name, text in zip(metric.labels, values, strict=True) if text}
            if isinstance(value, Distribution):
                _add_histogram(family, labels, value)
            else:
                family.add_sample(metric.name, labels, value)
        yield family


def text(collected: Collected, *, openmetrics: bool) -> bytes:
    """Return what prometheus_client writes."""
    if openmetrics:
        return bytes(generate_openmetrics(collected))  # type: ignore[no-untyped-call]
    return generate_latest(collected)


def _add_histogram(family: Family, labels: dict[str, str], value: Distribution) -> None:
    for bound, count in zip((*map(float, value.bounds), "+Inf"), (*value.counts, value.count), strict=True):
        family.add_sample(f"{family.name}_bucket", {**labels, "le": str(bound)}, count)
    family.add_sample(f"{family.name}_count", labels, value.count)
    family.add_sample(f"{family.name}_sum", labels, value.sum)
