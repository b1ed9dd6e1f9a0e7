"""A log's writer that does to its files whatever rotates logs, at random, and knows what it has written."""

import gzip
import os
import shutil
from pathlib import Path
from random import Random

ROTATIONS = ("rename", "rename", "copytruncate", "double", "gap", "late")


class Writer:
    """Writes numbered lines to `path`; `written` are those that are complete, `kept` the generations that stay.

    What it does is what logrotate, kubelet or a person may do at any moment. It does nothing by which lines are lost to
    everybody: it cuts a file only after copying all of it, and between the two nothing is written.
    """

    def __init__(self, path: Path, seed: int, *, appending: bool = True, kept: int = 7) -> None:
        self.path = path
        self.random = Random(seed)
        self.written: list[bytes] = []
        self._appending = appending
        self._kept = kept
        self._file = self._open()
        self._half: bytes | None = None
        self._whole = b""

    def write(self, most: int = 30) -> None:
        """Write some lines in one go, and at times only the first half of another one."""
        data = self._finished()
        for _ in range(self.random.randint(1, most)):
            data += self._line()
        if self.random.random() < 0.3:
            line = self._line()
            cut = self.random.randint(1, len(line) - 1)
            self.written.pop()
            self._half = line[cut:]
            self._whole = line[:-1]
            data += line[:cut]
        os.write(self._file, data)

    def complete(self) -> None:
        """Write the other half of an unfinished line."""
        os.write(self._file, self._finished())

    def rotate(self) -> str:
        """Do one of the rotations, and return which."""
        how = self.random.choice(ROTATIONS)
        self.complete()
        match how:
            case "rename":
                self.rename()
            case "copytruncate":
                self.copytruncate()
            case "double":
                self.rename()
                self.write()
                self.complete()
                self.random.choice((self.rename, self.copytruncate))()
            case "gap":
                self._shift()
                self.path.rename(self.older(1))
                os.close(self._file)
                self._file = self._open()
            case "late":
                self._late()
        if self.random.random() < 0.7:
            self.write()
        return how

    def rename(self) -> None:
        """Move the file away and write to a new one under its name."""
        self._shift()
        self.path.rename(self.older(1))
        self._reopen()

    def copytruncate(self) -> None:
        """Copy the file and cut it to nothing; one who does not append goes on at the old place, behind a hole."""
        self._shift()
        shutil.copyfile(self.path, self.older(1))
        os.truncate(self.path, 0)

    def recreate(self) -> None:
        """Remove the file, which must have been read, and write to a new one."""
        self.complete()
        self.path.unlink()
        self._reopen()

    def older(self, number: int) -> Path:
        """Return the name of a rotated generation."""
        return self.path.with_name(f"{self.path.name}.{number}")

    def close(self) -> None:
        os.close(self._file)

    def _late(self) -> None:
        """Rotate a file that is not empty by renaming; the writer takes note of that only some lines later."""
        self.write(5)
        self.complete()
        self._shift()
        self.path.rename(self.older(1))
        self.path.touch()
        self.write(5)
        self.complete()
        self._reopen()

    def _shift(self) -> None:
        """Number every generation one higher, as logrotate does, and compress some of them."""
        for number in range(self._kept, 0, -1):
            for ending in ("", ".gz"):
                old = self.older(number).with_name(self.older(number).name + ending)
                if old.exists() and number == self._kept:
                    old.unlink()
                elif old.exists():
                    old.rename(old.with_name(self.older(number + 1).name + ending))
        if self.older(3).exists() and self.random.random() < 0.5:
            _compress(self.older(3))

    def _line(self) -> bytes:
        number = len(self.written)
        line = b"line %d %s" % (number, b"x" * int(self.random.expovariate(1 / 60)))
        self.written.append(line)
        return line + b"\n"

    def _finished(self) -> bytes:
        half, self._half = self._half, None
        if half is None:
            return b""
        self.written.append(self._whole)
        return half

    def _reopen(self) -> None:
        os.close(self._file)
        self._file = self._open()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if self._appending else 0)
        return os.open(self.path, flags, 0o644)


def _compress(path: Path) -> None:
    """Do what gzip does: the time of the last change stays."""
    status = path.stat()
    packed = path.with_name(path.name + ".gz")
    with path.open("rb") as plain, gzip.open(packed, "wb") as file:
        shutil.copyfileobj(plain, file)
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()
