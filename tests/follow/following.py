"""A follower on a folder, asked again and again, and beside it a writer that knows which lines it has written."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from solpi_exporter.follow.files import DRAIN_SECONDS, SCAN_SECONDS, FileFollower
from solpi_exporter.follow.lines import LineCounters
from solpi_exporter.follow.position import Position
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock, FakeWatcher

EVERYTHING = 1 << 40


class Following:
    """`written` are the complete lines that were written, `counted` those that the follower has yielded since.

    Nothing is read but by `start`, `poll` and `resume`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "vllm.log"
        self.older = folder / "vllm.log.1"
        self.clock = FakeClock()
        self.watcher = FakeWatcher()
        self.written: list[bytes] = []
        self.counted: list[bytes] = []
        self.lost: list[tuple[str, int]] = []
        self.follower: FileFollower
        self._patterns: tuple[str, ...] = ()
        self._from_beginning = True

    def start(self, *patterns: str, from_beginning: bool = True) -> None:
        """Follow patterns of the folder, at first `vllm.log` alone, and look once."""
        self._patterns = tuple(str(self.folder / pattern) for pattern in patterns or (self.path.name,))
        self._from_beginning = from_beginning
        self.resume(Position(), LineCounters())

    def stop(self) -> tuple[Position, LineCounters]:
        """End the follower, and return what it leaves behind."""
        kept = self.follower.position(), replace(self.follower.counters)
        self.follower.close()
        return kept

    def resume(self, position: Position, counters: LineCounters) -> None:
        """Let a follower go on where another one was, and look once."""
        self.follower = FileFollower(
            self._patterns,
            from_beginning=self._from_beginning,
            start=re.compile(rb"^ENGINE STARTS", re.MULTILINE),
            watcher=self.watcher,
            clock=self.clock,
            position=position,
            counters=counters,
            report=lambda name, lost: self.lost.append((name, lost)),
        )
        self.poll()

    def poll(self, *, later: float = SCAN_SECONDS, limit: int = EVERYTHING) -> list[bytes]:
        """Return the lines that are read `later` seconds after the last time; none where there is no file."""
        self.clock.now += later
        before = len(self.counted)
        try:
            for block in self.follower.read(limit):
                self.counted += [] if block.head else block.data.split(b"\n")[:-1]
        except SourceError:
            pass
        assert self.follower.counters.lines == len(self.counted)
        return self.counted[before:]

    def settle(self) -> None:
        """Poll until what stands still has been drained."""
        for _ in range(3):
            self.poll(later=DRAIN_SECONDS + SCAN_SECONDS)

    def note(self, data: bytes) -> bytes:
        """Take note of complete lines that are about to be written, and return them."""
        self.written += data.split(b"\n")[:-1]
        return data

    def text(self, count: int) -> bytes:
        """Return lines that were never written before, each with its number."""
        first = len(self.written)
        return self.note(b"".join(b"INFO %06d of the lines of a log\n" % (first + i) for i in range(count)))

    def append(self, data: bytes, path: Path | None = None) -> None:
        """Append bytes to a file, at first `vllm.log`."""
        with (path or self.path).open("ab") as file:
            file.write(data)

    def write(self, count: int, path: Path | None = None) -> None:
        """Append numbered lines to a file, at first `vllm.log`."""
        self.append(self.text(count), path)

    def rename(self) -> None:
        """Give each generation the next higher number, `vllm.log` itself the number 1."""
        self._shift()
        self.path.rename(self.older)

    def copy(self, *, over: bool = False) -> None:
        """Copy `vllm.log` to number 1; unless it is to be written over, the last copy gets the next number first."""
        if not over:
            self._shift()
        shutil.copyfile(self.path, self.older)

    def copytruncate(self) -> None:
        """Copy `vllm.log` to number 1, and cut it to nothing."""
        self.copy()
        os.truncate(self.path, 0)

    def tick(self) -> None:
        """Wait until the file system's clock has moved, some milliseconds, so that what changes next is later."""
        probe = self.folder / "tick"
        probe.touch()
        before = probe.stat().st_mtime_ns
        while probe.stat().st_mtime_ns == before:
            probe.touch()

    def _shift(self) -> None:
        for number in range(9, 0, -1):
            path = self.folder / f"vllm.log.{number}"
            if path.exists():
                path.rename(self.folder / f"vllm.log.{number + 1}")

    def deleted_but_open(self) -> list[str]:
        """Return what this process holds open of the folder's files that are gone."""
        links = Path("/proc/self/fd")
        targets = (os.readlink(link) for link in links.iterdir() if link.is_symlink())
        return [target for target in targets if target.startswith(str(self.folder)) and target.endswith(" (deleted)")]
