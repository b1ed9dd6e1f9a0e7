"""The state directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from solpi_exporter.statedir import PID_FILE, QUIESCED, RUNNING, Holder, StateDir, StateDirBusy, StateNotSaved, holder


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDir]:
    state = StateDir(tmp_path / "state")
    yield state
    state.close()


def test_it_is_made_and_held_by_one(tmp_path: Path) -> None:
    """A second daemon is told who has it; once it is free again, it can be had."""
    first = StateDir(tmp_path / "state")
    with pytest.raises(StateDirBusy, match=f"is in use by process {os.getpid()}: stop it, or choose another"):
        StateDir(tmp_path / "state")

    first.close()

    StateDir(tmp_path / "state").close()


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "state").write_text("")

    with pytest.raises(StateDirBusy, match=r"state_dir .*/state cannot be written: File exists"):
        StateDir(tmp_path / "state")


def test_its_holder_is_told_with_its_mode(tmp_path: Path) -> None:
    """A command finds pid and mode while the directory is held, and nobody before and after."""
    assert holder(tmp_path) is None
    first = StateDir(tmp_path)
    assert holder(tmp_path) == Holder(os.getpid(), RUNNING)
    first.close()
    assert holder(tmp_path) is None

    second = StateDir(tmp_path, QUIESCED)

    assert holder(tmp_path) == Holder(os.getpid(), QUIESCED)
    second.close()


def test_asking_for_the_holder_leaves_the_lock(state: StateDir) -> None:
    """The daemon has it before and after."""
    for _ in range(3):
        holder(state.path)

    with pytest.raises(StateDirBusy):
        StateDir(state.path)


def test_a_pid_that_was_left_behind_is_nobodys(tmp_path: Path) -> None:
    """Also where a process of that number lives: nothing but the lock says that somebody is there."""
    (tmp_path / PID_FILE).write_text(f"{os.getpid()}\nrunning\n")

    with (tmp_path / PID_FILE).open():
        assert holder(tmp_path) is None


def test_a_pid_of_elsewhere_is_nobodys(state: StateDir) -> None:
    """A number that another container's daemon wrote is another process here: it does not have the file open."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (state.path / PID_FILE).write_text(f"{other.pid}\nrunning\n")
        assert holder(state.path) is None
        other.communicate(b"\n")


@pytest.mark.parametrize("text", ["", "\n", "0\nrunning\n", "-1\nrunning\n", "who\nrunning\n", "9" * 99])
def test_what_is_no_pid_is_nobody(state: StateDir, text: str) -> None:
    """Least of all 0, which would be every process of the group."""
    (state.path / PID_FILE).write_text(text)

    assert holder(state.path) is None


def test_an_older_version_says_no_mode(state: StateDir) -> None:
    """It is told as such, since it would die of a signal that it does not know."""
    (state.path / PID_FILE).write_text(f"{os.getpid()}\n")

    assert holder(state.path) == Holder(os.getpid(), "")


def test_a_directory_that_cannot_be_read_is_not_free(tmp_path: Path) -> None:
    """Nobody can tell who has it, which is an error and not an answer."""
    (tmp_path / "state").write_text("")

    with pytest.raises(NotADirectoryError):
        holder(tmp_path / "state")


def test_a_state_is_read_as_it_was_written(state: StateDir) -> None:
    """By this daemon and by the next; what was never written is None."""
    state.write("gpu", {"GPU-a": [1.5, None, "x"]})
    state.write("gpu", {"GPU-a": [2.5, None, "x"]})
    state.close()

    again = StateDir(state.path)

    assert again.read("gpu") == {"GPU-a": [2.5, None, "x"]}
    assert again.read("other") is None
    assert sorted(path.name for path in state.path.iterdir()) == ["gpu.json", PID_FILE]
    again.close()


@pytest.mark.parametrize("data", [b"", b'{"a": 1', b"\xff\xfe\x00", b"\x00" * 64, b"[" * 100_000])
def test_a_damaged_state_is_none(state: StateDir, data: bytes) -> None:
    """Whatever a crash or a person left there, the daemon starts."""
    (state.path / "gpu.json").write_bytes(data)

    assert state.read("gpu") is None


def test_a_state_that_cannot_be_written_leaves_the_one_before(state: StateDir) -> None:
    """The error is named, so that a full disk stops nobody."""
    state.write("gpu", 1)
    (state.path / "gpu.json.new").mkdir()

    with pytest.raises(StateNotSaved, match=r"state file .*/gpu.json cannot be written: Is a directory"):
        state.write("gpu", 2)

    assert state.read("gpu") == 1
