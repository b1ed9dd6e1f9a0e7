"""One file's content being read: from an offset on, in whole lines, and only as long as it is still the same content.

A log file is one generation after another: renamed, or cut to nothing and written again. Each read takes the bytes
before the offset along, which must be those of the last read, so that no line of a new generation is read from its
middle.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from solpi_exporter.follow.lines import LineCounters
from solpi_exporter.follow.opened import Opened, Status, open_any
from solpi_exporter.follow.position import HEAD_BYTES, MARK_BYTES, Identity, Proof, Record
from solpi_exporter.follow.siblings import Candidate, candidate

BLOCK = 1 << 20  # the longest line that is kept, and so the most that is read at once
PIECE = 1 << 16  # read where lines are shorter: above 128 KiB, malloc has each buffer mapped anew, which costs a third


class Cut(Exception):
    """The file does not hold any more what was read of it: it was truncated, and perhaps written again."""


class Generation:
    """A file that is open, to be read on from where its record ends; raises OSError where that cannot be read.

    `path` is its name now, `name` the one under which it is, or was, written, `real` that without symbolic links.
    `live` says that what comes is being written now; `retired` is when its name was lost, or something came after that
    (monotonic). Unless it `may_grow`, nobody writes to it: it is a copy, or compressed.
    """

    def __init__(self, file: Opened, path: str, record: Record, counters: LineCounters, *, may_grow: bool) -> None:
        self.file = file
        self.path = path
        self.name = record.name
        self.real = record.real
        self.may_grow = may_grow
        self.live = False
        self.retired: float | None = None
        self._counters = counters
        self._size, self._mtime = record.size, record.mtime
        self._changed = record.mtime
        self._head = self._mark = b""
        self._seen: tuple[int | None, int] | None = None  # size up to which it was read, and time of change before that
        self._quiet: Status | None = None  # which says nothing else
        self._record: Record | None = None
        self.offset, self._skipping = 0, False
        self.begin(record.proof.offset, skipping=record.skipping)

    @property
    def identity(self) -> Identity:
        """Device and inode."""
        return self.file.identity

    def begin(self, offset: int, *, skipping: bool = False) -> None:
        """Go on at an offset; raise OSError where what stands before it cannot be read."""
        head, mark = min(offset, HEAD_BYTES), min(offset, MARK_BYTES)
        self._head = self.file.pread(head, 0) if head else b""
        self._mark = self.file.pread(mark, offset - mark) if mark else b""
        self.offset, self._skipping = offset, skipping
        self._seen = self._quiet = self._record = None

    def restart(self) -> None:
        """Go on at the beginning, of content that has nothing to do with what was read."""
        self._size = 0
        self.begin(0)

    def is_current(self) -> bool:
        """Whether it is what its log's name means."""
        return self.path == self.name and self.retired is None

    def has_its_name(self) -> bool:
        """Whether its log's name means it at this very moment."""
        try:
            found = candidate(self.name)
        except OSError:
            return False
        return found is not None and found.identity == self.identity

    def is_untouched(self) -> bool:
        """Whether something has happened to it, and nothing was read of it, a hole at its beginning at most."""
        return not self.record().proof.offset and self.has_news()

    def looked(self) -> None:
        """Take note that the names were looked at: what is made from now on has changed later than this file had."""
        if self._mtime != self._changed:
            self._mtime, self._record = self._changed, None

    def lag(self) -> int:
        """Return how many bytes are there and not read, as of the last look; 0 where that cannot be known."""
        return max(0, self._size - self.offset)

    def has_news(self) -> bool:
        """Return whether something has happened to it since it was read to its end, if only that it cannot be asked."""
        try:
            status = self.file.status()
        except OSError:
            return True
        if status is self._quiet:
            return False
        if status.size is not None and status.size > self._size:
            self._size = status.size
        has_news = (status.size, status.mtime) != self._seen
        self._quiet = None if has_news else status
        return has_news

    def changed(self) -> int | None:
        """Return when it has changed last (Unix nanoseconds), None where it cannot be asked."""
        try:
            return self.file.status().mtime
        except OSError:
            return None

    def record(self) -> Record:
        """Return how far it was read."""
        if self._record is None:
            proof = Proof.of(self.offset, self._head, self._mark)
            size = max(self._size, self.offset)
            self._record = Record(self.name, self.real, *self.identity, proof, size, self._mtime, self._skipping)
        return self._record

    def is_named(self) -> bool:
        """Whether a writer may still find it, under whatever name; raise OSError."""
        return self.file.status().named

    def read(self) -> Iterator[bytes]:
        """Yield the new complete lines, block by block; raise Cut, or OSError."""
        status = self.file.status()
        if (status.size, status.mtime) == self._seen:
            return
        if status.size is not None and status.size < (self.offset or self._size):
            raise Cut
        if self.may_grow and self._head and self.file.pread(len(self._head), 0) != self._head:
            raise Cut
        while True:
            window, asked = self._window(PIECE), PIECE
            if len(window) - len(self._mark) == PIECE and window.find(b"\n", len(self._mark)) < 0:
                window, asked = self._window(BLOCK), BLOCK
            start = len(self._mark)  # asked last: a hole that is jumped moves it
            self._size = max(status.size or 0, self.offset + len(window) - start)
            before, is_end = self.offset, len(window) - start < asked and not self._skipping
            lines = self._advance(window, start)
            if lines:
                self._counters.lines += lines.count(b"\n")
                yield self._without_nuls(lines)
            if is_end or self.offset == before:
                break
        self._seen = (None if status.size is None else before + len(window) - start, status.mtime)
        self._changed, self._record = status.mtime, None

    def finish(self) -> bytes | None:
        """Return the last line that its writer has left unfinished, empty where there is none; None if it goes on."""
        window = self._window(BLOCK)
        rest = window[len(self._mark) :].strip(b"\0")
        if b"\n" in rest:
            return None
        if not rest or self._skipping:
            return b""
        self._consume(window, len(self._mark), len(window))
        self._counters.lines += 1
        return rest + b"\n"

    def _window(self, length: int) -> bytes:
        """Return the mark and what comes after it, both of the same content; raise Cut."""
        begin = self.offset - len(self._mark)
        window = self.file.pread(len(self._mark) + length, begin)
        if not window.startswith(self._mark):
            raise Cut
        # A cut may fall into the very read, of which the kernel makes several: then its beginning is gone by now.
        text = len(window) - len(window.lstrip(b"\0"))
        first = window[text : text + MARK_BYTES]
        if self.file.pread(len(first), begin + text) != first:
            raise Cut
        if window[len(self._mark) : len(self._mark) + 1] == b"\0":
            # A writer without O_APPEND goes on at its old place in a file that was cut: before it is a hole.
            data = self.file.data_after(self.offset)
            if data > self.offset:
                self.begin(data, skipping=self._skipping)
                return self._window(length)
        return window

    def _advance(self, window: bytes, start: int) -> bytes:
        """Consume what can be consumed of a window, and return the complete lines in it."""
        if self._skipping:
            newline = window.find(b"\n", start)
            self._skipping = newline < 0
            self._consume(window, start, newline + 1 or len(window))
            return b""
        end = window.rfind(b"\n", start) + 1
        if end:
            self._consume(window, start, end)
            return window[start:end]
        if len(window) - start >= BLOCK:
            self._skipping = bool(window[start:].strip(b"\0"))
            self._counters.truncated_lines += self._skipping
            self._consume(window, start, len(window))
        return b""

    def _consume(self, window: bytes, start: int, end: int) -> None:
        if len(self._head) == self.offset:  # or it is complete, or was read behind a hole
            self._head = (self._head + window[start:end])[:HEAD_BYTES]
        self.offset += end - start
        self._counters.bytes += end - start
        self._mark = window[max(0, end - MARK_BYTES) : end]
        self._record = None

    def _without_nuls(self, lines: bytes) -> bytes:
        """Return lines without the NULs that a hole, or a crash of the host, has left in them."""
        if b"\0" not in lines:
            return lines
        self._counters.damaged_lines += sum(b"\0" in line for line in lines.split(b"\n"))
        return lines.replace(b"\0", b"")


def open_generation(one: Candidate, record: Record, counters: LineCounters) -> Generation | None:
    """Open a file where its record ends; return None where it cannot be, or is another or was cut by now."""
    try:
        file = open_any(one.path)
    except OSError:
        return None
    if not record.proof.offset and one.identity != record.identity:
        record = replace(record, mtime=one.mtime)  # by which alone, and the inode, a successor will know it
    with suppress(OSError):
        may_grow = one.is_plain and one.identity == record.identity
        new = Generation(file, one.path, record, counters, may_grow=may_grow)
        if file.identity == one.identity and new.record().proof == record.proof:
            return new
    file.close()
    return None
