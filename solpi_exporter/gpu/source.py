"""Reads every GPU on each poll: the table's rows, its identity, and the busy seconds integrated between polls.

One GPU that fails loses its own readings and nobody else's.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from solpi_exporter.clock import Clock
from solpi_exporter.gpu.driver import Driver, DriverFailed, GpuLost, Unavailable
from solpi_exporter.gpu.fields import FIELDS, GPU, UTILIZATION
from solpi_exporter.metric import Kind, Metric, Sample

UP = Metric("solpi_gpu_up", "1 if the GPU answered in the last poll, 0 if it did once and is lost.", labels=GPU)
INFO = Metric(
    "solpi_gpu_info",
    "Constant 1; names the GPU (nvmlDeviceGetName, PCI bus id, VBIOS version).",
    labels=(*GPU, "model", "pci_bus_id", "vbios"),
)
BUSY = Metric(
    "solpi_gpu_busy_seconds_total",
    "Seconds in which any kernel ran, integrated from the utilisation between polls.",
    Kind.COUNTER,
    GPU,
)
NVML_INFO = Metric(
    "solpi_nvml_info", "Constant 1; versions of driver and NVML library.", labels=("driver_version", "nvml_version")
)
PRESENT = Metric("solpi_gpus_present", "GPUs that NVML lists (nvmlDeviceGetCount).")
CUDA_DRIVER = Metric(
    "solpi_cuda_driver_version",
    "Newest CUDA version that the driver supports, as major.minor (nvmlSystemGetCudaDriverVersion).",
)

LONGEST_POLLS = 3  # intervals between two polls over which utilisation is still integrated

METRICS = (UP, INFO, *dict.fromkeys(field.metric for field in FIELDS), BUSY, NVML_INFO, PRESENT, CUDA_DRIVER)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one instant; `rows` holds what the table yielded. A lost GPU has no rows.

    `busy_seconds` is None where utilisation was never given; `gaps` counts the stretches that it leaves out.
    """

    index: int
    uuid: str
    up: bool
    busy_seconds: float | None
    gaps: int = 0
    info: Sample | None = None
    rows: tuple[Sample, ...] = ()

    def samples(self) -> Iterator[Sample]:
        """Yield the GPU's state, its rows and its busy seconds."""
        labels = (str(self.index), self.uuid)
        yield UP.sample(float(self.up), *labels)
        if self.info is not None:
            yield self.info
        yield from self.rows
        if self.busy_seconds is not None:
            yield BUSY.sample(self.busy_seconds, *labels)


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """What the driver says of itself; versions that it does not tell are None."""

    present: int
    driver_version: str | None
    nvml_version: str | None
    cuda_version: float | None

    def samples(self) -> Iterator[Sample]:
        """Yield count and versions."""
        yield PRESENT.sample(float(self.present))
        if self.driver_version is not None:
            yield NVML_INFO.sample(1.0, self.driver_version, self.nvml_version or "")
        if self.cuda_version is not None:
            yield CUDA_DRIVER.sample(self.cuda_version)


@dataclass(slots=True)
class _Busy:
    """Integrates one GPU's utilisation by the trapezoid rule.

    A stretch longer than `longest`, or with no utilisation at an end, counts as nothing and as a gap.
    """

    longest: float
    index: int = 0
    seconds: float | None = None
    gaps: int = 0
    time: float = 0.0
    utilization: float | None = None

    def advance(self, time: float, utilization: float | None) -> None:
        known = utilization is not None and self.utilization is not None
        if known and time - self.time <= self.longest:
            assert utilization is not None
            assert self.utilization is not None
            self.seconds = (self.seconds or 0.0) + (time - self.time) * (utilization + self.utilization) / 2
        elif self.seconds is not None:
            self.gaps += 1
        elif utilization is not None:
            self.seconds = 0.0
        self.time, self.utilization = time, utilization

    def reading(self, uuid: str, *, info: Sample | None = None, rows: tuple[Sample, ...] = ()) -> GpuReading:
        return GpuReading(self.index, uuid, info is not None, self.seconds, self.gaps, info, rows)


