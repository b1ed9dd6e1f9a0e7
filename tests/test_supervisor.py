"""What the service manager is told."""

import os
import socket
from pathlib import Path

import pytest

from solpi_exporter.board import Board, Entry
from solpi_exporter.source import SourceError
from solpi_exporter.supervisor import Supervisor, supervisor_of


def entries(**states: bool | None) -> tuple[Entry, ...]:
    """Return the entries of sources that were polled, well or not, or not yet."""
    board = Board()
    for name, is_well in states.items():
        board.add(name, 3.0)
        if is_well:
            board.succeed(name, (), 0.0, 0.0)
        elif is_well is not None:
            board.fail(name, SourceError("it does not answer"), 0.0)
    return board.snapshot().entries


def test_ready_is_told_once() -> None:
    """And only once it is so."""
    told: list[str] = []
    supervisor = Supervisor(told.append)

    for is_ready in (False, True, True):
        supervisor.look(entries(gpu=True), is_ready=is_ready, now=0.0)

    assert told == ["STATUS=1 of 1 sources are well", "READY=1"]


def test_a_status_is_told_when_it_changes() -> None:
    """One line names what is not well."""
    told: list[str] = []
    supervisor = Supervisor(told.append)

    for states in (entries(gpu=None, log=True), entries(gpu=False, log=True), entries(gpu=False, log=True)):
        supervisor.look(states, is_ready=False, now=0.0)

    assert told == ["STATUS=1 of 2 sources are well, gpu pending", "STATUS=1 of 2 sources are well, gpu down"]


@pytest.mark.parametrize(("patience", "times"), [(None, 0), (30.0, 3), (6.0, 11)])
def test_the_watchdog_is_fed_twice_in_its_patience(patience: float | None, times: int) -> None:
    """By a loop that looks every two seconds; without a watchdog, not at all."""
    told: list[str] = []
    supervisor = Supervisor(told.append, patience)

    for now in range(0, 42, 2):
        supervisor.look((), is_ready=False, now=float(now))

    assert told.count("WATCHDOG=1") == times


@pytest.mark.parametrize("is_abstract", [False, True])
def test_it_is_told_by_datagrams_to_where_the_environment_says(is_abstract: bool, tmp_path: Path) -> None:
    """A path, or a name of the abstract namespace; reload and end are told as well."""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if is_abstract else name)
        address = f"@{name}" if is_abstract else name
        supervisor = supervisor_of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"})

        supervisor.reloading()
        supervisor.stopping()

        assert manager.recv(99).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert manager.recv(99) == b"STOPPING=1"
        assert supervisor.patience == 30.0


def test_a_manager_that_is_gone_is_no_harm(tmp_path: Path) -> None:
    """Nor is one that does not read, whose queue is full."""
    supervisor_of({"NOTIFY_SOCKET": str(tmp_path / "gone")}).stopping()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "deaf"))
        supervisor = supervisor_of({"NOTIFY_SOCKET": str(tmp_path / "deaf")})
        for _ in range(2000):
            supervisor.tell("STATUS=" + "x" * 1000)
        assert manager.recv(9) == b"STATUS=xx"


def test_without_a_manager_nobody_is_told() -> None:
    """Nor is a watchdog fed that watches another process."""
    supervisor = supervisor_of({"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"})
    supervisor.stopping()

    assert supervisor.patience is None
    other = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1", "WATCHDOG_PID": str(os.getpid() + 1)}
    assert supervisor_of(other).patience is None
