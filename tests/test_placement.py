"""Which GPUs and processes belong to which server."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from solpi_exporter.board import Board
from solpi_exporter.engine.reading import EngineFacts
from solpi_exporter.gpu.reading import GpuProcess, GpuReading, GpuState
from solpi_exporter.host.process import Process
from solpi_exporter.host.source import EngineProcesses, GpuPlace
from solpi_exporter.placement import Placement, Placer, ServerHint
from solpi_exporter.probe.launch import MODULE
from solpi_exporter.probe.quantities import ProbeReading
from solpi_exporter.probe.result import Identity
from tests.fakes import values

OWN = 4242
SERVE = ("/opt/vllm/bin/python3", "/opt/vllm/bin/vllm", "serve", "/models/m")
CORE = ("VLLM::EngineCore",)

Memory = Mapping[int, float | None]


def gpu(index: int, processes: Memory | None, *, instance: str = "", state: GpuState = GpuState.OK) -> GpuReading:
    listed = None if processes is None else tuple(GpuProcess(pid, memory) for pid, memory in processes.items())
    uuid = f"MIG-{index}-{instance}" if instance else f"GPU-{index}"
    return GpuReading(index, uuid, state, instance=instance, bus_id=f"bus {index}", processes=listed)


def process(pid: int, parent: int, command: tuple[str, ...], cgroup: str | None = None) -> Process:
    return Process(pid, parent, command, cgroup, 1)


class Joined:
    """A placer over some servers, GPUs, logs and processes."""

    def __init__(
        self,
        servers: Iterable[ServerHint],
        gpus: Iterable[GpuReading],
        processes: Iterable[Process] = (),
        logs: Mapping[str, tuple[int, ...]] | None = None,
        toolkits: Mapping[int, float] | None = None,
    ) -> None:
        self.table = {one.pid: one for one in processes}
        self.asked: list[int] = []
        self.toolkits = toolkits or {}
        self.board = Board()
        for source in ("gpu", "log", "probe"):
            self.board.add(source, 10.0)
        self.board.succeed("gpu", list(gpus), 0.0, 0.0)
        facts = [EngineFacts(name, "vllm", pids=pids) for name, pids in (logs or {}).items()]
        self.board.succeed("log", facts, 0.0, 0.0)
        self.placer = Placer(list(servers), OWN, self.lineage, self.toolkit)

    def lineage(self, pid: int) -> Iterable[Process]:
        self.asked.append(pid)
        while pid in self.table:
            yield self.table[pid]
            pid = self.table[pid].parent

    def toolkit(self, lineage: Iterable[Process]) -> float | None:
        return next((self.toolkits[one.pid] for one in lineage if one.pid in self.toolkits), None)

    def place(self) -> Placement:
        self.placer.learn(self.board.snapshot())
        return self.placer.place(self.board.snapshot())

    def gpus(self) -> dict[str, set[str]]:
        return {server: set(uuids) for server, uuids in self.place().gpus.items()}

    def shown(self) -> dict[str, dict[tuple[str, ...], Any]]:
        return values(list(self.place().samples()))


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (("1",), {"GPU-1"}),
        (("GPU-0", "1"), {"GPU-0", "GPU-1"}),
        (("7",), set()),
        (("1", "7"), set()),
        (("MIG-0-3",), {"MIG-0-3"}),
    ],
    ids=["index", "UUID and index", "not there", "one of them not there", "a MIG instance"],
)
def test_settings_come_first(named: tuple[str, ...], expected: set[str]) -> None:
    """Whatever runs where: GPUs that the settings name are the server's, and a part of them is not."""
    gpus = [gpu(0, {9: 1.0}), gpu(1, {}), gpu(0, {}, instance="3")]

    assert Joined([ServerHint("s", named)], gpus, [process(9, 1, SERVE)]).gpus() == {"s": expected}


def test_the_pid_in_the_log_is_the_pid_on_the_gpu() -> None:
    """On a plain host vLLM's own head names the process that NVML lists."""
    joined = Joined(
        [ServerHint("a"), ServerHint("b")],
        [gpu(0, {867: 1.0}), gpu(1, {900: 1.0})],
        [process(867, 1, CORE), process(900, 1, CORE)],
        {"a": (867,), "b": (800, 900)},
    )

    assert joined.gpus() == {"a": {"GPU-0"}, "b": {"GPU-1"}}


def test_workers_belong_to_the_engine_that_started_them() -> None:
    """With tensor parallelism the processes on the GPUs are children of the one that the log names."""
    joined = Joined(
        [ServerHint("a"), ServerHint("b")],
        [gpu(0, {901: 1.0}), gpu(1, {902: 1.0}), gpu(2, {77: 1.0})],
        [process(867, 1, CORE), process(901, 867, ("VLLM::Worker_TP0",)), process(902, 867, ("VLLM::Worker_TP1",))],
        {"a": (867,)},
    )

    assert joined.gpus() == {"a": {"GPU-0", "GPU-1"}, "b": set()}


