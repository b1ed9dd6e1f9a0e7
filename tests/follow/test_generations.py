"""Each line once: a follower beside a writer that rotates at random, and a daemon that is killed at random.

Here the kill is the loss of everything since the last save; tests/test_exactly_once.py kills real daemons.
"""

import gzip
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from solpi_exporter.follow.files import DRAIN_SECONDS, FileFollower
from solpi_exporter.follow.lines import LineCounters
from solpi_exporter.follow.position import Position
from solpi_exporter.follow.siblings import Candidate, candidate, read_record
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock, FakeWatcher
from tests.follow.following import Following
from tests.follow.writer import Writer

STEPS = 400
EVERYTHING = 1 << 40


class Ledger:
    """A follower that may be killed, and the lines that count: those before the last save, then those since."""

    def __init__(self, pattern: str, random: Random) -> None:
        self._pattern = pattern
        self._random = random
        self._clock = FakeClock()
        self._saved: Position | None = None
        self._counters = LineCounters()
        self._counted: list[bytes] = []
        self._since: list[bytes] = []
        self._start()

    def _start(self) -> None:
        self._watcher = FakeWatcher()
        self.follower = FileFollower(
            [self._pattern],
            from_beginning=True,
            start=re.compile(b"$^"),
            watcher=self._watcher,
            clock=self._clock,
            position=self._saved,
            counters=replace(self._counters),
        )

    def poll(self, *, limit: int = EVERYTHING, hint: bool = False) -> None:
        """Read what is there, at times with a hint and at times not to the end, and save."""
        self._clock.now += self._random.choice((0.1, 0.1, 0.5, 1.0, 3.0))
        self._watcher.hint = hint or self._random.random() < 0.5
        try:
            for block in self.follower.read(limit):
                self._since += block.data.split(b"\n")[:-1]
        except SourceError:
            pass
        self.save()

    def save(self) -> None:
        self._saved, self._counters = self.follower.position(), replace(self.follower.counters)
        self._counted += self._since
        self._since = []

    def kill(self) -> None:
        """Lose what was read since the last save, and start anew from there."""
        try:
            for number, block in enumerate(self.follower.read(EVERYTHING)):
                self._since += block.data.split(b"\n")[:-1]
                if number == self._random.randint(0, 2):
                    break
        except SourceError:
            pass
        self._since = []
        self.follower.close()
        self._start()

    def settle(self) -> list[bytes]:
        """Read everything there is, also what stands still without an end; return all that counts."""
        for _ in range(4):
            self._clock.now += DRAIN_SECONDS
            self.poll()
        self.follower.close()
        return self._counted


@pytest.mark.parametrize("appending", [True, False], ids=["appending", "not appending"])
@pytest.mark.parametrize("pattern", ["vllm.log", "vllm.log*", "link.log"])
@pytest.mark.parametrize("seed", range(8))
def test_every_line_counts_once(tmp_path: Path, pattern: str, appending: bool, seed: int) -> None:
    """Whatever rotates, and whenever the daemon is killed, also while nobody reads; and nothing is told as lost."""
    random = Random(seed)
    (tmp_path / "link.log").symlink_to(tmp_path / "vllm.log")
    writer = Writer(tmp_path / "vllm.log", seed, appending=appending)
    ledger = Ledger(str(tmp_path / pattern), random)
    unread = 0
    ledger.poll()
    trace: list[str] = []
    for _ in range(STEPS):
        match random.choices(("write", "poll", "rotate", "recreate", "kill"), (40, 40, 10, 2, 6))[0]:
            case "write":
                writer.write()
            case "poll":
                ledger.poll(limit=random.choice((1, EVERYTHING)))
                trace.append("poll")
                unread = 0
            case "rotate" if unread < 2:
                trace.append(writer.rotate())
                unread += 1
            case "recreate":
                writer.complete()
                ledger.poll(hint=True)  # what comes and goes unseen is lost
                trace.append("recreate")
                writer.recreate()
            case "kill":
                trace.append("kill")
                ledger.kill()
            case _:
                continue
    writer.complete()
    writer.close()

    counted = ledger.settle()

    assert Counter(counted) == Counter(writer.written), trace
    assert ledger.follower.counters.lost_bytes == 0


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    one = Following(tmp_path)
    yield one
    one.follower.close()


