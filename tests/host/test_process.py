"""What procfs tells of one process."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from solpi_exporter.host.process import (
    MOST_ANCESTORS,
    Process,
    allowed_cpus,
    lineage,
    read_process,
    read_stat,
    run_delays,
)
from tests.conftest import find_tool
from tests.host.machine import TICK, Machine, as_nobody, needs_root

IMPORTS = "from solpi_exporter.host import process as p"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_process_is_read(machine: Machine) -> None:
    """Parent, command, cgroup and start come from the files of its folder."""
    machine.process(42, parent=7, command="vllm\0serve\0m\0", started=12345)

    assert read_process(42, machine.proc) == Process(
        42, 7, ("vllm", "serve", "m"), "/app.slice/vllm.service", started=12345
    )


@pytest.mark.parametrize("name", ["a) (b", "VLLM::EngineCor", "(sd-pam)", ") S 1 1 (", "x y"])
def test_a_name_with_blanks_and_parentheses_moves_no_field(machine: Machine, name: str) -> None:
    """Fields are counted from the last closing parenthesis."""
    machine.process(42, parent=7, name=name, started=12345, ticks=(3 * TICK, TICK))

    stat = read_stat(42, machine.proc)

    assert stat is not None
    assert (stat.parent, stat.started, stat.cpu_seconds) == (7, 12345, 4.0)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("VLLM::EngineCore\0\0\0\0\0", ("VLLM::EngineCore",)),
        ("VLLM::EngineCore", ("VLLM::EngineCore",)),
        ("sh\0-c\0\0--x\0", ("sh", "-c", "", "--x")),
        ("", ()),
    ],
)
def test_a_command_line_is_split_at_nuls(machine: Machine, text: str, command: tuple[str, ...]) -> None:
    """A title of the process's own making is one element, its padding none; a kernel thread has no command."""
    machine.process(42, command=text)

    process = read_process(42, machine.proc)

    assert process is not None
    assert process.command == command


@pytest.mark.parametrize("file", ["stat", "cmdline"])
def test_a_process_that_vanishes_while_it_is_read_is_none(machine: Machine, file: str) -> None:
    """Any of its files may be gone first."""
    machine.process(42)
    machine.remove(f"proc/42/{file}")

    assert read_process(42, machine.proc) is None


def test_a_process_that_is_not_there_tells_nothing(machine: Machine) -> None:
    """No process, no CPU time, no delays, no CPUs, no ancestors."""
    assert read_process(42, machine.proc) is None
    assert read_stat(42, machine.proc) is None
    assert run_delays(42, machine.proc) == {}
    assert allowed_cpus(42, machine.proc) == frozenset()
    assert list(lineage(42, machine.proc)) == []


def test_an_empty_stat_is_not_known(machine: Machine) -> None:
    """A process that is being taken down may leave nothing to read."""
    machine.process(42)
    machine.write("proc/42/stat", "")

    assert read_stat(42, machine.proc) is None


def test_a_process_without_a_cgroup_file_is_known(machine: Machine) -> None:
    """A kernel without cgroups leaves the path unknown, and nothing else."""
    machine.process(42)
    machine.remove("proc/42/cgroup")

    process = read_process(42, machine.proc)

    assert process is not None
    assert process.cgroup is None


def test_lineage_goes_up_to_pid_1(machine: Machine) -> None:
    """The process first, then parent by parent; pid 1 is in it and ends it."""
    machine.process(1, parent=0)
    machine.process(10)
    machine.process(42, parent=10)

    assert [process.pid for process in lineage(42, machine.proc)] == [42, 10, 1]


def test_lineage_survives_a_loop(machine: Machine) -> None:
    """Pids reused while they are read may point at one another."""
    machine.process(10, parent=42)
    machine.process(42, parent=10)

    assert [process.pid for process in lineage(42, machine.proc)] == [42, 10]


def test_lineage_ends_at_a_gap(machine: Machine) -> None:
    """A parent that has gone or is hidden ends it, as does the parent 0 of another pid namespace."""
    machine.process(42, parent=10)
    machine.process(43, parent=0)

    assert [process.pid for process in lineage(42, machine.proc)] == [42]
    assert [process.pid for process in lineage(43, machine.proc)] == [43]


def test_lineage_is_bounded(machine: Machine) -> None:
    """No chain, however long, is followed for ever."""
    for pid in range(2, MOST_ANCESTORS + 20):
        machine.process(pid, parent=pid - 1)

    assert len(list(lineage(MOST_ANCESTORS + 19, machine.proc))) == MOST_ANCESTORS


