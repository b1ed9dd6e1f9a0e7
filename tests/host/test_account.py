"""CPU time of one server, made of processes that come and go."""

from pathlib import Path

import pytest

from solpi_exporter.host.account import ServerAccount, Total
from tests.host.machine import TICK, Machine

SECOND = 1_000_000_000


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def account() -> ServerAccount:
    return ServerAccount()


def totals(account: ServerAccount) -> tuple[float | None, float | None, float | None]:
    """Return throttling, run delay and CPU time."""
    return account.throttled.seconds, account.run_delay.seconds, account.cpu.seconds


def advance(account: ServerAccount, machine: Machine, *pids: int) -> None:
    account.advance(pids, machine.proc, machine.cgroups)


def test_nothing_seen_is_not_known() -> None:
    """A total of no counter at all is None, not 0."""
    total: Total[str] = Total()

    total.advance({})

    assert total.seconds is None


def test_a_total_begins_at_zero_and_adds_what_is_new() -> None:
    """What a counter had before it was first seen adds nothing."""
    total: Total[str] = Total()

    total.advance({"a": 100.0})
    assert total.seconds == 0.0
    total.advance({"a": 101.0, "b": 50.0})
    assert total.seconds == 1.0
    total.advance({"a": 102.0, "b": 52.0})
    assert total.seconds == 4.0


def test_a_total_never_goes_backwards() -> None:
    """A counter that falls adds nothing, and counts on from where it fell to."""
    total: Total[str] = Total()

    for value in (100.0, 110.0, 3.0, 4.0):
        total.advance({"a": value})

    assert total.seconds == 11.0


def test_counters_that_are_gone_are_forgotten() -> None:
    """The total stays; a counter that comes back is new."""
    total: Total[str] = Total()
    total.advance({"a": 1.0})
    total.advance({"a": 3.0})

    total.advance({})
    assert total.seconds == 2.0
    assert not total._last
    total.advance({"a": 30.0})
    assert total.seconds == 2.0


def test_cpu_time_is_summed_over_processes(machine: Machine, account: ServerAccount) -> None:
    """User and system time of all of them, from the first sight on."""
    for pid, ticks in ((42, 100 * TICK), (43, 50 * TICK)):
        machine.process(pid, ticks=(ticks, 0))
    advance(account, machine, 42, 43)
    machine.process(42, ticks=(103 * TICK, TICK))
    machine.process(43, ticks=(50 * TICK, 2 * TICK))

    advance(account, machine, 42, 43)

    assert account.cpu.seconds == 6.0


def test_a_reused_pid_is_another_process(machine: Machine, account: ServerAccount) -> None:
    """Though its counters stand higher than the last ones: it has another start time."""
    machine.process(42, started=500, ticks=(TICK, 0))
    machine.threads(42, {42: SECOND})
    advance(account, machine, 42)
    machine.process(42, started=900, ticks=(1000 * TICK, 0))
    machine.threads(42, {42: 1000 * SECOND})

    advance(account, machine, 42)
    assert totals(account) == (None, 0.0, 0.0)
    machine.process(42, started=900, ticks=(1001 * TICK, 0))
    machine.threads(42, {42: 1002 * SECOND})
    advance(account, machine, 42)
    assert totals(account) == (None, 2.0, 1.0)


def test_totals_survive_a_restart(machine: Machine, account: ServerAccount) -> None:
    """The processes go, the totals stay, and grow on with the new processes."""
    machine.process(42, ticks=(0, 0))
    advance(account, machine, 42)
    machine.process(42, ticks=(5 * TICK, 0))
    advance(account, machine, 42)
    machine.remove("proc/42")

    advance(account, machine, 42)
    assert account.cpu.seconds == 5.0
    machine.process(77, started=900, ticks=(3 * TICK, 0))
    advance(account, machine, 77)
    machine.process(77, started=900, ticks=(4 * TICK, 0))
    advance(account, machine, 77)
    assert account.cpu.seconds == 6.0


def test_a_thread_that_ends_takes_nothing_away(machine: Machine, account: ServerAccount) -> None:
    """What it had waited until the last poll stays; those that are left count on."""
    machine.process(42)
    machine.threads(42, {42: 0, 43: 0})
    advance(account, machine, 42)
    machine.threads(42, {42: SECOND, 43: 5 * SECOND})
    advance(account, machine, 42)
    machine.threads(42, {42: 2 * SECOND})

    advance(account, machine, 42)

    assert account.run_delay.seconds == 7.0


def test_throttling_of_a_parent_counts(machine: Machine, account: ServerAccount) -> None:
    """The limit may stand on the slice; the history that it had before does not hide what is new below it."""
    machine.process(42, cgroup="0::/pod/vllm\n")
    machine.throttled("/pod/vllm", 0)
    machine.throttled("/pod", 900_000_000)
    advance(account, machine, 42)
    machine.throttled("/pod", 901_000_000)
    advance(account, machine, 42)
    assert account.throttled.seconds == 1.0
    machine.throttled("/pod/vllm", 2_000_000)

    advance(account, machine, 42)

    assert account.throttled.seconds == 3.0


def test_levels_that_hold_back_at_once_count_once(machine: Machine, account: ServerAccount) -> None:
    """The largest increase is taken, not the sum."""
    machine.process(42, cgroup="0::/pod/vllm\n")
    for level in ("/pod/vllm", "/pod"):
        machine.throttled(level, 0)
    advance(account, machine, 42)
    machine.throttled("/pod/vllm", 2_000_000)
    machine.throttled("/pod", 3_000_000)

    advance(account, machine, 42)

    assert account.throttled.seconds == 3.0


def test_processes_in_one_cgroup_are_throttled_once(machine: Machine, account: ServerAccount) -> None:
    """Three processes of one server in one cgroup were held back together."""
    for pid in (42, 43, 44):
        machine.process(pid)
    machine.throttled("/app.slice/vllm.service", 0)
    advance(account, machine, 42, 43, 44)
    machine.throttled("/app.slice/vllm.service", 1_000_000)

    advance(account, machine, 42, 43, 44)

    assert account.throttled.seconds == 1.0


def test_a_cgroup_made_anew_takes_nothing_away(machine: Machine, account: ServerAccount) -> None:
    """A unit that is restarted has the same path and counts from 0 again."""
    for throttled in (0, 4_000_000, 1_000_000, 1_500_000):
        machine.process(42)
        machine.throttled("/app.slice/vllm.service", throttled)
        advance(account, machine, 42)

    assert account.throttled.seconds == 4.5


def test_what_the_host_does_not_tell_is_not_known(machine: Machine, account: ServerAccount) -> None:
    """Without cgroups and without schedstat there is CPU time, and no 0 for the others."""
    machine.process(42, cgroup="")

    advance(account, machine, 42)

    assert totals(account) == (None, None, 0.0)
