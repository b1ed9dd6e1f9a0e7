"""Whether NVIDIA's MPS runs."""

from pathlib import Path

import pytest

from solpi_exporter.host.mps import mps_runs
from tests.host.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.process(1, name="systemd")
    machine.write("proc/meminfo", "MemTotal: 1 kB\n")
    return machine


@pytest.mark.parametrize("name", ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"])
def test_mps_is_known_by_the_names_of_its_processes(machine: Machine, name: str) -> None:
    """The kernel cuts both to the same 15 characters; a control daemon starts a server for the next client."""
    machine.process(42, name=name)

    assert mps_runs(machine.proc) is True


@pytest.mark.parametrize("name", ["python3", "nvidia-persistenced", "my-nvidia-cuda-mps"])
def test_another_process_is_no_mps(machine: Machine, name: str) -> None:
    """A name counts from its beginning."""
    machine.process(42, name=name)

    assert mps_runs(machine.proc) is False


def test_a_process_that_vanishes_while_it_is_read_is_left_out(machine: Machine) -> None:
    """Its folder was listed and its file is gone."""
    machine.process(42)
    machine.remove("proc/42/comm")

    assert mps_runs(machine.proc) is False


def test_without_procfs_it_is_not_known(tmp_path: Path) -> None:
    """That is not the same as none."""
    assert mps_runs(tmp_path / "proc") is None


def test_the_real_procfs_can_be_listed() -> None:
    """Whatever runs here, it can be told."""
    assert mps_runs() is not None