def test_a_pid_of_another_namespace_is_not_believed() -> None:
    """A container's pid 867 may be anything here; only a process that looks like an engine is the engine's."""
    joined = Joined(
        [ServerHint("a"), ServerHint("b")],
        [gpu(0, {867: 1.0})],
        [process(867, 1, ("/usr/bin/blender", "-b"))],
        {"a": (867,)},
    )

    assert joined.place().pids == {"a": frozenset(), "b": frozenset()}


@pytest.mark.parametrize(
    "command",
    [(*SERVE, "--port", "8001"), (*SERVE, "--port=8001"), ("python3", "-m", "sglang.launch_server", "--port", "8001")],
)
def test_a_servers_port_stands_on_its_command_line(command: tuple[str, ...]) -> None:
    """Its own or that of an ancestor, as for an engine core that has set a title of its own."""
    joined = Joined(
        [ServerHint("a", port="8000"), ServerHint("b", port="8001")],
        [gpu(0, {11: 1.0}), gpu(1, {12: 1.0})],
        [process(10, 1, command), process(11, 10, CORE), process(13, 1, SERVE), process(12, 13, CORE)],
    )

    assert joined.gpus() == {"a": {"GPU-1"}, "b": {"GPU-0"}}


def test_a_unit_is_found_by_its_cgroup() -> None:
    """A server that logs to the journal names its unit, and so does the cgroup of its processes."""
    joined = Joined(
        [ServerHint("a", unit="vllm-a.service"), ServerHint("b", unit="vllm-b.service")],
        [gpu(0, {11: 1.0}), gpu(1, {12: 1.0})],
        [
            process(11, 1, CORE, "/system.slice/vllm-b.service"),
            process(12, 1, CORE, "/system.slice/vllm-a.service/engine"),
        ],
    )

    assert joined.gpus() == {"a": {"GPU-1"}, "b": {"GPU-0"}}


def test_the_only_server_has_every_gpu_that_computes() -> None:
    """But for the exporter's own probe; a GPU on which nobody computes is not its."""
    gpus = [gpu(0, {70: 1.0, OWN: 1.0}), gpu(1, {OWN: 1.0}), gpu(2, {})]

    assert Joined([ServerHint("s")], gpus).gpus() == {"s": {"GPU-0"}}


def test_of_several_servers_nothing_is_guessed() -> None:
    """Two servers, nothing that tells them apart: neither has a GPU."""
    gpus = [gpu(0, {70: 1.0}), gpu(1, {71: 1.0})]

    assert Joined([ServerHint("a"), ServerHint("b")], gpus).gpus() == {"a": set(), "b": set()}


def test_the_only_gpu_is_everybodys() -> None:
    """In a container NVML may list no process at all; with one GPU there is nothing to choose."""
    assert Joined([ServerHint("s")], [gpu(0, {})]).gpus() == {"s": {"GPU-0"}}
    assert Joined([ServerHint("s")], [gpu(0, None)]).gpus() == {"s": {"GPU-0"}}
    with_pid = Joined([ServerHint("s")], [gpu(0, {})], [process(800, 1, SERVE)], {"s": (800,)})
    assert with_pid.gpus() == {"s": {"GPU-0"}}


def test_the_only_gpu_is_not_a_servers_that_does_not_run() -> None:
    """All that computes there is the other server's."""
    joined = Joined([ServerHint("a"), ServerHint("b")], [gpu(0, {867: 1.0})], [process(867, 1, CORE)], {"a": (867,)})

    assert joined.gpus() == {"a": {"GPU-0"}, "b": set()}


def test_a_gpu_that_is_lost_is_not_guessed_at() -> None:
    """It has no processes that could tell whose it is."""
    assert Joined([ServerHint("s")], [gpu(0, None, state=GpuState.LOST)]).gpus() == {"s": set()}


def test_memory_is_told_by_kind() -> None:
    """The engine's, the probe's and others', without a pid; a kind that is not there holds 0 bytes."""
    joined = Joined(
        [ServerHint("a"), ServerHint("b")],
        [gpu(0, {867: 70e9, OWN: 1e9, 5: 2e9, 6: 3e9})],
        [process(867, 1, CORE)],
        {"a": (867,)},
    )
    on = ("0", "GPU-0", "")

    shown = joined.shown()

    assert shown["solpi_gpu_process_memory_bytes"] == {
        (*on, "engine"): 70e9,
        (*on, "probe"): 1e9,
        (*on, "other"): 5e9,
    }
    assert shown["solpi_engine_gpu_info"][("a", "GPU-0")] == 1.0


