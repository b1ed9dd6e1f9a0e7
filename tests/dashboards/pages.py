"""Pages of hosts that the demo is not, for Prometheus to scrape beside it, so that every query can have an answer.

Golden files of recorded hosts; the probe's recorded cycles on an H200; and, invented, what no recording holds.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from solpi_exporter.catalog import METRICS
from solpi_exporter.metric import Distribution, Metric, Sample
from solpi_exporter.probe.baseline import Baseline, figures_of, fingerprint_of, over
from solpi_exporter.probe.pinned_quantities import BaselineReading
from solpi_exporter.probe.quantities import BatchReading, ConditionsReading, ProbeReading
from solpi_exporter.probe.result import verdict
from solpi_exporter.probe.surroundings import Surroundings
from tests.conftest import GOLDEN
from tests.families import Collected, families, text
from tests.probe.recorded import cycles

RECORDED = {
    "h200": "h200-nvml__recording.prom",
    "swap": "vllm-0.8.5__kv-pressure.log.prom",
    "offload": "vllm-0.24.0-h200__d-kv-offload.metrics.prom",
}
_GPU = ("0", "GPU-0")
INVENTED: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("solpi_nvml_info", 1.0, ("580.159.04", "13.580.159.04")),
    ("solpi_cuda_driver_version", 13.0, ()),
    ("solpi_xid_info", 1.0, ("79", "link", "restart_vm")),
    ("solpi_gpu_xid_errors_total", 1.0, (*_GPU, "", "79")),
    ("solpi_gpu_xid_last_timestamp_seconds", time.time(), (*_GPU, "", "79")),
    ("solpi_gpu_process_memory_bytes", 1e11, (*_GPU, "", "engine")),
    ("solpi_cuda_toolkit_version", 12.8, ("engine", "qwen")),
    ("solpi_host_cpu_governor_info", 1.0, ("powersave",)),
    ("solpi_host_cpu_frequency_hertz", 2e9, ()),
    ("solpi_host_gpu_numa_match", 1.0, _GPU),
    ("solpi_engine_cpu_throttled_seconds_total", 3.0, ("qwen",)),
    ("solpi_engine_run_delay_seconds_total", 5.0, ("qwen",)),
    ("solpi_engine_kv_transfer_failures_total", 0.0, ("qwen", "0")),
    ("solpi_engine_kv_fetch_requests", 2.0, ("qwen", "0", "waiting")),
    ("solpi_engine_spec_decode_acceptance_ratio", 0.7, ("qwen", "0")),
)


def pages() -> dict[str, str]:
    """Return every page by its host's name."""
    recorded = {host: (GOLDEN / name).read_text().replace(" CLOCK\n", " 1.0\n") for host, name in RECORDED.items()}
    metrics = {metric.name: metric for metric in METRICS}
    invented = [metrics[name].sample(value, *labels) for name, value, labels in INVENTED]
    return {**recorded, "probed": _page([*_probed(), *invented])}


def _probed() -> Iterator[Sample]:
    """Yield what the probe says of a quiet cycle on an H200, against a baseline of the others."""
    first, *others = [one for one in cycles("conditions") if one.tags["condition"].startswith("quiet")]
    figures = over([figures_of(one.costs, one.results) for one in others])
    around = Surroundings("570.1", 13.0, "2.11.0+cu130", "6.8", "performance", ecc=True, persistence=True)
    baseline = Baseline(fingerprint_of(first.identity, "AMD EPYC"), around, time.time(), figures)
    yield from BaselineReading(first.identity, baseline).samples()
    yield from ProbeReading(first.identity, (("success", 2),), (), time.time()).samples()
    yield from ConditionsReading(first.identity, first.costs, verdict(first.costs, first.results), 8.0).samples()
    for result in first.results:
        yield from BatchReading(first.identity, result).samples()


def _page(samples: list[Sample]) -> str:
    merged: dict[Metric, dict[tuple[str, ...], float | Distribution]] = {}
    for one in samples:
        merged.setdefault(one.metric, {})[one.labels] = one.value
    return text(Collected(families(merged)), openmetrics=False).decode()


@contextmanager
def serving_pages() -> Iterator[tuple[int, tuple[str, ...]]]:
    """Serve each page at /NAME until the block ends; yield the port and the names."""
    made = pages()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(made[self.path.strip("/")].encode())

        def log_message(self, *_: object) -> None:
            """Say nothing of scrapes."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, tuple(made)
        finally:
            server.shutdown()
            thread.join(5.0)
