"""What host this is."""

from pathlib import Path

import pytest

from solpi_exporter.host.model import cpu_model, kernel_release
from tests.host.machine import Machine

X86 = (
    "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654 96-Core Processor\n\nprocessor\t: 1\nmodel name\t: X\n"
)
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n\nprocessor\t: 1\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("text", "model"),
    [(X86, "AMD EPYC 9654 96-Core Processor"), (ARM, "ARM 0x41 0xd4f"), ("processor\t: 0\n", None), ("", None)],
)
def test_the_cpu_has_a_name(machine: Machine, text: str, model: str | None) -> None:
    """That of the first CPU; on ARM the numbers that stand for one."""
    machine.write("proc/cpuinfo", text)

    assert cpu_model(machine.proc) == model


def test_the_kernel_has_a_release(machine: Machine) -> None:
    """As uname tells it."""
    machine.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")

    assert kernel_release(machine.proc) == "6.8.0-45-generic"


def test_a_host_that_tells_nothing_is_not_known(machine: Machine) -> None:
    """Neither is made up."""
    assert cpu_model(machine.proc) is None
    assert kernel_release(machine.proc) is None


def test_this_host_tells_both() -> None:
    """On the real files."""
    assert cpu_model()
    assert kernel_release()
