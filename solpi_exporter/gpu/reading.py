"""What a poll of the GPUs yields: one reading a device and one of the driver, frozen."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from solpi_exporter.gpu.driver import NO_PERMISSION, RESET_REQUIRED, VERSION_MISMATCH
from solpi_exporter.gpu.fields import GPU
from solpi_exporter.metric import Kind, Metric, Sample

UP = Metric("solpi_gpu_up", "1 if the GPU answered in the last poll, 0 if it did once and does not now.", labels=GPU)
STATE = Metric(
    "solpi_gpu_state",
    "1 for the state that a GPU is in, 0 for the others. Only a GPU that is ok has readings.",
    labels=(*GPU, "state"),
)
INFO = Metric("solpi_gpu_info", "Constant 1; names the GPU.", labels=(*GPU, "model", "pci_bus_id", "vbios"))
BUSY = Metric(
    "solpi_gpu_busy_seconds_total",
    "Seconds in which any kernel or copy ran, while the exporter ran.",
    Kind.COUNTER,
    GPU,
)
LOAD = Metric(
    "solpi_gpu_utilization_samples_ratio",
    "The driver's own samples of utilisation, five a second on recent GPUs: shows load that comes and goes.",
    Kind.HISTOGRAM,
    GPU,
)
PROCESSES = Metric("solpi_gpu_processes", "Processes that compute on the GPU.", labels=GPU)
NVML_INFO = Metric(
    "solpi_nvml_info", "Constant 1; versions of driver and NVML library.", labels=("driver_version", "nvml_version")
)
PRESENT = Metric("solpi_gpus_present", "GPUs that NVML lists.")
EXPECTED = Metric(
    "solpi_gpus_expected", "GPUs that should be there: the setting gpu.expected, or the most that ever were."
)
CUDA_DRIVER = Metric(
    "solpi_cuda_driver_version", "Newest CUDA version that the driver supports, as major.minor: 12.8 is 12.8."
)


class GpuState(Enum):
    """How a GPU fares; values of the label `state` of solpi_gpu_state."""

    OK = "ok"
    LOST = "lost"
    HUNG = "hung"
    RESET_REQUIRED = "reset_required"
    NO_PERMISSION = "no_permission"
    DRIVER_MISMATCH = "driver_mismatch"
    DRIVER_ABSENT = "driver_absent"
    QUIESCED = "quiesced"


def state_of(code: int | None) -> GpuState:
    """Return what an NVML error says of a GPU that gives it instead of its UUID."""
    states = {
        RESET_REQUIRED: GpuState.RESET_REQUIRED,
        NO_PERMISSION: GpuState.NO_PERMISSION,
        VERSION_MISMATCH: GpuState.DRIVER_MISMATCH,
    }
    return GpuState.LOST if code is None else states.get(code, GpuState.LOST)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU, in the driver's numbering; `memory` in bytes where the driver tells it."""

    pid: int
    memory: float | None


@dataclass(frozen=True, slots=True)
class BusyTotal:
    """Busy seconds up to `time` (monotonic); `gaps` counts the stretches that they leave out."""

    time: float
    seconds: float
    gaps: int


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU, or one MIG instance, at one instant. One that is not ok has totals at most.

    `instance` is the GPU instance id of a MIG device, empty for a whole GPU; `uuid` is empty where it was never told.
    `totals` are those that the exporter keeps itself, `busy` among them; `processes` is None where they are not told.
    """

    index: int
    uuid: str
    state: GpuState
    instance: str = ""
    bus_id: str = ""
    info: Sample | None = None
    rows: tuple[Sample, ...] = ()
    totals: tuple[Sample, ...] = ()
    busy: BusyTotal | None = None
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def labels(self) -> tuple[str, str, str]:
        """The label values that every series of this GPU begins with."""
        return (str(self.index), self.uuid, self.instance)

    @property
    def up(self) -> bool:
        """Whether it answered."""
        return self.state is GpuState.OK

    def gone(self, state: GpuState) -> "GpuReading":
        """Return what remains of it in a state that is not ok: its name and its totals."""
        return replace(self, state=state, rows=(), processes=None)

    def samples(self) -> Iterator[Sample]:
        """Yield the GPU's state and everything that is known of it."""
        yield UP.sample(float(self.up), *self.labels)
        if not self.instance:
            for state in GpuState:
                yield STATE.sample(float(self.state is state), *self.labels, state.value)
        if self.info is not None:
            yield self.info
        yield from self.rows
        yield from self.totals
        if self.processes is not None:
            yield PROCESSES.sample(float(len(self.processes)), *self.labels)


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """What the driver says of itself; what it does not tell is None."""

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


@dataclass(frozen=True, slots=True)
class ExpectedGpus:
    """How many GPUs this host should have."""

    count: int

    def samples(self) -> Iterator[Sample]:
        """Yield the number."""
        yield EXPECTED.sample(float(self.count))
