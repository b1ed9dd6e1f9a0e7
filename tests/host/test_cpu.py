"""Frequency, governors and pressure of the host."""

from pathlib import Path

import pytest

from solpi_exporter.host.cpu import MOST_CPUS, frequency_hertz, governors, pressure_seconds, sampled_cpus
from tests.host.machine import Machine, as_nobody, needs_root

PSI = "some avg10=0.22 avg60=0.17 avg300=0.05 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_frequency_is_the_mean_of_the_cpus(machine: Machine) -> None:
    """Kilohertz become hertz."""
    machine.online("0-1")
    machine.cpu(0, 2_000_000)
    machine.cpu(1, 3_000_000)

    assert frequency_hertz(machine.sys) == 2.5e9


@pytest.mark.parametrize("text", ["<unknown>", "0", ""])
def test_a_cpu_that_tells_no_frequency_is_left_out(machine: Machine, text: str) -> None:
    """A sleeping CPU, by some drivers, must not pull the mean down."""
    machine.online("0-1")
    machine.cpu(0, 2_000_000)
    machine.cpu(1, text)

    assert frequency_hertz(machine.sys) == 2e9


def test_cpus_that_are_offline_are_not_read(machine: Machine) -> None:
    """Their files may still be there."""
    machine.online("0,2")
    for number, kilohertz in enumerate((1_000_000, 9_000_000, 3_000_000)):
        machine.cpu(number, kilohertz)

    assert frequency_hertz(machine.sys) == 2e9


def test_without_cpufreq_nothing_is_known(machine: Machine) -> None:
    """A virtual machine has no cpufreq, and a folder without sysfs has nothing: None and no governor, not 0."""
    assert frequency_hertz(machine.sys) is None
    machine.online("0-3")

    assert frequency_hertz(machine.sys) is None
    assert governors(machine.sys) == ()


def test_large_hosts_are_sampled_evenly(machine: Machine) -> None:
    """Of 256 CPUs a fixed few are read, from all over the host."""
    machine.online("0-255")

    assert sampled_cpus(machine.sys) == list(range(0, 256, 256 // MOST_CPUS))


@pytest.mark.parametrize("count", [1, 2, MOST_CPUS - 1, MOST_CPUS, MOST_CPUS + 1, 100])
def test_no_cpu_is_sampled_twice(machine: Machine, count: int) -> None:
    """Small hosts are read whole."""
    machine.online(f"0-{count - 1}")

    assert len(set(sampled_cpus(machine.sys))) == len(sampled_cpus(machine.sys)) == min(count, MOST_CPUS)


def test_each_governor_in_use_is_named_once(machine: Machine) -> None:
    """CPUs may have different ones."""
    machine.online("0-2")
    for number, governor in enumerate(("powersave", "performance", "powersave")):
        machine.cpu(number, 1, governor)

    assert governors(machine.sys) == ("performance", "powersave")


def test_pressure_is_the_time_in_which_some_task_waited(machine: Machine) -> None:
    """Microseconds since boot become seconds; "full" is another matter."""
    for resource, total in (("cpu", 5_500_000), ("memory", 0), ("io", 250_000)):
        machine.write(f"proc/pressure/{resource}", PSI.format(total))

    assert pressure_seconds(machine.proc) == {"cpu": 5.5, "memory": 0.0, "io": 0.25}


def test_pressure_that_is_not_accounted_for_is_left_out(machine: Machine) -> None:
    """No file, an empty one, one that cannot be read, one without the line: each resource for itself."""
    assert pressure_seconds(machine.proc) == {}
    machine.write("proc/pressure/cpu", "")
    (machine.proc / "pressure/memory").symlink_to("/proc/self/mem")
    machine.write("proc/pressure/io", "full avg10=0.00 total=7\n")

    assert pressure_seconds(machine.proc) == {}


@needs_root
def test_another_user_reads_what_root_reads() -> None:
    """Everything here is world-readable on the real host, where it exists at all."""
    expression = "[sorted(c.pressure_seconds()), c.frequency_hertz() is None, c.governors()]"

    found = as_nobody("from solpi_exporter.host import cpu as c", expression)

    assert found == [sorted(pressure_seconds()), frequency_hertz() is None, list(governors())]
