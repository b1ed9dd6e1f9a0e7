"""Which GPUs and processes belong to which server: the join by which GPU readings become an engine's.

    settings `gpus`  >  pids in the engine's own log  >  a process's unit, port or parent  >  the only server

A process that computes on a GPU, by NVML's list, is a server's when its log or its lineage says so. Lineages are read
from /proc in the host's thread, since a process that hangs can hold up who reads it; everything else is pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from solpi_exporter.board import Snapshot
from solpi_exporter.engine.reading import EngineFacts
from solpi_exporter.gpu.fields import GPU
from solpi_exporter.gpu.reading import GpuProcess, GpuReading
from solpi_exporter.host.process import Process
from solpi_exporter.host.source import EngineProcesses, GpuPlace
from solpi_exporter.host.toolkit import torch_cuda
from solpi_exporter.metric import Metric, Sample
from solpi_exporter.probe.launch import MODULE
from solpi_exporter.probe.quantities import ProbeReading

ENGINE_GPU = Metric(
    "solpi_engine_gpu_info", "Constant 1; a GPU, or MIG instance, that a server runs on.", labels=("server", "uuid")
)
PROCESS_MEMORY = Metric(
    "solpi_gpu_process_memory_bytes",
    "Memory that processes hold on a GPU: the serving engines', this exporter's own (its probe), others'.",
    labels=(*GPU, "kind"),
)
TOOLKIT = Metric(
    "solpi_cuda_toolkit_version",
    "CUDA version, as major.minor, that a torch was built for: the probe's, or that of a server on this host. "
    "Above solpi_cuda_driver_version it runs slower, or not at all.",
    labels=("user", "server"),
)
METRICS = (ENGINE_GPU, PROCESS_MEMORY, TOOLKIT)

ENGINE_WORDS = ("vllm", "sglang", "trtllm")
DEFAULT_PORT = "8000"  # of vLLM, which need not be given on its command line


@dataclass(frozen=True, slots=True)
class ServerHint:
    """What the settings say of a server: `gpus` as UUIDs or NVML indices, its unit's name, its port."""

    name: str
    gpus: tuple[str, ...] = ()
    unit: str | None = None
    port: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """UUIDs, pids and CUDA version by server; the GPUs that answer; the CUDA version of the probe's torch.

    `own` are the exporter's processes.
    """

    gpus: Mapping[str, frozenset[str]]
    pids: Mapping[str, frozenset[int]]
    toolkits: Mapping[str, float]
    readings: tuple[GpuReading, ...]
    own: frozenset[int]
    own_toolkit: float | None

    def samples(self) -> Iterator[Sample]:
        """Yield each server's GPUs, each GPU's memory by kind of process, and every CUDA version that is known."""
        for server, uuids in self.gpus.items():
            for uuid in sorted(uuids):
                yield ENGINE_GPU.sample(1.0, server, uuid)
        for reading in self.readings:
            for kind, memory in self._memory(reading.processes):
                yield PROCESS_MEMORY.sample(memory, *reading.labels, kind)
        for server, version in self.toolkits.items():
            yield TOOLKIT.sample(version, "engine", server)
        if self.own_toolkit is not None:
            yield TOOLKIT.sample(self.own_toolkit, "probe", "")

    def processes(self) -> list[EngineProcesses]:
        """Return each server's processes, and its GPUs with those of them that are on each."""
        return [EngineProcesses(server, tuple(pids), tuple(self._places(server))) for server, pids in self.pids.items()]

    def _places(self, server: str) -> Iterator[GpuPlace]:
        for gpu in self.readings:
            if gpu.uuid in self.gpus[server]:
                pids = tuple(one.pid for one in gpu.processes or () if one.pid in self.pids[server])
                yield GpuPlace(gpu.index, gpu.uuid, gpu.bus_id, pids)

    def _memory(self, processes: Sequence[GpuProcess] | None) -> Iterator[tuple[str, float]]:
        """Yield the memory of each kind; a kind with a process whose memory is not told is not known."""
        kinds = {"engine": frozenset().union(*self.pids.values()), "probe": self.own}
        for kind in ("engine", "probe", "other"):
            memory = [one.memory for one in processes or () if _kind(one.pid, kinds) == kind]
            if processes is not None and None not in memory:
                yield kind, sum(one or 0.0 for one in memory)


def _kind(pid: int, kinds: Mapping[str, frozenset[int]]) -> str:
    return next((kind for kind, pids in kinds.items() if pid in pids), "other")


