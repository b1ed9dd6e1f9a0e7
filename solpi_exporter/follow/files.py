"""Follows files by name or pattern and yields their new complete lines. It has never heard of an engine.

A file is known by device and inode while it is held open, so that a renamed file goes on where it was and a new
file under an old name starts at its beginning. Growth is seen by fstat, not by events.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from io import FileIO
from stat import S_ISREG

from solpi_exporter.clock import Clock
from solpi_exporter.follow.lines import Block, LineCounters
from solpi_exporter.follow.watch import Watcher
from solpi_exporter.source import SourceError

BLOCK = 1 << 20  # bytes read at once, and the longest line that is kept
SCAN_SECONDS = 1.0  # the longest time that a new file goes unnoticed when no event tells of it
DRAIN_SECONDS = 10.0  # how long a file that was rotated away may stand still before it is given up
SEARCH_BYTES = 1 << 30  # how far back the last start is looked for in a log that is joined at its end: a second or two

Identity = tuple[int, int]


@dataclass(slots=True)
class _Followed:
    file: FileIO
    path: str
    offset: int = 0
    partial: bytes = b""
    skipping: bool = False  # inside a line longer than BLOCK
    live: bool = True
    retired: float | None = None

    def lag(self) -> int:
        try:
            return max(0, os.fstat(self.file.fileno()).st_size - self.offset)
        except OSError:
            return 0


class FileFollower:
    """Follows every file that matches `patterns`; files that exist at the first look start at their end or beginning.

    Files that appear later are always read from their beginning. Of a file that is joined at its end, the part around
    its last line that matches `start` is shown as a head.
    """

    def __init__(
        self, patterns: Sequence[str], *, from_beginning: bool, start: re.Pattern[bytes], watcher: Watcher, clock: Clock
    ) -> None:
        self.counters = LineCounters()
        self._patterns = tuple(patterns)
        self._from_beginning = from_beginning
        self._start = start
        self._watcher = watcher
        self._clock = clock
        self._followed: dict[Identity, _Followed] = {}
        self._interrupted: dict[Identity, _Followed] = {}  # could not be read; goes on where it was once it can be
        self._next_scan: float | None = None  # None until the first look

    def read(self, limit: int) -> Iterator[Block]:
        """Yield what is new, at most about `limit` bytes; raise SourceError while there is no file to follow.

        A file that may not be read is tried again at each look; one that has lost its name counts until it is drained.
        """
        yield from self._scan_if_due()
        for identity, file in list(self._followed.items()):
            try:
                for block in self._read_file(file):
                    yield block
                    limit -= len(block.data)
                    if limit <= 0:
                        return
            except OSError:  # stale handle, disk error: this file is opened anew at the next look, the others go on
                self._interrupted[identity] = file
                self._forget(identity)
        if not self._followed:
            raise SourceError(f"no log to follow: {'; '.join(map(_obstacle, self._patterns))}")

    def lag(self) -> int:
        """Return how many bytes are written and not yet read."""
        return sum(file.lag() for file in self._followed.values())

    def close(self) -> None:
        """Close every file and the watcher."""
        self._watcher.close()
        for file in self._followed.values():
            file.file.close()
        self._followed.clear()

    def _scan_if_due(self) -> Iterator[Block]:
        now = self._clock.monotonic()
        if self._watcher.changed() or self._next_scan is None or now >= self._next_scan:
            yield from self._scan(now)

    def _scan(self, now: float) -> Iterator[Block]:
        """Look at the names: open what is new, retire what has lost its name, drop what has been drained.

        While a name cannot be looked at, nobody knows which file it names: nothing is retired then, and a first look is
        not over.
        """
        self._watcher.watch({os.path.dirname(path) or "." for path in self._patterns})
        followed_paths = {file.path for file in self._followed.values()}
        named, whole = self._named()
        for identity, path in named.items():
            if identity in self._followed:
                self._followed[identity].path = path
            else:
                yield from self._open(identity, path, replaced=path in followed_paths)
        if whole:
            self._retire(named.keys(), now)
        if whole or self._next_scan is not None:
            self._next_scan = now + SCAN_SECONDS

    def _named(self) -> tuple[dict[Identity, str], bool]:
        """Return the files that the patterns name, the one last written to last, and whether every name told.

        What the last one says is what holds now.
        """
        paths = {path for pattern in self._patterns for path in (glob(pattern) if has_magic(pattern) else [pattern])}
        found: list[tuple[int, str, Identity]] = []
        whole = True
        for path in paths:
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                whole = False
                continue
            if S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, path, (status.st_dev, status.st_ino)))
        return {identity: path for _, path, identity in sorted(found)}, whole

    def _open(self, identity: Identity, path: str, *, replaced: bool) -> Iterator[Block]:
        try:
            file = FileIO(path)
        except OSError:
            return  # gone since it was listed, or its mode is set only after its creation: the next look tells
        self.counters.rotations["rename"] += replaced
        before = self._interrupted.pop(identity, None)
        if before is not None:
            self._followed[identity] = replace(before, file=file, path=path)
            return
        followed = self._followed[identity] = _Followed(file, path, live=replaced)
        if self._next_scan is None and not self._from_beginning:
            yield from self._join(followed)

    def _join(self, file: _Followed) -> Iterator[Block]:
        """Go on at the end of a file, after showing its head; a file that cannot be read is left to the next read."""
        file.offset = os.fstat(file.file.fileno()).st_size
        try:
            file.offset = _last_line_end(file.file, file.offset)
            head = _around_last(self._start, file.file, file.offset)
        except OSError:
            return
        finally:
            file.live = True
        yield Block(head, time=None, head=True)

    def _retire(self, named: Collection[Identity], now: float) -> None:
        for identity, file in list(self._followed.items()):
            if identity in named:
                file.retired = None
            elif file.retired is None:
                file.retired = now
            elif now - file.retired > DRAIN_SECONDS:
                self._forget(identity)

    def _forget(self, identity: Identity) -> None:
        self._followed.pop(identity).file.close()

    def _read_file(self, file: _Followed) -> Iterator[Block]:
        """Yield the file's new lines block by block until its end."""
        if os.fstat(file.file.fileno()).st_size < file.offset:
            self.counters.rotations["truncate"] += 1
            file.offset, file.partial, file.skipping = 0, b"", False
        while data := os.pread(file.file.fileno(), BLOCK, file.offset):
            file.offset += len(data)
            if file.retired is not None:
                file.retired = self._clock.monotonic()  # its writer goes on, as one behind a shell's redirection does
            self.counters.bytes += len(data)
            lines = self._lines(file, data)
            if lines:
                self.counters.lines += lines.count(b"\n")
                yield Block(lines, self._clock.time() if file.live else None)
        file.live = True

    def _lines(self, file: _Followed, data: bytes) -> bytes:
        """Return the complete lines among what was kept back and `data`; keep back the unfinished last one."""
        if file.skipping:
            _, newline, data = data.partition(b"\n")
            if not newline:
                return b""
            file.skipping = False
        data = file.partial + data
        lines = _complete(data)
        file.partial = data[len(lines) :]
        if len(file.partial) > BLOCK:
            self.counters.truncated_lines += 1
            file.partial, file.skipping = b"", True
        return lines