def test_run_delay_is_read_of_every_thread(machine: Machine) -> None:
    """Nanoseconds become seconds, thread by thread."""
    machine.process(42)
    machine.threads(42, {42: 1_500_000_000, 43: 250_000_000})

    assert run_delays(42, machine.proc) == {42: 1.5, 43: 0.25}


def test_a_thread_that_ends_while_it_is_read_is_left_out(machine: Machine) -> None:
    """Its folder was listed and its file is gone."""
    machine.process(42)
    machine.threads(42, {42: 1_000_000_000, 43: 1})
    machine.remove("proc/42/task/43/schedstat")

    assert run_delays(42, machine.proc) == {42: 1.0}


def test_a_kernel_that_counts_no_run_delay_is_not_known(machine: Machine) -> None:
    """It says "0 0 0" of every thread, also of those that run, which is not a delay of 0."""
    machine.process(42)
    machine.threads(42, {42: 0, 43: 0}, turns=0)

    assert run_delays(42, machine.proc) == {}


def test_a_new_thread_has_no_delay_yet(machine: Machine) -> None:
    """One that has not run yet says "0 0 0" too, beside others that have."""
    machine.process(42)
    machine.threads(42, {42: 2_000_000_000})
    machine.write("proc/42/task/43/schedstat", "0 0 0\n")

    assert run_delays(42, machine.proc) == {42: 2.0, 43: 0.0}


def test_allowed_cpus_are_read(machine: Machine) -> None:
    """The list, not the mask."""
    machine.process(42, cpus="0-1,6")

    assert allowed_cpus(42, machine.proc) == {0, 1, 6}


def test_this_process_is_read_from_the_real_procfs() -> None:
    """Pid, parent and command are those that the system says; its CPUs are those it may run on."""
    process = read_process(os.getpid())

    assert process is not None
    assert process.parent == os.getppid()
    assert list(process.command) == sys.orig_argv
    assert allowed_cpus(os.getpid()) == os.sched_getaffinity(0)
    assert [one.pid for one in lineage(os.getpid())][:2] == [os.getpid(), os.getppid()]


def test_cpu_seconds_are_those_of_all_threads_also_ended_ones() -> None:
    """What the kernel says of the whole process, within a few ticks."""
    thread = threading.Thread(target=_burn, args=(0.1,))
    before = read_stat(os.getpid())
    thread.start()
    thread.join()
    after = read_stat(os.getpid())

    assert before is not None
    assert after is not None
    assert after.cpu_seconds - before.cpu_seconds >= 0.1 - 3 / TICK
    assert after.cpu_seconds == pytest.approx(time.process_time(), abs=5 / TICK)
    assert after.started == before.started


def _burn(seconds: float) -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel counts no run delay")
def test_run_delays_of_the_real_procfs_name_every_thread() -> None:
    """Threads that wait are among them, under the ids by which the kernel knows them."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert {os.getpid(), thread.native_id} <= run_delays(os.getpid()).keys()
    finally:
        done.set()
        thread.join()


@needs_root
def test_another_user_reads_a_process_of_root() -> None:
    """All of it is world-readable, while what is not, such as the environment, is refused to the same reader."""
    pid = os.getpid()
    expression = (
        f"[p.read_process({pid}).command, p.read_process({pid}).cgroup, p.read_stat({pid}).cpu_seconds, "
        f"len(p.run_delays({pid})), sorted(p.allowed_cpus({pid})), [one.pid for one in p.lineage({pid})], "
        f"p.read('/proc/{pid}/environ')]"
    )

    command, cgroup, cpu_seconds, threads, cpus, pids, environment = as_nobody(IMPORTS, expression)

    own = read_process(pid)
    assert own is not None
    assert (tuple(command), cgroup, pids) == (own.command, own.cgroup, [one.pid for one in lineage(pid)])
    assert cpu_seconds > 0
    assert threads == len(run_delays(pid))
    assert set(cpus) == os.sched_getaffinity(0)
    assert environment is None


@needs_root
@pytest.mark.parametrize("hidepid", [1, 2])
def test_a_hidden_process_is_none(hidepid: int) -> None:
    """Under hidepid=1 its files are refused, under 2 it is not there; both are None and no error."""
    namespace = [find_tool("unshare"), "--mount", "--pid", "--fork"]
    mount = f"mount -t proc -o hidepid={hidepid} proc /proc"
    if subprocess.run([*namespace, "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this host allows no new namespaces")
    shell = [*namespace, "sh", "-c", f'{mount}; "$@"; exit $?', "sh"]  # pid 1 in there, and root's
    expression = "[p.read_process(1), p.run_delays(1), list(p.lineage(1)), p.read_process(os.getpid()) is None]"

    assert as_nobody(IMPORTS, expression, before=shell) == [None, {}, [], False]
