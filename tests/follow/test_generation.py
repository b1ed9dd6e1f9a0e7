"""One file's content, read on from an offset. The files are real, and nothing else looks at them."""

import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from solpi_exporter.follow import generation
from solpi_exporter.follow.generation import BLOCK, Cut, Generation, open_generation
from solpi_exporter.follow.lines import LineCounters
from solpi_exporter.follow.position import HEAD_BYTES, Proof
from solpi_exporter.follow.siblings import Candidate, candidate, place


class Log:
    """A file that is written, and the generation that reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()
        self.counters = LineCounters()
        self.reader = self.open()

    def found(self) -> Candidate:
        one = candidate(str(self.path))
        assert one is not None
        return one

    def open(self) -> Generation:
        one = self.found()
        new = open_generation(one, one.fresh_record(one.path), self.counters)
        assert new is not None
        return new

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def lines(self) -> list[bytes]:
        """Return the new complete lines."""
        return b"".join(self.reader.read()).split(b"\n")[:-1]

    def reopen(self) -> None:
        """Read on with another generation, from the record of this one."""
        record, found = self.reader.record(), self.found()
        self.reader.file.close()
        new = open_generation(found, record, self.counters)
        assert new is not None
        self.reader = new


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    one = Log(tmp_path / "vllm.log")
    yield one
    one.reader.file.close()


def test_only_complete_lines_are_read(log: Log) -> None:
    """The rest waits, and stays unread in offset and lag."""
    log.append(b"one\ntwo\nhal")

    assert log.lines() == [b"one", b"two"]
    assert (log.reader.offset, log.reader.lag()) == (8, 3)
    log.append(b"f\n")
    assert log.lines() == [b"half"]
    assert log.lines() == []
    assert (log.counters.lines, log.counters.bytes) == (3, 13)


def test_blocks_are_bounded_and_end_with_a_newline(log: Log) -> None:
    """A backlog comes in several, and every line of it is whole."""
    text = b"".join(b"line %06d\n" % number for number in range(3 * BLOCK // 12))
    log.append(text)

    blocks = list(log.reader.read())

    assert len(blocks) > 2
    assert max(map(len, blocks)) <= BLOCK
    assert {block[-1:] for block in blocks} == {b"\n"}
    assert b"".join(blocks) == text


def test_counters_and_record_are_those_after_each_block(log: Log) -> None:
    """Whoever stops between two blocks has what belongs together."""
    log.append(b"x" * 99 + b"\n")
    log.append((b"y" * 99 + b"\n") * (2 * BLOCK // 100))
    read = 0
    for block in log.reader.read():
        read += len(block)

        assert log.counters.bytes == log.reader.record().proof.offset == read
        assert log.counters.lines == read // 100


def test_a_line_as_long_as_a_block_is_kept(log: Log) -> None:
    """That is the longest one, its newline included."""
    log.append(b"x" * (BLOCK - 1) + b"\nnext\n")

    assert [len(line) for line in log.lines()] == [BLOCK - 1, 4]
    assert log.counters.truncated_lines == 0


def test_a_longer_line_is_passed_over_as_it_comes(log: Log) -> None:
    """Piece by piece, over several polls and a change of readers; it is counted once, and what surrounds it is read."""
    log.append(b"before\n")
    for _ in range(5):
        log.append(b"x" * (BLOCK // 2))
        assert log.lines() in ([], [b"before"])
        log.reopen()
    log.append(b"end\nafter\n")

    assert log.lines() == [b"after"]
    assert log.counters.truncated_lines == 1
    assert (log.counters.lines, log.counters.bytes) == (2, log.path.stat().st_size)


def test_a_rest_is_finished_once(log: Log) -> None:
    """As a line with an end, and only when asked for."""
    log.append(b"one\nrest")
    assert log.lines() == [b"one"]

    assert log.reader.finish() == b"rest\n"
    assert log.reader.finish() == b""
    assert (log.counters.lines, log.reader.lag()) == (2, 0)


@pytest.mark.parametrize("rest", [b"", b"two\n", b"two\nthree", bytes(10)])
def test_what_is_not_finished(log: Log, rest: bytes) -> None:
    """Nothing, NULs, and a line that came meanwhile and will be read."""
    log.append(b"one\n")
    log.lines()
    log.append(rest)

    assert not log.reader.finish()
    assert log.reader.has_news() == bool(rest)
    assert (log.counters.lines, log.reader.lag()) == (1, len(rest))


def test_a_line_that_is_too_long_is_not_finished(log: Log) -> None:
    """Its end is not a line either."""
    log.append(b"x" * (BLOCK + 5))
    log.lines()
    log.append(b"end")

    assert not log.reader.finish()
    assert log.counters.lines == 0


def test_a_hole_within_a_line_that_is_too_long(log: Log) -> None:
    """It ends with the next newline, wherever that is."""
    log.append(b"x" * 2 * BLOCK)
    log.lines()
    os.truncate(log.path, 4 * BLOCK)
    log.append(b"end\nafter\n")

    assert log.lines() == [b"after"]
    assert log.counters.truncated_lines == 1


def test_a_hole_is_jumped_over(log: Log) -> None:
    """A writer that does not append goes on at its old place in a file that was cut."""
    log.append(b"one\n")
    assert log.lines() == [b"one"]
    os.truncate(log.path, 0)
    log.reader.restart()
    os.truncate(log.path, 1 << 30)
    log.append(b"two\n")

    assert log.lines() == [b"two"]
    assert log.counters.bytes < BLOCK
    assert log.reader.lag() == 0


def test_a_line_behind_nuls_is_damaged(log: Log) -> None:
    """They are taken out of it; a line of its own that has none is as it is."""
    log.append(b"one\n" + bytes(100) + b"two\nthr" + bytes(3) + b"ee\nfour\n")
    assert log.lines() == [b"one", b"two", b"three", b"four"]

    log.append(bytes(1) + b"five\n")

    assert log.lines() == [b"five"]
    assert log.counters.damaged_lines == 3


def test_nuls_without_end_are_no_long_line(log: Log) -> None:
    """A run that is longer than any line is passed over, not the line behind it."""
    log.append(bytes(2 * BLOCK + 10))
    assert log.lines() == []

    log.append(b"one\n")

    assert log.lines() == [b"one"]
    assert log.counters.truncated_lines == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"1\n", b"ten\ntwo\n", b"one\ntwx\n", b"anything else that is longer\n"],
    ids=["empty", "shorter", "another line", "another byte", "longer"],
)
def test_a_change_before_the_offset_is_a_cut(log: Log, content: bytes) -> None:
    """Of whatever size: nothing is read in the middle of another content."""
    log.append(b"one\ntwo\n")
    log.lines()
    log.path.write_bytes(content)
    os.utime(log.path, (1, 1))

    with pytest.raises(Cut):
        log.lines()
    assert log.reader.record().proof.offset == 8


@pytest.mark.parametrize("is_read", [False, True], ids=["nothing was read", "some was read"])
def test_a_cut_within_a_read_is_a_cut(log: Log, monkeypatch: pytest.MonkeyPatch, is_read: bool) -> None:
    """The kernel reads page by page: one read may return what was there before a cut, a hole, and what came after."""
    if is_read:
        log.append(b"one\n")
        log.lines()
    log.append(b"".join(b"line %06d\n" % number for number in range(1000)))

    def pread_and_cut(descriptor: int, length: int, offset: int) -> bytes:
        monkeypatch.undo()
        page = os.pread(descriptor, 4096, offset)
        end = log.path.stat().st_size
        os.truncate(log.path, 0)
        os.truncate(log.path, end)
        log.append(b"after\n")
        return page + os.pread(descriptor, length - len(page), offset + len(page))

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        long = length > BLOCK // 32
        return pread_and_cut(descriptor, length, offset) if long else real(descriptor, length, offset)

    real = os.pread
    monkeypatch.setattr(os, "pread", pread)

    with pytest.raises(Cut):
        log.lines()
    assert log.counters.lines == int(is_read)


def test_after_a_cut_it_is_read_from_its_beginning(log: Log) -> None:
    """With nothing kept of what it was."""
    log.append(b"one\ntwo\n")
    log.lines()
    log.path.write_bytes(b"three\n")
    log.reader.restart()

    assert log.lines() == [b"three"]
    assert log.reader.record().unread == 0


def test_a_file_that_shrank_before_it_was_read_is_cut(log: Log) -> None:
    """What was seen of it at least once, by its size, is gone."""
    log.append(b"x" * 100)
    assert log.lines() == []
    os.truncate(log.path, 50)

    with pytest.raises(Cut):
        log.lines()


def test_what_has_not_changed_is_not_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size and time of change are asked for, and no byte."""
    log.append(b"one\nhalf")
    log.lines()

    def fail(*_: object) -> bytes:
        raise AssertionError

    monkeypatch.setattr(os, "pread", fail)

    assert log.lines() == []