class GpuSource:
    """All GPUs of the host, in NVML's order."""

    name = "gpu"

    def __init__(self, driver: Driver, clock: Clock, interval: float, timeout: float) -> None:
        self.interval = interval
        self.timeout = timeout
        self._longest = max(LONGEST_POLLS * interval, interval + timeout)  # a poll may lawfully take its time-out
        self._driver = driver
        self._clock = clock
        self._connected = False
        self._busy: dict[str, _Busy] = {}

    def poll(self) -> list[GpuReading | NvmlReading]:
        """Read the driver and every GPU; raise DriverAbsent or DriverFailed when no GPU can be asked."""
        if not self._connected:
            self._driver.connect()
            self._connected = True
        try:
            nvml = self._read_driver()
            gpus = {gpu.uuid: gpu for gpu in map(self._read_gpu, range(nvml.present)) if gpu is not None}
        except DriverFailed:
            self._driver.close()  # the handles of a driver that comes back would be of the one that went
            self._connected = False
            raise
        return [nvml, *gpus.values(), *self._lost(gpus.keys())]

    def close(self) -> None:
        """Detach from the driver."""
        if self._connected:
            self._driver.close()
            self._connected = False

    def _read_driver(self) -> NvmlReading:
        cuda = self._ask("nvmlSystemGetCudaDriverVersion")
        return NvmlReading(
            present=self._count(),
            driver_version=self._ask("nvmlSystemGetDriverVersion"),
            nvml_version=self._ask("nvmlSystemGetNVMLVersion"),
            cuda_version=None if cuda is None else cuda // 1000 + cuda % 1000 / 100,
        )

    def _count(self) -> int:
        try:
            return int(self._driver.query("nvmlDeviceGetCount"))
        except Unavailable as error:
            raise DriverFailed(f"the driver does not say how many GPUs there are: {error}") from error

    def _read_gpu(self, index: int) -> GpuReading | None:
        """Read one GPU; None for one that does not even tell its UUID, without which no series could be named."""
        try:
            uuid = self._driver.query_gpu(index, "nvmlDeviceGetUUID")
            rows = tuple(self._rows(index, uuid))
            info = self._info(index, uuid)
        except (GpuLost, Unavailable):
            return None
        busy = self._busy.setdefault(uuid, _Busy(self._longest))
        busy.index = index
        busy.advance(self._clock.monotonic(), _value_of(UTILIZATION, rows))
        return busy.reading(uuid, info=info, rows=rows)

    def _lost(self, read: Collection[str]) -> Iterator[GpuReading]:
        """Yield every GPU that answered once and did not now, though it may have left NVML's list."""
        for uuid, busy in self._busy.items():
            if uuid not in read:
                busy.advance(self._clock.monotonic(), None)
                yield busy.reading(uuid)

    def _rows(self, index: int, uuid: str) -> Iterator[Sample]:
        """Yield every row of the table that this GPU answers, asking each call once."""
        answers: dict[tuple[str, tuple[int, ...]], Any] = {}
        for field in FIELDS:
            key = (field.call, field.args)
            if key not in answers:
                answers[key] = self._ask_gpu(index, field.call, *field.args)
            if answers[key] is not None:
                for labels, value in field.convert(answers[key]):
                    yield field.metric.sample(value, str(index), uuid, *labels)

    def _info(self, index: int, uuid: str) -> Sample:
        pci = self._ask_gpu(index, "nvmlDeviceGetPciInfo") or {}
        model = self._ask_gpu(index, "nvmlDeviceGetName") or ""
        vbios = self._ask_gpu(index, "nvmlDeviceGetVbiosVersion") or ""
        return INFO.sample(1.0, str(index), uuid, model, pci.get("busId", ""), vbios)

    def _ask(self, call: str) -> Any:
        try:
            return self._driver.query(call)
        except Unavailable:
            return None

    def _ask_gpu(self, index: int, call: str, *args: int) -> Any:
        try:
            return self._driver.query_gpu(index, call, *args)
        except Unavailable:
            return None


def _value_of(metric: Metric, rows: tuple[Sample, ...]) -> float | None:
    values = (row.value for row in rows if row.metric is metric)
    value = next(values, None)
    return value if isinstance(value, float) else None
