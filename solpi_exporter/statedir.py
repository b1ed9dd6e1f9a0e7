"""The state directory: held by one daemon at a time, so that two never keep their state over one another.

The lock is on the pid file, which also says in which mode its holder is: the commands `quiesce` and `resume` read it.

A state is one file that is replaced as a whole, and begins with a checksum of the rest; the one before it is kept. That
outlives a kill at any instant. A copy from some seconds before, which has reached the disk, outlives a power cut.
"""

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOSPC
from io import FileIO
from pathlib import Path
from typing import Generic, TypeVar
from zlib import crc32

import msgspec

PID_FILE = "solpi-exporter.pid"
RUNNING, QUIESCED = "running", "quiesced"

BEFORE, COPY = "~before", "~copy"  # no name of a server holds that

State = TypeVar("State")


class StateDirBusy(Exception):
    """The directory cannot be had; the message is one line and says why."""


class StateNotSaved(Exception):
    """A state file could not be written, and the one before it is still there; the message is one line and says why."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[State]):
    """What was kept under a name: `value` is None where that is nothing, or nothing that can be used.

    `damage` says what was wrong with the state or its copy; with a value beside it, the other one is used.
    """

    value: State | None
    damage: str | None


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

    def read(self, name: str, kind: type[State]) -> Loaded[State]:
        """Return the state of type `kind` that was last written under `name`; where that is damaged, one before it."""
        damages: list[str] = []
        for path in (self._path(name), self._path(name, BEFORE), self._path(name, COPY)):
            try:
                return Loaded(_decoded(Path(path).read_bytes(), kind), "; ".join(damages) or None)
            except FileNotFoundError:
                continue
            except OSError as error:
                damages.append(f"{path} cannot be read: {error.strerror}")
            except (ValueError, RecursionError) as error:
                damages.append(f"{path} is damaged: {error}")
        return Loaded(None, "; ".join(damages) or None)

    def write(self, name: str, value: object, *, copy: bool = True) -> None:
        """Keep `value` under `name`: wholly or not at all; raise StateNotSaved.

        With `copy` it is brought to the disk as the copy first, which takes a disk's time, mostly some 10 ms.
        """
        try:
            data = msgspec.json.encode(value)
        except (TypeError, ValueError) as error:
            raise StateNotSaved(f"state {name} cannot be written: {error}") from error
        data = b"%08x %s\n" % (crc32(data), data)
        if copy:
            _write(self._path(name, COPY), None, data, to_disk=True)
        _write(self._path(name), self._path(name, BEFORE), data, to_disk=False)

    def close(self) -> None:
        """Give the directory free."""
        self._file.close()

    def _path(self, name: str, which: str = "") -> str:
        return f"{self.path}/{name.replace('/', '-')}{which}.json"

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


def _decoded(data: bytes, kind: type[State]) -> State:
    """Return the state in a file; raise ValueError where it is not whole, or not of this kind."""
    checksum, _, rest = data.partition(b" ")
    text = rest.removesuffix(b"\n")
    if checksum != b"%08x" % crc32(text):
        raise ValueError("its checksum does not fit")
    return msgspec.json.decode(text, type=kind)


def _write(path: str, before: str | None, data: bytes, *, to_disk: bool) -> None:
    """Replace a file; with `before`, the old one stays under that name, and the one before that is written over.

    So it costs a quarter of what it may: to make a file is dear, and to rename one onto another makes ext4 write it to
    the disk at once, lest a power cut leave an empty one. Whoever is killed between the renamings has shown nothing
    that is newer than what is left.
    """
    new = f"{path}.new"
    try:
        if before is not None:
            with suppress(FileNotFoundError):
                os.rename(before, new)
        with FileIO(os.open(new, os.O_WRONLY | os.O_CREAT, 0o640), "wb") as file:
            if file.write(data) < len(data):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            file.truncate(len(data))
            if to_disk:
                os.fsync(file.fileno())
        if before is not None:
            with suppress(FileNotFoundError):
                os.rename(path, before)
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(new)
        raise StateNotSaved(f"state file {path} cannot be written: {error.strerror}") from error


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