def test_a_record_says_when_the_names_were_looked_at(log: Log) -> None:
    """Not when the last line came: a generation made between the two has to be the later one."""
    os.utime(log.path, (1, 1))
    log.reader.file.close()
    log.reader = log.open()
    log.append(b"one\n")
    os.utime(log.path, (2, 2))
    log.lines()
    assert log.reader.record().mtime == 1 * 10**9

    log.reader.looked()

    assert log.reader.record().mtime == 2 * 10**9


def test_its_record_proves_it(log: Log) -> None:
    """While it grows from nothing, at every moment, the proof holds for the file and gets strong."""
    for number in range(200):
        log.append(b"line %03d\n" % number)
        log.lines()
        proof = log.reader.record().proof

        assert proof.offset == 9 * (number + 1)
        assert proof.holds(log.reader.file.pread)
        assert proof.is_strong == (proof.offset >= HEAD_BYTES)


def test_it_is_untouched_until_something_is_read(log: Log) -> None:
    """An empty file that was looked at has not changed; one with lines has, until they are read."""
    log.lines()
    assert not log.reader.is_untouched()
    log.append(b"one\n")
    assert log.reader.is_untouched()

    log.lines()

    assert not log.reader.is_untouched()


def test_a_hole_is_nothing_that_was_read(log: Log) -> None:
    """One that was passed over, with the begin of a line behind it, leaves it untouched: it may be cut once more."""
    os.truncate(log.path, 1 << 20)
    log.append(b"on")
    log.lines()
    assert log.reader.offset

    log.append(b"e\n")

    assert log.reader.is_untouched()