@dataclass(slots=True)
class Placer:
    """Joins snapshots of the board for `servers`; `lineage` reads a process and its ancestors from /proc.

    What it has read of a process is kept until that leaves the board.
    """

    servers: Sequence[ServerHint]
    own_pid: int
    lineage: Callable[[int], Iterable[Process]]
    toolkit: Callable[[Iterable[Process]], float | None] = torch_cuda
    _lineages: Mapping[int, tuple[Process, ...]] = field(default_factory=dict)
    _toolkits: Mapping[int, float | None] = field(default_factory=dict)
    _worker: int | None = None

    def adopt(self, worker: int) -> None:
        """Take a process for the probe's worker until the next: a list that lags behind names one that has ended.

        Without the host's source no lineage is read, and with it later than the worker's memory is on the board.
        """
        self._worker = worker

    def learn(self, snapshot: Snapshot) -> None:
        """Read the lineage of every process that computes on a GPU or is named by a log, once."""
        facts = [fact for _, fact in snapshot.readings(EngineFacts)]
        pids = {one.pid for _, gpu in snapshot.readings(GpuReading) for one in gpu.processes or ()}
        pids |= {pid for fact in facts for pid in fact.pids}
        pids -= {self.own_pid}
        new = {pid: tuple(self.lineage(pid)) for pid in pids - self._lineages.keys()}
        self._lineages = {pid: new[pid] if pid in new else self._lineages[pid] for pid in pids}
        self._toolkits = {
            pid: self.toolkit(lineage) if pid in new else self._toolkits.get(pid)
            for pid, lineage in self._lineages.items()
        }

    def place(self, snapshot: Snapshot) -> Placement:
        """Return which GPUs and processes are whose, as far as it is known."""
        listed = [gpu for _, gpu in snapshot.readings(GpuReading) if gpu.uuid]
        gpus = [gpu for gpu in listed if gpu.up]
        told = {fact.server: fact.pids for _, fact in snapshot.readings(EngineFacts)}
        pids = {hint.name: self._pids(hint, told.get(hint.name, ()), gpus) for hint in self.servers}
        claimed = frozenset().union(*pids.values())
        chosen = {
            hint.name: _named(hint, listed) if hint.gpus else self._gpus(pids[hint.name], claimed, gpus)
            for hint in self.servers
        }
        probes = (probe.identity.cuda for _, probe in snapshot.readings(ProbeReading) if probe.identity is not None)
        return Placement(chosen, pids, self._versions(pids), tuple(gpus), self._own(), next(probes, None))

    def _own(self) -> frozenset[int]:
        """Return this process and the probe's workers; its other children may be engines, where it is pid 1.

        By lineage also one that this process could not end before it executed itself anew.
        """
        first = (lineage[0] for lineage in self._lineages.values() if lineage)
        workers = {one.pid for one in first if one.parent == self.own_pid and any(MODULE in it for it in one.command)}
        told = set() if self._worker is None else {self._worker}
        return frozenset({self.own_pid} | workers | told)

    def _versions(self, pids: Mapping[str, frozenset[int]]) -> dict[str, float]:
        """Return the CUDA version of each server; the lowest, should its processes differ."""
        known = {server: [self._toolkits.get(pid) for pid in mine] for server, mine in pids.items()}
        versions = {server: [one for one in some if one is not None] for server, some in known.items()}
        return {server: min(some) for server, some in versions.items() if some}

    def _pids(self, hint: ServerHint, told: Iterable[int], gpus: Iterable[GpuReading]) -> frozenset[int]:
        """Return a server's processes: those that its log names and that look like an engine, and those on GPUs.

        A pid in a log is one of the engine's own namespace; in a container it names some other process here, or none.
        """
        named = {pid for pid in told if _is_engine(self._lineages.get(pid, ())[:1])}
        computing = {one.pid for gpu in gpus for one in gpu.processes or ()} - self._own()
        lineages = {pid: self._lineages.get(pid, ()) for pid in computing}
        mine = {pid for pid, lineage in lineages.items() if any(process.pid in named for process in lineage)}
        mine = mine or self._by_unit(hint, lineages) or self._by_port(hint, lineages)
        if not mine and len(self.servers) == 1 and not hint.gpus:
            mine = computing
        return frozenset(named | mine)

    def _by_unit(self, hint: ServerHint, lineages: Mapping[int, tuple[Process, ...]]) -> set[int]:
        """Return the processes in the cgroup of a server's unit."""
        paths = {pid: PurePath(lineage[0].cgroup or "").parts for pid, lineage in lineages.items() if lineage}
        return {pid for pid, parts in paths.items() if hint.unit in parts}

    def _by_port(self, hint: ServerHint, lineages: Mapping[int, tuple[Process, ...]]) -> set[int]:
        """Return the processes below the one that serves a server's port.

        In containers several may serve the same port, each in its own network: then none is taken for it.
        """
        if hint.unit is not None or hint.port is None:
            return set()
        port = hint.port
        serving = {pid: [one.pid for one in lineage if _serves(one, port)] for pid, lineage in lineages.items()}
        roots = {pids[-1] for pids in serving.values() if pids}
        return {pid for pid, pids in serving.items() if pids} if len(roots) == 1 else set()

    def _gpus(self, pids: frozenset[int], claimed: frozenset[int], gpus: Sequence[GpuReading]) -> frozenset[str]:
        """Return the GPUs on which a server's processes compute."""
        found = frozenset(gpu.uuid for gpu in gpus if any(one.pid in pids for one in gpu.processes or ()))
        # In a container NVML may list no processes at all; with one GPU there is nothing to choose, unless all that
        # computes there is somebody else's.
        computing = {one.pid for gpu in gpus for one in gpu.processes or ()}
        taken = bool(computing) and computing <= claimed
        return found or frozenset(gpu.uuid for gpu in gpus if len(gpus) == 1 and not taken)


def _named(hint: ServerHint, gpus: Sequence[GpuReading]) -> frozenset[str]:
    """Return the GPUs that the settings name, those that are lost included; none where one is not to be found."""
    found = frozenset(gpu.uuid for gpu in gpus if gpu.uuid in hint.gpus or _index(gpu) in hint.gpus)
    return found if len(found) == len(hint.gpus) else frozenset()


def _index(gpu: GpuReading) -> str | None:
    """Return what the settings may call a whole GPU; a MIG instance goes by its UUID."""
    return None if gpu.instance else str(gpu.index)


def _is_engine(processes: Iterable[Process]) -> bool:
    return any(word in " ".join(process.command).lower() for process in processes for word in ENGINE_WORDS)


def _serves(process: Process, port: str) -> bool:
    """Whether a command line is that of an engine's server on a port."""
    if not _is_engine([process]):
        return False
    words = process.command
    if "--port" in words[:-1]:
        return words[words.index("--port") + 1] == port
    given = [word.partition("=")[2] for word in words if word.startswith("--port=")]
    return port in given if given else port == DEFAULT_PORT and len(words) > 1
