"""How this host and its GPU are set up: what host/ reads and the GPUs' readings say, as the probe's surroundings."""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from solpi_exporter.clock import Clock
from solpi_exporter.gpu.fields import CLOCK, ECC_ENABLED, LINK_GENERATION, LINK_WIDTH, PERSISTENCE_MODE
from solpi_exporter.gpu.reading import GpuReading, NvmlReading
from solpi_exporter.host.cpu import frequency_hertz, governors, pressure_seconds
from solpi_exporter.host.files import PROC, SYS, cpu_ranges
from solpi_exporter.host.model import kernel_release
from solpi_exporter.metric import Metric
from solpi_exporter.probe.result import Identity
from solpi_exporter.probe.surroundings import Surroundings
from solpi_exporter.source import Reading


def surroundings(
    identity: Identity,
    readings: Iterable[Reading],
    allowed: Collection[int] | None = None,
    proc: Path = PROC,
    sys: Path = SYS,
) -> Surroundings:
    """Return how the host and the GPU that a bench measures on are set up, by `readings` of a poll of the GPUs.

    `allowed` are the CPUs on which the bench may run, by default this thread's.
    """
    told = list(readings)
    gpu = _gpu(identity, told)
    generation, width = _row(gpu, LINK_GENERATION), _row(gpu, LINK_WIDTH)
    ecc, persistence = _row(gpu, ECC_ENABLED, "current"), _row(gpu, PERSISTENCE_MODE)
    return Surroundings(
        driver=next((one.driver_version for one in told if gpu and isinstance(one, NvmlReading)), None),
        cuda=identity.cuda,
        torch=identity.torch,
        kernel=kernel_release(proc),
        governor=", ".join(governors(sys)) or None,
        allowed_cpus=cpu_ranges(os.sched_getaffinity(0) if allowed is None else allowed),
        cpu_frequency=frequency_hertz(sys),
        pcie_generation=None if generation is None else int(generation),
        pcie_width=None if width is None else int(width),
        memory_clock=_row(gpu, CLOCK, "memory"),
        ecc=None if ecc is None else bool(ecc),
        persistence=None if persistence is None else bool(persistence),
    )


@dataclass(slots=True)
class CpuWaiting:
    """For how much of a stretch of time some task waited for a CPU."""

    clock: Clock
    proc: Path = PROC
    _begun: tuple[float, float] | None = None

    def begin(self) -> None:
        """Begin the stretch."""
        waited = pressure_seconds(self.proc).get("cpu")
        self._begun = None if waited is None else (self.clock.monotonic(), waited)

    def share(self) -> float | None:
        """Return the share until now; None where the kernel does not tell, or no time has passed."""
        waited = pressure_seconds(self.proc).get("cpu")
        if self._begun is None or waited is None:
            return None
        seconds = self.clock.monotonic() - self._begun[0]
        return (waited - self._begun[1]) / seconds if seconds > 0 else None


def _gpu(identity: Identity, readings: Iterable[Reading]) -> GpuReading | None:
    """Return the GPU by its UUID, or that of its MIG instance, on which NVML has little to tell.

    An older torch tells none, and then it is the only one, or not known.
    """
    if identity.device == "cpu":
        return None
    gpus = [one for one in readings if isinstance(one, GpuReading) and one.up]
    named = {one.index for one in gpus if not identity.uuid or one.uuid == identity.uuid}
    found = [one for one in gpus if not one.instance and one.index in named]
    return found[0] if len(found) == 1 else None


def _row(gpu: GpuReading | None, metric: Metric, *further: str) -> float | None:
    """Return one of a GPU's values, by its label values beyond those that name the GPU."""
    return next(_values(gpu, metric, further), None) if gpu is not None else None


def _values(gpu: GpuReading, metric: Metric, further: tuple[str, ...]) -> Iterator[float]:
    for sample in gpu.rows:
        if sample.metric is metric and sample.labels[len(gpu.labels) :] == further:
            assert isinstance(sample.value, float | int)
            yield float(sample.value)
