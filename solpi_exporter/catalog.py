"""Every metric there is, gathered explicitly; the reference in docs/metrics.md is rendered from it."""

from collections.abc import Iterator

from solpi_exporter import collector, derived
from solpi_exporter.engine import reading as engine
from solpi_exporter.engine import source as log
from solpi_exporter.gpu import source as gpu
from solpi_exporter.metric import Metric
from solpi_exporter.probe import source as probe

SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("GPU", gpu.METRICS),
    ("Engine", engine.METRICS),
    ("The engine's own token", derived.METRICS),
    ("Log", log.METRICS),
    ("Probe", probe.METRICS),
    ("The exporter itself", collector.METRICS),
)

METRICS: tuple[Metric, ...] = tuple(metric for _, metrics in SECTIONS for metric in metrics)


def reference() -> str:
    """Return the reference of all metrics as Markdown tables."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for title, metrics in SECTIONS:
        yield f"\n## {title}\n"
        yield "| metric | type | labels | meaning |"
        yield "|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} |"
