"""The state directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from solpi_exporter import statedir
from solpi_exporter.statedir import (
    PID_FILE,
    QUIESCED,
    RUNNING,
    Holder,
    Loaded,
    StateDir,
    StateDirBusy,
    StateNotSaved,
    holder,
)


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


@dataclass(frozen=True, slots=True)
class Shape:
    """A state."""

    values: dict[str, tuple[float | None, ...]]
    name: str = "x"


FIRST, SECOND = Shape({"GPU-a": (1.5, None)}), Shape({"GPU-a": (2.5, None)}, "y")


def test_a_state_is_read_as_it_was_written(state: StateDir) -> None:
    """By this daemon and by the next; what was never written is nothing, and nothing is wrong with that."""
    state.write("gpu", FIRST)
    state.write("gpu", SECOND)
    state.close()

    again = StateDir(state.path)

    assert again.read("gpu", Shape) == Loaded(SECOND, None)
    assert again.read("other", Shape) == Loaded(None, None)
    assert sorted(path.name for path in state.path.iterdir()) == [
        "gpu.json",
        "gpu~before.json",
        "gpu~copy.json",
        PID_FILE,
    ]
    again.close()


def test_a_name_with_a_slash_is_a_file_of_the_directory(state: StateDir) -> None:
    """Sources are called so."""
    state.write("engine_log/vllm", FIRST)

    assert (state.path / "engine_log-vllm.json").exists()
    assert state.read("engine_log/vllm", Shape).value == FIRST


def test_a_state_cut_or_changed_at_any_byte_is_survived(state: StateDir) -> None:
    """The one before is used, and that is told; only the newline at the end is of no account."""
    state.write("log", FIRST)
    state.write("log", SECOND, copy=False)
    path = state.path / "log.json"
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole) - 1)]
    damaged += [whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in (1, 128)]
    damaged += [b"\0" * len(whole), whole + whole, whole[1:]]

    for data in damaged:
        path.write_bytes(data)
        loaded = state.read("log", Shape)
        assert loaded.value == FIRST
        assert loaded.damage == f"{path} is damaged: its checksum does not fit"

    path.write_bytes(whole[:-1])
    assert state.read("log", Shape) == Loaded(SECOND, None)


def test_a_kill_between_two_renamings_leaves_the_one_before(state: StateDir) -> None:
    """It is what was shown last: the new one would have been shown only then."""
    state.write("log", FIRST, copy=False)
    (state.path / "log.json").rename(state.path / "log~before.json")

    assert state.read("log", Shape) == Loaded(FIRST, None)


def test_the_copy_is_what_is_left_after_a_power_cut(state: StateDir) -> None:
    """What was written since has not reached the disk: it is empty, and so is the one before it."""
    state.write("log", FIRST)
    state.write("log", SECOND, copy=False)
    for name in ("log.json", "log~before.json"):
        (state.path / name).write_bytes(b"")

    loaded = state.read("log", Shape)

    assert loaded.value == FIRST
    assert (loaded.damage or "").count("its checksum does not fit") == 2


def test_the_copy_is_on_the_disk_before_the_state_changes(state: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only the copy: a state that changes all the time would wait for the disk all the time."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))

    state.write("log", FIRST, copy=False)
    assert synced == []
    state.write("log", SECOND)

    assert synced == [f"{state.path}/log~copy.json.new"]


def test_a_write_that_is_cut_short_is_none(state: StateDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up takes the beginning of a file, and says so by the number of bytes."""
    state.write("log", FIRST)
    monkeypatch.setattr(statedir, "FileIO", lambda file, mode: Short(file, mode))

    with pytest.raises(StateNotSaved, match="No space left on device"):
        state.write("log", SECOND, copy=False)

    assert state.read("log", Shape) == Loaded(FIRST, None)


class Short(FileIO):
    """A file on a disk that has room for ten bytes."""

    def write(self, data: Any) -> int:
        return super().write(data[:10])


@pytest.mark.parametrize("data", [b"", b'{"a": 1', b"\xff\xfe\x00", b"\x00" * 64, b"[" * 100_000])
def test_a_state_damaged_beyond_use_is_nothing(state: StateDir, data: bytes) -> None:
    """Whatever a crash or a person left there, the daemon starts, and says what is wrong with both files."""
    for name in ("gpu.json", "gpu~copy.json"):
        (state.path / name).write_bytes(data)

    loaded = state.read("gpu", Shape)

    assert loaded.value is None
    assert loaded.damage is not None
    assert loaded.damage.count("its checksum does not fit") == 2


def test_a_state_of_another_kind_is_damage(state: StateDir) -> None:
    """One that an older version wrote, of which this one makes nothing."""
    state.write("gpu", {"values": 7})

    loaded = state.read("gpu", Shape)

    assert loaded.value is None
    assert "Expected `object`, got `int` - at `$.values`" in (loaded.damage or "")


def test_a_deeply_nested_state_is_damage(state: StateDir) -> None:
    """With a checksum that fits, as nobody but a person could have written it."""
    text = b"[" * 100_000
    for name in ("gpu.json", "gpu~copy.json"):
        (state.path / name).write_bytes(b"%08x %s\n" % (crc32(text), text))

    assert state.read("gpu", object).value is None


def test_a_file_that_cannot_be_read_is_damage(state: StateDir) -> None:
    """A directory in its place, say."""
    state.write("gpu", FIRST)
    (state.path / "gpu.json").unlink()
    (state.path / "gpu.json").mkdir()

    loaded = state.read("gpu", Shape)

    assert loaded == Loaded(FIRST, f"{state.path}/gpu.json cannot be read: Is a directory")


def test_a_state_that_cannot_be_written_leaves_the_one_before(state: StateDir) -> None:
    """The error is named, so that a full disk stops nobody."""
    state.write("gpu", FIRST)
    (state.path / "gpu.json.new").mkdir()

    with pytest.raises(StateNotSaved, match=r"state file .*/gpu.json cannot be written: Is a directory"):
        state.write("gpu", SECOND, copy=False)

    assert state.read("gpu", Shape).value == FIRST