def found(path: Path) -> Candidate:
    one = candidate(str(path))
    assert one is not None
    return one


def test_a_file_that_was_cut_before_anything_was_read_of_it_is_lost_with_the_next_one(following: Following) -> None:
    """Nothing proves what became of it: a copy may be met until its log has its next generation, or there is none."""
    log = following.path
    log.touch()
    following.start()
    position, counters = following.stop()
    log.write_text("x\n" * 500)
    met = found(log)
    log.write_text("y\n")
    following.resume(replace(position, records=(met.fresh_record(str(log)),)), counters)
    assert following.counted == [b"y"]
    assert following.follower.counters.lost_bytes == 0

    log.rename(f"{log}.1")
    log.write_text("z\n")
    following.poll()

    assert following.counted == [b"y", b"z"]
    assert following.lost == [(str(log), 1000)]


def test_what_came_before_a_file_that_was_rotated_unread(following: Following) -> None:
    """The empty file that a daemon has left is found by its inode; what was copied out of it meanwhile comes first."""
    following.path.touch()
    following.start()
    left = following.stop()
    following.write(100)
    following.copytruncate()
    following.write(1)
    following.rename()
    following.write(1)

    following.resume(*left)

    assert following.counted == following.written


def test_a_log_that_is_met_while_it_is_copied(following: Following) -> None:
    """The copy is none of the generations that came between, though its source was unknown until then."""
    following.write(1)
    following.start()
    following.rename()
    following.write(100)
    following.copy()
    following.poll()
    assert following.counted == following.written

    os.truncate(following.path, 0)
    following.write(1)
    following.poll()

    assert following.counted == following.written


def test_a_copy_in_the_place_of_an_empty_file_is_no_loss(following: Following) -> None:
    """It has the inode of a file that was left empty, and is read as that; nothing is lost of the file that was cut."""
    following.path.touch()
    following.start()
    left = following.stop()
    following.rename()
    os.truncate(following.older, 0)
    following.write(100)
    met = found(following.path)
    shutil.copyfile(following.path, following.older)
    os.truncate(following.path, 0)
    unread = met.fresh_record(str(following.path))
    position = replace(left[0], records=(*left[0].records, unread))

    following.resume(position, left[1])
    following.write(1)
    following.rename()
    following.write(1)
    following.poll()

    assert following.counted == following.written
    assert following.lost == []


def test_the_inode_of_an_unread_file_came_back_for_a_compressed_one(following: Following) -> None:
    """A daemon that reads that first, while there is no log, would take what is older as left behind."""
    following.path.touch()
    following.start()
    position, counters = following.stop()
    for _ in range(2):
        following.tick()
        following.write(100)
        following.rename()
        following.path.touch()
    packed = Path(f"{following.older}.gz")
    packed.write_bytes(gzip.compress(following.older.read_bytes()))
    shutil.copystat(following.older, packed)
    following.older.unlink()
    following.path.unlink()
    unread = replace(position.records[0], inode=packed.stat().st_ino)

    following.resume(replace(position, records=(unread,)), counters)
    following.write(1)
    following.poll()

    assert following.counted == following.written


def test_the_inode_of_an_unread_file_came_back_for_a_copy(following: Following) -> None:
    """Of the log as it is now, which is read itself."""
    following.path.touch()
    following.start()
    position, counters = following.stop()
    following.tick()
    following.write(100)
    following.copy()
    unread = replace(position.records[0], inode=following.older.stat().st_ino)

    following.resume(replace(position, records=(unread,)), counters)
    os.truncate(following.path, 0)
    following.write(1)
    following.poll()

    assert following.counted == following.written


@pytest.mark.parametrize("lines", [1, 200], ids=["shorter", "longer"])
def test_what_came_after_an_unread_file_that_was_cut(following: Following, lines: int) -> None:
    """It is not what became of that: the copy is, which was read already."""
    following.path.touch()
    following.start()
    position, counters = following.stop()
    following.write(100)
    unread = found(following.path).fresh_record(str(following.path))
    following.copytruncate()
    copied = read_record(found(following.older), str(following.path))
    for each in (1, lines, 1):
        following.write(each)
        following.tick()
        following.rename()
    following.write(1)

    following.resume(replace(position, records=(copied, unread)), counters)
    following.poll()

    assert following.counted == following.written[100:]
    assert following.lost == []
    assert following.follower.counters.open_failures == 0
