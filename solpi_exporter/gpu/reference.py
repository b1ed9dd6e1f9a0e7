"""Every metric of the GPU half, with where NVML has it, how often it is asked for, and since which architecture."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from solpi_exporter.gpu import events, reading, transfers, xid
from solpi_exporter.gpu.fields import FIELDS
from solpi_exporter.gpu.origins import Tier
from solpi_exporter.metric import Metric

TABLE = tuple(dict.fromkeys(field.metric for field in FIELDS))
METRICS = (
    reading.UP,
    reading.STATE,
    reading.INFO,
    *TABLE,
    *transfers.METRICS,
    reading.BUSY,
    reading.LOAD,
    reading.PROCESSES,
    *events.METRICS,
    reading.NVML_INFO,
    reading.PRESENT,
    reading.EXPECTED,
    reading.CUDA_DRIVER,
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Calls of NVML, how often they are made, and the first architecture that answers them."""

    calls: str
    tier: str
    since: str = "any"


ATTACHED = "once"
_SAMPLES = "nvmlDeviceGetSamples, else GPM metric 1, else nvmlDeviceGetUtilizationRates"
_OTHERS: Mapping[Metric, Provenance] = {
    reading.UP: Provenance("nvmlDeviceGetUUID", Tier.FAST.value),
    reading.STATE: Provenance("any", Tier.FAST.value),
    reading.INFO: Provenance("nvmlDeviceGetName, nvmlDeviceGetPciInfo, nvmlDeviceGetVbiosVersion", ATTACHED),
    reading.BUSY: Provenance(_SAMPLES, "every 10 s"),
    reading.LOAD: Provenance("nvmlDeviceGetSamples", "every 10 s"),
    reading.PROCESSES: Provenance("nvmlDeviceGetComputeRunningProcesses", Tier.MEAN.value),
    events.ERRORS: Provenance("nvmlEventSetWait", "at once"),
    events.LAST: Provenance("nvmlEventSetWait", "at once"),
    xid.INFO: Provenance("none", "never"),
    reading.NVML_INFO: Provenance("nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion", ATTACHED),
    reading.PRESENT: Provenance("nvmlDeviceGetCount", Tier.FAST.value),
    reading.EXPECTED: Provenance("none", Tier.FAST.value),
    reading.CUDA_DRIVER: Provenance("nvmlSystemGetCudaDriverVersion", ATTACHED),
}


def provenance() -> Iterator[tuple[Metric, Provenance]]:
    """Yield every metric in the order of METRICS with where it comes from."""
    table = {metric: _of_rows(metric) for metric in TABLE}
    moved = {one.metric: Provenance(f"{one.rate}, else {one.counter}", Tier.MEAN.value) for one in transfers.TRANSFERS}
    everything = {**table, **moved, **_OTHERS}
    for metric in METRICS:
        yield metric, everything[metric]


def _of_rows(metric: Metric) -> Provenance:
    rows = [field for field in FIELDS if field.metric is metric]
    calls = ", ".join(dict.fromkeys(str(row.origin) for row in rows))
    return Provenance(calls, rows[0].tier.value, rows[0].since)