def test_it_is_current_under_its_own_name(log: Log) -> None:
    """Not under another one, nor after that was lost."""
    assert log.reader.is_current()
    log.reader.path = f"{log.path}.1"
    assert not log.reader.is_current()
    log.reader.path, log.reader.retired = log.reader.name, 1.0
    assert not log.reader.is_current()


def test_it_is_named_until_it_is_deleted(log: Log) -> None:
    """A writer finds a renamed file, and not a deleted one."""
    renamed = log.path.rename(log.path.with_suffix(".1"))
    assert log.reader.is_named()

    renamed.unlink()

    assert not log.reader.is_named()


def test_a_compressed_one_is_read_from_the_plain_ones_offset(log: Log) -> None:
    """The record of one is that of the other, whose content it has; it does not grow."""
    log.append(b"".join(b"line %03d\n" % number for number in range(200)))
    os.truncate(log.path, 900)
    log.lines()
    record = log.reader.record()
    packed = log.path.with_name("vllm.log.1.gz")
    packed.write_bytes(gzip.compress(log.path.read_bytes() + b"line 100\n"))
    found = candidate(str(packed))
    assert found is not None

    one = open_generation(found, record, log.counters)
    assert one is not None
    lines = b"".join(one.read())
    one.file.close()

    assert lines == b"line 100\n"
    assert (one.may_grow, one.lag()) == (False, 0)


def test_a_copy_does_not_grow(log: Log) -> None:
    """Whoever made it is done; only the file itself is written to."""
    log.append(b"one\n")
    log.lines()
    copy = log.path.with_name("vllm.log.1")
    shutil.copyfile(log.path, copy)
    found = candidate(str(copy))
    assert found is not None

    one = open_generation(found, log.reader.record(), log.counters)
    assert one is not None
    one.file.close()

    assert (one.may_grow, log.reader.may_grow) == (False, True)


def test_what_cannot_be_opened_is_none(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone, is another file by now, or its bytes before the offset cannot be read; no descriptor is left."""
    log.append(b"one\n")
    log.lines()
    record, found, before = log.reader.record(), log.found(), len(os.listdir("/proc/self/fd"))

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        assert generation.open_generation(found, record, log.counters) is None
    log.path.rename(log.path.with_suffix(".1"))
    assert open_generation(found, record, log.counters) is None
    log.path.write_bytes(b"one\n")
    assert open_generation(found, record, log.counters) is None

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("size", [0, 3, 100], ids=["empty", "shorter", "a hole"])
def test_what_was_cut_since_its_place_was_found_is_not_opened(log: Log, size: int) -> None:
    """Else what stands before the offset now would be taken for what was read, and its rest for the log's."""
    log.append(b"one\ntwo\n")
    log.lines()
    record, found = log.reader.record(), log.found()

    os.truncate(log.path, 0)
    os.truncate(log.path, size)

    assert open_generation(found, record, log.counters) is None


def test_a_record_of_nothing_begins_at_the_beginning(log: Log) -> None:
    """Behind a hole nothing is proved, so it is as if nothing had been read; the NULs are no line."""
    log.append(bytes(3 * BLOCK))
    log.lines()
    assert log.reader.record().proof == Proof()
    log.reopen()
    log.append(b"one\n")

    assert log.lines() == [b"one"]


def test_what_is_taken_for_a_file_of_which_nothing_was_read_is_known_again(tmp_path: Path, log: Log) -> None:
    """By its inode and the time of its last change, which a successor has nothing else to go by."""
    record = log.found().fresh_record(str(log.path))
    path = tmp_path / "vllm.log.1.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    os.utime(path, (2 * 10**9, 2 * 10**9))
    packed = candidate(str(path))
    assert packed is not None

    new = open_generation(packed, record, log.counters)
    assert new is not None
    new.file.close()

    assert place([new.record()], [packed]) == {new.record(): packed}
