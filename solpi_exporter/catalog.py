"""Every metric there is, gathered explicitly; the reference in docs/metrics.md is rendered from it."""

from collections.abc import Iterator, Mapping

from solpi_exporter import collector, derived, kept, placement, reloads
from solpi_exporter.engine import progress as log
from solpi_exporter.engine import quantities as engine
from solpi_exporter.gpu import reference as gpu
from solpi_exporter.host import source as host
from solpi_exporter.metric import Metric
from solpi_exporter.probe import pinned_quantities as baseline
from solpi_exporter.probe import quantities as probe

GPU = "GPU"
SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    (GPU, gpu.METRICS),
    ("Engine", engine.METRICS),
    ("The engine's own token", derived.METRICS),
    ("What belongs to whom", placement.METRICS),
    ("Log", log.METRICS),
    ("Host", host.METRICS),
    ("Probe", probe.METRICS),
    ("The probe's baseline", baseline.METRICS),
    ("The exporter itself", (*collector.METRICS, *kept.METRICS, *reloads.METRICS)),
)

METRICS: tuple[Metric, ...] = tuple(metric for _, metrics in SECTIONS for metric in metrics)

UNITS: Mapping[str, str] = {
    "seconds": "seconds",
    "bytes": "bytes",
    "joules": "joules",
    "watts": "watts",
    "celsius": "°C",
    "hertz": "hertz",
    "ratio": "0 to 1",
    "enabled": "0 or 1",
    "active": "0 or 1",
    "up": "0 or 1",
    "state": "0 or 1",
    "info": "1",
}
SCALES: Mapping[str, str] = {"solpi_gpu_performance_state": "0 to 15"}  # what the last word would tell wrong


def reference() -> str:
    """Return the reference of all metrics as Markdown tables."""
    return "\n".join(_lines()) + "\n"


def unit_of(metric: Metric) -> str:
    """Return the unit, which is the last word of a name but `_total`; what has none counts or numbers something."""
    return SCALES.get(metric.name) or UNITS.get(metric.name.removesuffix("_total").rpartition("_")[2], "")


def _lines() -> Iterator[str]:
    for title, metrics in SECTIONS:
        yield f"\n## {title}\n"
        yield from _gpu_rows() if title == GPU else _rows(metrics)


def _rows(metrics: tuple[Metric, ...]) -> Iterator[str]:
    yield "| metric | type | unit | labels | meaning |"
    yield "|---|---|---|---|---|"
    for metric in metrics:
        yield f"| {_name(metric)} | {metric.kind.value} | {unit_of(metric)} | {_labels(metric)} | {metric.help} |"


def _gpu_rows() -> Iterator[str]:
    """Yield the rows of the GPU half, with where each comes from."""
    yield "`gpu_instance` stands on a MIG instance's series only. Architectures are by NVIDIA's documentation.\n"
    yield "| metric | type | unit | labels | meaning | NVML | asked | since |"
    yield "|---|---|---|---|---|---|---|---|"
    for metric, source in gpu.provenance():
        yield (
            f"| {_name(metric)} | {metric.kind.value} | {unit_of(metric)} | {_labels(metric)} | {metric.help} "
            f"| {source.calls} | {source.tier} | {source.since} |"
        )


def _name(metric: Metric) -> str:
    return f"`{metric.name}`"


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)
