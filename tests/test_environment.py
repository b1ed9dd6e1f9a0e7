"""How a host and its GPU are set up, from files and from readings of the recorded H200."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from solpi_exporter.environment import CpuWaiting, surroundings
from solpi_exporter.gpu.reading import GpuReading, GpuState
from solpi_exporter.gpu.recording import load
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.host.files import cpu_list
from solpi_exporter.probe.result import Identity
from solpi_exporter.probe.surroundings import Surroundings
from solpi_exporter.source import Reading
from tests.fakes import RECORDINGS, FakeClock
from tests.host.machine import Machine

UUID = "GPU-00000000-0000-0000-0000-000000000001"
ON_GPU = Identity("cuda:0", UUID, "NVIDIA H200", "8b", 4, 512, "bfloat16", "2.11.0+cu130", 13.0)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.online("0-1")
    machine.cpu(0, 3_000_000)
    machine.cpu(1, 2_000_000)
    machine.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    return machine


@pytest.fixture
def readings() -> list[Reading]:
    clock = FakeClock()
    driver = ReplayDriver(load((RECORDINGS / "h200-nvml" / "recording.json").read_text()), clock.monotonic)
    return list(GpuSource(driver, clock, 5.0, 3.0).poll())


def test_host_and_gpu_are_told(machine: Machine, readings: list[Reading]) -> None:
    """Everything that is no matter of one run."""
    found = surroundings(ON_GPU, readings, cpu_list("0-3,8"), machine.proc, machine.sys)

    assert found == Surroundings(
        driver="580.159.04",
        cuda=13.0,
        torch="2.11.0+cu130",
        kernel="6.8.0-45-generic",
        governor="performance",
        allowed_cpus="0-3,8",
        cpu_frequency=2.5e9,
        pcie_generation=5,
        pcie_width=16,
        memory_clock=3.201e9,
        ecc=True,
        persistence=True,
    )


def test_another_gpu_says_nothing(machine: Machine, readings: list[Reading]) -> None:
    """It is known by its UUID."""
    found = surroundings(replace(ON_GPU, uuid="GPU-2"), readings, (), machine.proc, machine.sys)

    assert (found.driver, found.ecc, found.pcie_width) == (None, None, None)


def test_a_mig_instance_is_set_up_as_its_gpu_is(machine: Machine, readings: list[Reading]) -> None:
    """NVML tells link, ECC and persistence of the whole GPU alone."""
    instance = GpuReading(0, "MIG-1", GpuState.OK, instance="7")

    found = surroundings(replace(ON_GPU, uuid="MIG-1"), [*readings, instance], (), machine.proc, machine.sys)

    assert (found.driver, found.ecc, found.pcie_width) == ("580.159.04", True, 16)


def test_an_older_torch_tells_no_uuid(machine: Machine, readings: list[Reading]) -> None:
    """Then the only GPU is the one; of two, neither is."""
    nameless = replace(ON_GPU, uuid="")

    assert surroundings(nameless, readings, (), machine.proc, machine.sys).pcie_width == 16
    assert surroundings(nameless, [*readings, *readings], (), machine.proc, machine.sys).pcie_width is None


def test_on_a_cpu_there_is_no_gpu_to_tell_of(machine: Machine, readings: list[Reading]) -> None:
    """Even where the host has one."""
    found = surroundings(replace(ON_GPU, device="cpu", uuid=""), readings, (), machine.proc, machine.sys)

    assert (found.driver, found.ecc, found.kernel) == (None, None, "6.8.0-45-generic")


def test_a_host_that_tells_nothing_is_not_known(tmp_path: Path) -> None:
    """But for torch, and the CPUs that we may use."""
    found = surroundings(ON_GPU, (), None, tmp_path, tmp_path)

    assert cpu_list(found.allowed_cpus or "") == os.sched_getaffinity(0)
    assert replace(found, allowed_cpus=None) == Surroundings(cuda=13.0, torch="2.11.0+cu130")


def pressure(machine: Machine, microseconds: int) -> None:
    machine.write("proc/pressure/cpu", f"some avg10=0.00 avg60=0.00 avg300=0.00 total={microseconds}\n")


def test_waiting_is_a_share_of_the_time(machine: Machine) -> None:
    """Of that since the beginning."""
    clock = FakeClock()
    waiting = CpuWaiting(clock, machine.proc)
    pressure(machine, 5_000_000)
    waiting.begin()
    clock.now += 10.0
    pressure(machine, 7_500_000)

    assert waiting.share() == 0.25


def test_waiting_is_not_known_without_accounting(machine: Machine) -> None:
    """Nor before it has begun, nor over no time."""
    clock = FakeClock()
    waiting = CpuWaiting(clock, machine.proc)
    waiting.begin()
    clock.now += 10.0
    pressure(machine, 1)
    assert waiting.share() is None

    waiting.begin()
    assert waiting.share() is None
