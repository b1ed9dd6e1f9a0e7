"""Whether processes run next to their GPU."""

from pathlib import Path

import pytest

from solpi_exporter.host.numa import gpu_node, node_cpus, runs_beside
from tests.host.machine import Machine

BUS_ID = "00000000:17:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a host with two sockets and a GPU at the second one."""
    machine = Machine(tmp_path)
    machine.nodes("0-3,8-11", "4-7,12-15")
    machine.gpu("0000:17:00.0", 1)
    return machine


def beside(machine: Machine, *pids: int) -> bool | None:
    return runs_beside(BUS_ID, pids, node_cpus(machine.sys), machine.sys, machine.proc)


@pytest.mark.parametrize(
    ("cpus", "match"), [("4-7", True), ("4-7,12-15", True), ("12", True), ("0-7", False), ("0", False), ("0-15", False)]
)
def test_a_match_is_when_all_cpus_are_of_the_gpus_node(machine: Machine, cpus: str, match: bool) -> None:
    """One CPU of another node is enough to run there."""
    machine.process(42, cpus=cpus)

    assert beside(machine, 42) is match


def test_every_process_on_the_gpu_counts(machine: Machine) -> None:
    """One that may run elsewhere is a mismatch; one that has gone is none."""
    machine.process(42, cpus="4-7")
    machine.process(43, cpus="0-3")

    assert beside(machine, 42, 99) is True
    assert beside(machine, 42, 43) is False


def test_cpus_that_are_not_there_do_not_count(machine: Machine) -> None:
    """A mask names all CPUs that the board could take; only those online belong to a node."""
    machine.process(42, cpus="4-7,12-15,16-255")

    assert beside(machine, 42) is True


def test_on_one_node_nothing_is_said(machine: Machine) -> None:
    """Everything matches there: a node of memory alone does not make it two."""
    machine.nodes("0-15", "")
    machine.process(42, cpus="4-7")

    assert beside(machine, 42) is None


def test_unknown_sides_are_not_known(machine: Machine) -> None:
    """No process, a GPU of no known node, and a GPU of a node without CPUs are None."""
    assert beside(machine) is None
    assert beside(machine, 42) is None
    machine.process(42, cpus="4-7")
    machine.gpu("0000:17:00.0", -1)
    assert beside(machine, 42) is None
    machine.gpu("0000:17:00.0", 5)
    assert beside(machine, 42) is None
    machine.remove("sys/bus")
    assert beside(machine, 42) is None


def test_without_sysfs_there_are_no_nodes(tmp_path: Path) -> None:
    """A kernel without NUMA has no such folder."""
    assert node_cpus(tmp_path) == {}


@pytest.mark.parametrize(
    ("bus_id", "place"),
    [
        ("00000000:17:00.0", "0000:17:00.0"),
        ("00000000:AB:1C.0", "0000:ab:1c.0"),
        ("0000000A:01:00.0", "000a:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0000:17:00.0", "0000:17:00.0"),
    ],
)
def test_bus_ids_are_found_as_the_kernel_writes_them(machine: Machine, bus_id: str, place: str) -> None:
    """NVML writes eight digits of domain and capitals; the kernel four, more where needed, and small letters."""
    machine.gpu(place, 1)

    assert gpu_node(bus_id, machine.sys) == 1
