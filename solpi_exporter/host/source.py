"""The host as a source: what its CPUs do, who waits, and what the control layer of each server had to wait for.

Who a server's processes are and which GPUs they use comes in by argument. What this host does not tell is left out;
a poll never fails for it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from solpi_exporter.host.account import ServerAccount
from solpi_exporter.host.cpu import MOST_CPUS, frequency_hertz, governors, pressure_seconds
from solpi_exporter.host.files import PROC, SYS
from solpi_exporter.host.numa import node_cpus, runs_beside
from solpi_exporter.metric import Kind, Metric, Sample

_SERVER = ("server",)
FREQUENCY = Metric(
    "solpi_host_cpu_frequency_hertz",
    f"Mean frequency of the CPUs online (cpufreq), of at most {MOST_CPUS} evenly spread.",
)
GOVERNOR = Metric(
    "solpi_host_cpu_governor_info",
    f"Constant 1; a frequency governor in use among the CPUs online, of at most {MOST_CPUS} evenly spread.",
    labels=("governor",),
)
PRESSURE = Metric(
    "solpi_host_pressure_waiting_seconds_total",
    "Seconds in which some task waited for the resource (PSI of cpu, memory, io).",
    Kind.COUNTER,
    ("resource",),
)
NUMA_MATCH = Metric(
    "solpi_host_gpu_numa_match",
    "1 if the engine that uses the GPU may run on CPUs of the GPU's NUMA node only, 0 if on others too; "
    "absent on a host with one node.",
    labels=("gpu", "uuid"),
)
THROTTLED = Metric(
    "solpi_engine_cpu_throttled_seconds_total",
    "Seconds, summed over CPUs, for which a CPU limit held the server back: its cgroup's or one above, "
    "whichever did so longer (cpu.stat).",
    Kind.COUNTER,
    _SERVER,
)
RUN_DELAY = Metric(
    "solpi_engine_run_delay_seconds_total",
    "Seconds in which threads of the server were ready to run and no CPU took them (schedstat), since first seen.",
    Kind.COUNTER,
    _SERVER,
)
CPU_SECONDS = Metric(
    "solpi_engine_cpu_seconds_total",
    "CPU time of the server's processes, user and system, since each was first seen.",
    Kind.COUNTER,
    _SERVER,
)

METRICS = (FREQUENCY, GOVERNOR, PRESSURE, NUMA_MATCH, THROTTLED, RUN_DELAY, CPU_SECONDS)


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """A GPU that a server uses: NVML's index, UUID and PCI bus id, and the pids of the server's that are on it."""

    index: int
    uuid: str
    bus_id: str
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineProcesses:
    """One server's own processes (API server, engine core, workers: children are not looked for) and its GPUs."""

    server: str
    pids: tuple[int, ...]
    gpus: tuple[GpuPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class HostReading:
    """The host at one instant: hertz, governors, seconds waited by resource, and by GPU whether its node matches."""

    frequency: float | None
    governors: tuple[str, ...]
    pressure: tuple[tuple[str, float], ...]
    numa_matches: tuple[tuple[int, str, bool], ...]

    def samples(self) -> Iterator[Sample]:
        """Yield what is known."""
        if self.frequency is not None:
            yield FREQUENCY.sample(self.frequency)
        for governor in self.governors:
            yield GOVERNOR.sample(1.0, governor)
        for resource, seconds in self.pressure:
            yield PRESSURE.sample(seconds, resource)
        for index, uuid, match in self.numa_matches:
            yield NUMA_MATCH.sample(float(match), str(index), uuid)


@dataclass(frozen=True, slots=True)
class ServerReading:
    """Totals of one server in seconds; None is not known."""

    server: str
    throttled: float | None
    run_delay: float | None
    cpu: float | None

    def samples(self) -> Iterator[Sample]:
        """Yield the totals that are known."""
        totals = ((THROTTLED, self.throttled), (RUN_DELAY, self.run_delay), (CPU_SECONDS, self.cpu))
        for metric, seconds in totals:
            if seconds is not None:
                yield metric.sample(seconds, self.server)


class HostSource:
    """The host under the roots `proc` and `sys`; `engines` is asked at each poll for the servers' processes.

    A server's totals outlive its processes, and `engines` naming it.
    """

    name = "host"

    def __init__(
        self,
        engines: Callable[[], Sequence[EngineProcesses]],
        interval: float = 15.0,
        timeout: float = 10.0,
        proc: Path = PROC,
        sys: Path = SYS,
    ) -> None:
        self.interval = interval
        self.timeout = timeout
        self._engines = engines
        self._proc = proc
        self._sys = sys
        self._accounts: dict[str, ServerAccount] = {}

    def poll(self) -> list[HostReading | ServerReading]:
        """Read the host and every server's processes."""
        engines = self._engines()
        pids = {engine.server: engine.pids for engine in engines}
        for server in pids.keys() - self._accounts.keys():
            self._accounts[server] = ServerAccount()
        for server, account in self._accounts.items():
            account.advance(pids.get(server, ()), self._proc, self._sys / "fs/cgroup")
        return [self._host(engines), *self._servers()]

    def close(self) -> None:
        """Hold nothing open, and so do nothing."""

    def _host(self, engines: Sequence[EngineProcesses]) -> HostReading:
        return HostReading(
            frequency_hertz(self._sys),
            governors(self._sys),
            tuple(pressure_seconds(self._proc).items()),
            tuple(self._numa_matches([gpu for engine in engines for gpu in engine.gpus])),
        )

    def _numa_matches(self, places: Sequence[GpuPlace]) -> Iterator[tuple[int, str, bool]]:
        """Yield by GPU whether all processes on it, of whichever server, run beside it."""
        nodes = node_cpus(self._sys) if places else {}
        for index, uuid, bus_id in dict.fromkeys((place.index, place.uuid, place.bus_id) for place in places):
            pids = {pid for place in places if place.uuid == uuid for pid in place.pids}
            match = runs_beside(bus_id, pids, nodes, self._sys, self._proc)
            if match is not None:
                yield index, uuid, match

    def _servers(self) -> Iterator[ServerReading]:
        for server, account in self._accounts.items():
            yield ServerReading(server, account.throttled.seconds, account.run_delay.seconds, account.cpu.seconds)
