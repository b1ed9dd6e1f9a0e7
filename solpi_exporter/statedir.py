"""The state directory: held by one daemon at a time, so that two never keep their state over one another.

The lock is on the pid file, which also says in which mode its holder is: the commands `quiesce` and `resume` read it.
"""

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

PID_FILE = "solpi-exporter.pid"
RUNNING, QUIESCED = "running", "quiesced"


class StateDirBusy(Exception):
    """The directory cannot be had; the message is one line and says why."""


class StateNotSaved(Exception):
    """A state file could not be written, and the one before it is still there; the message is one line and says why."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a state directory; `mode` is empty where an older version does."""

    pid: int
    mode: str


class StateDir:
    """Makes and locks the directory; the lock goes with the process, however that ends. Keeps small states as JSON."""

    def __init__(self, path: Path, mode: str = RUNNING) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._file = FileIO(os.open(path / PID_FILE, os.O_RDWR | os.O_CREAT, 0o644), "r+")
        except OSError as error:
            raise StateDirBusy(f"state_dir {path} cannot be written: {error.strerror}") from error
        try:
            self._lock()
            self._sign(mode)
        except OSError as error:
            self._file.close()
            raise StateDirBusy(f"state_dir {path} cannot be locked: {error.strerror}") from error

    def read(self, name: str) -> Any | None:
        """Return what was last written under `name`; None where that is nothing, or damaged."""
        try:
            return json.loads(self._path(name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, name: str, value: Any) -> None:
        """Keep `value`, of what JSON knows, under `name`: wholly or not at all; raise StateNotSaved."""
        data = json.dumps(value).encode()
        path = self._path(name)
        new = path.with_name(path.name + ".new")
        try:
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # else a crash of the host could leave the new name on an empty file
            os.replace(new, path)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise StateNotSaved(f"state file {path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Give the directory free."""
        self._file.close()

    def _path(self, name: str) -> Path:
        return self.path / f"{name}.json"

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            first = self._file.readline().decode(errors="replace").strip() or "unknown"
            self._file.close()
            raise StateDirBusy(
                f"state_dir {self.path} is in use by process {first}: stop it, or choose another --state-dir"
            ) from error

    def _sign(self, mode: str) -> None:
        """Write over what is there, and cut only then: so it needs no room on a full disk, and is never seen empty."""
        text = f"{os.getpid()}\n{mode}\n".encode()
        self._file.write(text)
        self._file.truncate(len(text))


def holder(path: Path) -> Holder | None:
    """Return who holds the directory, None where nobody does; raise OSError where that cannot be read.

    The lock decides: a pid that a crash left behind may be another's by now. So may one that was written in another
    container, hence the process must have the file open. That is asked first: the lock is tried by taking it, for an
    instant in which a daemon that starts would find it taken.
    """
    try:
        file = (path / PID_FILE).open("rb")
    except FileNotFoundError:
        return None
    with file:
        found = _parse(file.read(100).decode(errors="replace"))
        if found is None or not _has_open(found.pid, os.fstat(file.fileno())):
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return found
        return None


def _parse(text: str) -> Holder | None:
    pid, mode, *_ = [*text.split("\n"), ""]
    return Holder(int(pid), mode) if pid.isdecimal() and int(pid) > 0 else None


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    """Return whether the process has the file open; True where that is another user's, and cannot be seen."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return True
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), wanted):
                return True
    return False
