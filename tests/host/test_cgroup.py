"""Which cgroup a process is in, and how long CPU limits held it back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from solpi_exporter.host.cgroup import Membership, read_membership, throttled_seconds
from solpi_exporter.host.files import CGROUPS
from tests.host.machine import Machine, as_nobody, needs_root

UNIT = "/system.slice/vllm.service"
V1 = "9:name=systemd:/system.slice/vllm.service\n4:cpu,cpuacct:/system.slice/vllm.service\n3:cpuset:/\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("lines", "path", "folder"),
    [
        (f"0::{UNIT}\n", UNIT, UNIT[1:]),
        ("0::/\n", "/", ""),
        (V1, UNIT, "cpu,cpuacct" + UNIT),
        (V1 + "0::/\n", UNIT, "cpu,cpuacct" + UNIT),
        (V1.replace(UNIT, "/docker/1") + f"0::{UNIT}\n", UNIT, "cpu,cpuacct/docker/1"),
        ("2:cpuacct:/a\n1:cpu:/b\n0::/\n", "/b", "cpu/b"),
        ("3:cpuset:/a\n0::/\n", "/", ""),
        ("3:cpuset:/a\n", None, None),
        ("0::/a:b::c\n", "/a:b::c", "a:b::c"),
        ("", None, None),
    ],
    ids=["v2", "v2-root", "v1", "hybrid", "hybrid-docker", "v1-apart", "no-cpu", "v1-no-cpu", "colons", "empty"],
)
def test_a_cgroup_is_found_in_each_version(machine: Machine, lines: str, path: str | None, folder: str | None) -> None:
    """The unified hierarchy names it where it says anything; the CPU's controller keeps it where it is listed."""
    machine.process(42, cgroup=lines)

    assert read_membership(42, machine.proc) == Membership(path, folder)


def test_the_cgroup_of_a_process_that_has_gone_is_not_known(machine: Machine) -> None:
    """Neither path nor folder."""
    assert read_membership(42, machine.proc) == Membership()


def test_every_level_tells_its_own_throttling(machine: Machine) -> None:
    """A limit may stand on a pod's slice; what it held back is in its cpu.stat and not in that of the process."""
    machine.throttled("/pods.slice/one/vllm", 0)
    machine.throttled("/pods.slice/one", 2_500_000)
    machine.write("sys/fs/cgroup/cpu.stat", "usage_usec 9\nuser_usec 8\nsystem_usec 1\n")

    levels = throttled_seconds("pods.slice/one/vllm", machine.cgroups)

    assert levels == {"pods.slice/one/vllm": 0.0, "pods.slice/one": 2.5}


def test_a_level_without_the_controller_is_left_out(machine: Machine) -> None:
    """Its cpu.stat has no throttling in it, which is not a throttling of 0; the level above may have."""
    machine.write("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 9\nuser_usec 8\nsystem_usec 1\n")
    machine.throttled("/a", 1_000_000)

    assert throttled_seconds("a/b", machine.cgroups) == {"a": 1.0}


def test_version_1_counts_nanoseconds(machine: Machine) -> None:
    """It calls the number throttled_time."""
    stat = "nr_periods 9\nnr_throttled 3\nthrottled_time {}\n"
    machine.write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.stat", stat.format(3_500_000_000))
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.stat", stat.format(0))

    levels = throttled_seconds("cpu,cpuacct/docker/1", machine.cgroups)

    assert levels == {"cpu,cpuacct/docker/1": 3.5, "cpu,cpuacct": 0.0}


def test_the_root_of_a_namespace_is_a_level(machine: Machine) -> None:
    """Beside a server in one container, "/" is the container's cgroup, and may have the limit."""
    machine.throttled("", 4_000_000)

    assert throttled_seconds("", machine.cgroups) == {".": 4.0}


@pytest.mark.parametrize("folder", ["../other/vllm", "elsewhere/vllm"])
def test_a_cgroup_outside_of_this_root_is_not_known(machine: Machine, folder: str) -> None:
    """What is here belongs to somebody else then: neither the levels above nor a folder beside the root is read."""
    machine.throttled("", 4_000_000)
    machine.throttled("/../other/vllm", 5_000_000)

    assert throttled_seconds(folder, machine.cgroups) == {}


def test_without_cgroups_nothing_is_known(machine: Machine) -> None:
    """The folder is not even there."""
    assert throttled_seconds("a/b", machine.cgroups) == {}


@pytest.fixture
def limited() -> Iterator[Path]:
    """Make a cgroup of this host that may use a tenth of a CPU, in whichever version has the controller."""
    v1 = CGROUPS / "cpu/cpu.cfs_quota_us"
    v2 = CGROUPS / "cgroup.subtree_control"
    if not v1.exists() and not (v2.exists() and "cpu" in v2.read_text().split()):
        pytest.skip("no CPU controller to be used here")
    cgroup = (CGROUPS / "cpu" if v1.exists() else CGROUPS) / f"solpi-test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        if v1.exists():
            (cgroup / "cpu.cfs_period_us").write_text("10000")
            (cgroup / "cpu.cfs_quota_us").write_text("1000")
        else:
            (cgroup / "cpu.max").write_text("1000 10000")
        yield cgroup
    finally:
        cgroup.rmdir()


@needs_root
def test_a_real_limit_is_seen_by_another_user(limited: Path) -> None:
    """A process that used 20 ms at a tenth of a CPU was held back for most of 200 ms."""
    code = (
        f"import os, sys, time; open({str(limited / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        "end = time.process_time() + 0.02\nwhile time.process_time() < end: pass\nprint(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as burner:
        assert burner.stdout is not None
        burner.stdout.readline()
        expression = f"c.throttled_seconds(c.read_membership({burner.pid}).folder)"
        levels = as_nobody("from solpi_exporter.host import cgroup as c", expression)
        burner.communicate()

    assert 0.05 < levels[str(limited.relative_to(CGROUPS))] < 10.0