def _obstacle(pattern: str) -> str:
    """Say why nothing at `pattern` can be followed."""
    if has_magic(pattern):
        return f"{pattern} matches no file that may be read"
    try:
        if not S_ISREG(os.stat(pattern).st_mode):
            return f"{pattern} is no regular file"
        FileIO(pattern).close()
    except FileNotFoundError:
        return f"{pattern} does not exist"
    except OSError as error:
        return f"{pattern} cannot be read: {error.strerror}; check the rights of the service's user"
    return f"{pattern} has only now become readable"


def _complete(data: bytes) -> bytes:
    """Return the part of `data` that ends with its last newline."""
    return data[: data.rfind(b"\n") + 1]


def _last_line_end(file: FileIO, size: int) -> int:
    """Return the offset after the last newline within the last block of the file, so that no line is cut in two."""
    start = max(0, size - BLOCK)
    tail = os.pread(file.fileno(), size - start, start)
    end = tail.rfind(b"\n") + 1
    return start + end if end else size


def _around_last(landmark: re.Pattern[bytes], file: FileIO, end: int) -> bytes:
    """Return a block of complete lines around the file's last match of `landmark`; its first block where there is none.

    Around, because a server names its version some lines before its engine starts, and the engine its sizes after.
    """
    start = end
    while start > max(0, end - SEARCH_BYTES):
        start = max(0, start - BLOCK)
        matches = list(landmark.finditer(os.pread(file.fileno(), 2 * BLOCK, start)))
        if matches:
            begin = max(0, start + matches[-1].start() - BLOCK // 2)
            data = os.pread(file.fileno(), min(BLOCK, end - begin), begin)
            return _complete(data if begin == 0 else data.partition(b"\n")[2])
    return _complete(os.pread(file.fileno(), min(BLOCK, end), 0))
