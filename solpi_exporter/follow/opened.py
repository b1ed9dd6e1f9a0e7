"""Files that are open for reading at offsets: plain ones, and compressed generations, which have stopped growing."""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import PurePath
from types import MappingProxyType
from typing import IO, NamedTuple, Protocol

from solpi_exporter.follow.position import Identity

COMPRESSIONS: Mapping[str, Callable[[FileIO], IO[bytes]]] = MappingProxyType(
    {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}  # type: ignore[dict-item]
)
# Never followed as text.
COMPRESSED = (*COMPRESSIONS, ".zst", ".lz4", ".zip")

STEP = 1 << 20


class Status(NamedTuple):
    """What a file says of itself; the size is None where only reading tells. `mtime` is in nanoseconds.

    `named`: it has a name by which a writer may find it.
    """

    size: int | None
    mtime: int
    named: bool


class Opened(Protocol):
    """A file, whatever holds it."""

    @property
    def identity(self) -> Identity:
        """Device and inode."""
        ...

    def status(self) -> Status:
        """Return size and time of last change; raise OSError."""
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes from `offset` on, fewer only at the end; raise OSError."""
        ...

    def data_after(self, offset: int) -> int:
        """Return where the data after a hole at `offset` begins; `offset` where there is no hole."""
        ...

    def close(self) -> None:
        """Give the descriptor free."""
        ...


class PlainFile:
    """A file as it is."""

    def __init__(self, path: str) -> None:
        self._file = FileIO(path)
        self._descriptor = self._file.fileno()
        status = os.fstat(self._descriptor)
        self.identity: Identity = (status.st_dev, status.st_ino)
        self._status = Status(status.st_size, status.st_mtime_ns, status.st_nlink > 0)

    def status(self) -> Status:
        """Ask the descriptor, as is done with every file ten times a second; the same object while nothing changes."""
        now, last = os.fstat(self._descriptor), self._status
        if now.st_size == last.size and now.st_mtime_ns == last.mtime and (now.st_nlink > 0) == last.named:
            return last
        self._status = Status(now.st_size, now.st_mtime_ns, now.st_nlink > 0)
        return self._status

    def pread(self, length: int, offset: int) -> bytes:
        """Read once: a regular file gives all there is."""
        return os.pread(self._descriptor, length, offset)

    def data_after(self, offset: int) -> int:
        """Ask the file system, where it knows holes."""
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError:
            return offset

    def close(self) -> None:
        """Close it; its number may be another file's from now on."""
        self._file.close()
        self._descriptor = -1


class CompressedFile:
    """What a compressed file holds. Reading onwards is cheap; what lies more than the last bytes back is read anew."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._packed = FileIO(path)
        status = os.fstat(self._packed.fileno())
        self.identity: Identity = (status.st_dev, status.st_ino)
        self._mtime = status.st_mtime_ns
        self._file: IO[bytes] | None = None
        self._begin = 0
        self._buffer = b""

    def status(self) -> Status:
        """Only reading tells the size."""
        return Status(None, self._mtime, named=True)

    def pread(self, length: int, offset: int) -> bytes:
        """Return what is there; OSError also where the file is cut off or damaged."""
        if self._file is None or offset < self._begin:
            self._packed.seek(0)
            self._file = COMPRESSIONS[PurePath(self._path).suffix](self._packed)
            self._begin, self._buffer = 0, b""
        try:
            while self._begin + len(self._buffer) < offset + length and (data := self._file.read(STEP)):
                drop = min(len(self._buffer), max(0, offset - self._begin))
                self._begin += drop
                self._buffer = self._buffer[drop:] + data
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            self._file = None  # nobody knows where the decompressor is now: the next read begins anew
            raise OSError(f"{self._path} is damaged: {error}") from error
        start = offset - self._begin
        return self._buffer[start : start + length]

    def data_after(self, offset: int) -> int:
        """Compressing has filled the holes."""
        return offset

    def close(self) -> None:
        """Close both."""
        if self._file is not None:
            self._file.close()
        self._packed.close()


def open_any(path: str) -> Opened:
    """Open a file by its name's ending; raise OSError."""
    return CompressedFile(path) if PurePath(path).suffix in COMPRESSIONS else PlainFile(path)