def test_a_worker_of_the_probe_is_the_exporters() -> None:
    """Its memory is the probe's, and it is no engine. An engine may be our child as well: of a shell that became us."""
    command = ("/opt/vllm/bin/python", "-c", f"from {MODULE} import main\n", "/package", "0.1.0")
    processes = [process(9, OWN, command), process(5, OWN, SERVE)]
    joined = Joined([ServerHint("s")], [gpu(0, {5: 70e9, 9: 1e9})], processes)

    assert joined.place().pids == {"s": frozenset({5})}
    assert joined.shown()["solpi_gpu_process_memory_bytes"] == {
        ("0", "GPU-0", "", "engine"): 70e9,
        ("0", "GPU-0", "", "probe"): 1e9,
        ("0", "GPU-0", "", "other"): 0,
    }


def test_a_worker_needs_no_lineage_to_be_the_exporters() -> None:
    """Without the host's source none is read: it was told when it was started, and is no engine."""
    joined = Joined([ServerHint("s")], [gpu(0, {5: 70e9, 9: 1e9})])

    joined.placer.adopt(9)
    placement = joined.placer.place(joined.board.snapshot())

    assert joined.asked == []
    assert placement.own == {OWN, 9}
    assert placement.pids == {"s": {5}}
    assert values(list(placement.samples()))["solpi_gpu_process_memory_bytes"] == {
        ("0", "GPU-0", "", "engine"): 70e9,
        ("0", "GPU-0", "", "probe"): 1e9,
        ("0", "GPU-0", "", "other"): 0,
    }


def test_memory_that_one_process_does_not_tell_is_not_known() -> None:
    """The sum of its kind would be too small; the other kinds stay."""
    shown = Joined([ServerHint("s")], [gpu(0, {OWN: 1e9, 5: None})]).shown()

    assert shown["solpi_gpu_process_memory_bytes"] == {("0", "GPU-0", "", "probe"): 1e9, ("0", "GPU-0", "", "other"): 0}


def test_processes_that_are_not_told_have_no_memory() -> None:
    """Nor has a GPU whose driver lists none to us."""
    assert "solpi_gpu_process_memory_bytes" not in Joined([ServerHint("s")], [gpu(0, None)]).shown()


def test_the_host_learns_whose_processes_are_where() -> None:
    """Each server's processes, and by GPU those of them that are on it."""
    joined = Joined(
        [ServerHint("a"), ServerHint("b")],
        [gpu(0, {867: 1.0, 5: 1.0})],
        [process(800, 1, SERVE), process(867, 800, CORE)],
        {"a": (800, 867)},
    )

    first, second = joined.place().processes()

    assert (first.server, set(first.pids)) == ("a", {800, 867})
    assert first.gpus == (GpuPlace(0, "GPU-0", "bus 0", (867,)),)
    assert second == EngineProcesses("b", (), (GpuPlace(0, "GPU-0", "bus 0", ()),))


def test_a_lineage_is_read_once() -> None:
    """Reading about a process that hangs may take long; a pid that has gone is forgotten."""
    joined = Joined([ServerHint("s")], [gpu(0, {70: 1.0})], [process(70, 1, SERVE)])
    joined.place()
    joined.place()
    assert joined.asked == [70]

    joined.board.succeed("gpu", [gpu(0, {})], 1.0, 1.0)
    joined.place()
    joined.board.succeed("gpu", [gpu(0, {70: 1.0})], 2.0, 2.0)
    joined.place()

    assert joined.asked == [70, 70]


def test_cuda_versions_stand_beside_the_drivers() -> None:
    """That of a server's torch, the lowest of its processes, and that of the probe's."""
    joined = Joined(
        [ServerHint("s")],
        [gpu(0, {70: 1.0, 71: 1.0})],
        [process(70, 1, SERVE), process(71, 1, SERVE)],
        toolkits={70: 13.0, 71: 12.8},
    )
    identity = Identity("cuda:0", "GPU-0", "H200", "8b", 4, 512, "bfloat16", "2.11.0", 13.0)
    joined.board.succeed("probe", [ProbeReading(identity, (), (), None)], 0.0, 0.0)

    assert joined.shown()["solpi_cuda_toolkit_version"] == {("engine", "s"): 12.8, ("probe", ""): 13.0}


def test_a_port_that_two_serve_is_nobodys() -> None:
    """In two containers, each with a network of its own, as behind `-p 8000:8000` and `-p 8001:8000`."""
    joined = Joined(
        [ServerHint("a", port="8000"), ServerHint("b", port="8001")],
        [gpu(0, {11: 1.0}), gpu(1, {12: 1.0})],
        [process(10, 1, SERVE), process(11, 10, CORE), process(20, 1, SERVE), process(12, 20, CORE)],
    )

    assert joined.gpus() == {"a": set(), "b": set()}


def test_a_named_gpu_that_is_lost_takes_no_other_along() -> None:
    """The settings say whose it is, whether it answers or not."""
    gpus = [gpu(0, {}), gpu(1, None, state=GpuState.LOST)]

    assert Joined([ServerHint("s", ("0", "1"))], gpus).gpus() == {"s": {"GPU-0", "GPU-1"}}
