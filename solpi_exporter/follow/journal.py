"""Follows the journal of a systemd unit through a `journalctl` child, which alone knows the journal's files.

One JSON object an entry. After the child has ended, the next one starts at the last entry's cursor, inclusively, and
that entry is passed over if it is the same: `--after-cursor` skips one too many when the entry is gone. So does the
daemon after a restart, since the cursor is part of the position that it keeps.
"""

import json
import os
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from threading import Timer
from typing import IO, Any

from solpi_exporter.clock import Clock
from solpi_exporter.follow.lines import Block, Health, LineCounters
from solpi_exporter.follow.message import message
from solpi_exporter.follow.position import Position
from solpi_exporter.source import SourceError

READ_BYTES = 1 << 16
RETRY_SECONDS = 5.0
PROOF_SECONDS = 2.0  # within which the unit's last entry must come, or there is none
HEAD_BYTES = 4 << 20  # of journalctl's output: where a server tells at its start what it is
HEAD_SECONDS = 5.0  # for that


class JournalFollower:
    """The journal of one unit. Without `follow` it is read to its end, once.

    It begins with the unit's last entry, which does not count when the beginning is the end: it proves that there is
    such a unit, and that its entries may be read. Of the run of the unit that this entry is from, the beginning is
    shown as a head. `position` and `counters` are those of a predecessor, where there was one.
    """

    def __init__(
        self,
        unit: str,
        *,
        from_beginning: bool,
        follow: bool,
        clock: Clock,
        command: Sequence[str] = ("journalctl",),
        position: Position | None = None,
        counters: LineCounters | None = None,
    ) -> None:
        self.counters = counters or LineCounters()
        self._unit = unit
        self._from_beginning = from_beginning
        self._follow = follow
        self._clock = clock
        self._command = tuple(command)
        self._child: subprocess.Popen[bytes] | None = None
        self._cursor = position.cursor if position else None
        self._time = position.time if position else None  # of the entry at the cursor
        self._resumed = self._time is not None
        self._partial = b""
        self._lines: deque[bytes] = deque()
        self._started = 0.0
        self._complaints: IO[bytes] | None = None
        self._failure: str | None = None
        self._proved = self._said = False
        self._broken: set[str] = set()  # streams of which the last entry was broken off

    def read(self, limit: int) -> Iterator[Block]:
        """Yield the messages that have come; raise SourceError while journalctl cannot be run or has ended."""
        yield from self._blocks(b"")
        if self._child is None:
            self._child = self._start()
        assert self._child.stdout is not None
        while limit > 0 and (data := _available(self._child.stdout)) is not None:
            if not data:
                self._end(self._child)
                return
            limit -= len(data)
            self._failure = None
            yield from self._blocks(data)
        if not self._proved and self._clock.monotonic() - self._started > PROOF_SECONDS:
            raise SourceError(self._complaint("it has no entry; check `journal`"))
        if self._clock.monotonic() - self._started > RETRY_SECONDS:
            self._failure = None
        if self._failure is not None:  # the one before ended, and this one has not shown yet that it will not
            raise SourceError(self._failure)

    def position(self) -> Position:
        """Return the cursor of the last entry."""
        return Position(cursor=self._cursor, time=self._time)

    def health(self) -> Health:
        """Return nothing: the journal's size says nothing of one unit's lines."""
        return Health()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            _end(self._child)
            self._child = None
        if self._complaints is not None:
            self._complaints.close()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a child; raise SourceError where it cannot be, or the last attempt was a moment ago."""
        now = self._clock.monotonic()
        if self._failure is not None and now - self._started < RETRY_SECONDS:
            raise SourceError(self._failure)
        self._started, self._said = now, False
        # --all: without it, a message above 4,096 bytes is null.
        command = [*self._command, f"--unit={self._unit}", "--output=json", "--all", "--quiet", *self._begin()]
        try:
            # A file, which never blocks the child as a pipe that nobody reads would.
            self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
            child = subprocess.Popen(  # noqa: S603 - the unit is one argument, not a shell's text
                [*command, "--follow"] if self._follow else command, stdout=subprocess.PIPE, stderr=self._complaints
            )
        except OSError as error:
            raise self._fail(f"{self._command[0]} cannot be run ({error.strerror}: {error.filename})") from error
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), not self._follow)
        return child

    def _begin(self) -> Sequence[str]:
        if self._cursor is not None:
            return f"--cursor={self._cursor}", "--lines=all"
        if self._time is not None:
            return (f"--since=@{int(self._time)}",)
        return ("--lines=all",) if self._from_beginning else ("--lines=1",)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Take leave of a child that has ended; only where the end was asked for is that no failure."""
        _end(child)
        self._child, self._partial = None, b""
        self.counters.open_failures += self._follow
        assert self._complaints is not None
        self._complaints.seek(0)
        lines = self._complaints.read(READ_BYTES).decode(errors="replace").splitlines()
        self._complaints.close()
        if child.returncode and not self._said and "cursor" in "".join(lines):
            self._cursor = None  # journalctl does not like it: the time will do
        if not self._follow and not child.returncode and not self._proved:
            raise self._fail("it has no entry; check `journal`")
        if self._follow or child.returncode:
            raise self._fail(lines[-1] if lines else "journalctl ended without a word")

    def _fail(self, what: str) -> SourceError:
        self._failure = self._complaint(what)
        return SourceError(self._failure)

    def _complaint(self, what: str) -> str:
        return f"no journal of {self._unit}: {what} (its readers are in the group systemd-journal)"

    def _blocks(self, data: bytes) -> Iterator[Block]:
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._lines += lines
        while self._lines:
            entry = _entry(self._lines.popleft())
            if entry is None:
                continue
            self._said = True
            is_rest = self._is_rest(entry)
            time, cursor = int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry.get("__CURSOR")
            if cursor == self._cursor or (self._cursor is None and self._time is not None and time <= self._time):
                self._proved = True
                continue
            self._cursor, self._time = cursor, time
            proof, self._proved = not self._proved, True
            if proof and not self._from_beginning and not self._resumed:
                yield from self._head(entry.get("_SYSTEMD_INVOCATION_ID"))
                continue
            text = message(entry.get("MESSAGE"))
            self.counters.bytes += len(text)
            if is_rest:
                continue
            self.counters.lines += 1
            yield Block(text + b"\n", time)

    def _is_rest(self, entry: Mapping[str, Any]) -> bool:
        """Return whether an entry goes on with a line that journald has broken for its length: that is no line."""
        stream = str(entry.get("_STREAM_ID"))
        is_rest = stream in self._broken
        self._broken = self._broken - {stream} | ({stream} if entry.get("_LINE_BREAK") == "line-max" else set())
        return is_rest

    def _head(self, run: object) -> Iterator[Block]:
        """Yield what the unit said at the beginning of a run, which systemd numbers; nothing where it does not."""
        if not isinstance(run, str):
            return
        command = [*self._command, f"_SYSTEMD_INVOCATION_ID={run}", "--output=json", "--all", "--quiet"]
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
        except OSError:
            return
        with child:
            assert child.stdout is not None
            limit = Timer(HEAD_SECONDS, child.kill)
            limit.start()
            data = child.stdout.read(HEAD_BYTES)
            limit.cancel()
            child.kill()
        entries = [entry for line in data.split(b"\n") if (entry := _entry(line)) is not None]
        yield Block(b"".join(message(entry.get("MESSAGE")) + b"\n" for entry in entries), None, head=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child, which may have ended already, and let go of it."""
    child.terminate()
    try:
        child.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def _entry(line: bytes) -> dict[str, Any] | None:
    """Return one entry; None for a line that is none, such as a last one that was cut off."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and str(entry.get("__REALTIME_TIMESTAMP")).isdecimal() else None


def _available(pipe: IO[bytes]) -> bytes | None:
    """Return what can be read now, empty at the end, None where there is nothing yet."""
    try:
        return os.read(pipe.fileno(), READ_BYTES)
    except BlockingIOError:
        return None
