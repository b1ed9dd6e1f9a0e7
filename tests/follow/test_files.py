"""Following files. The clock and the watcher are fakes; the files are real."""

import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from solpi_exporter.follow import names, opened, start
from solpi_exporter.follow.files import DRAIN_SECONDS, KEEP_FILES, KEEP_SECONDS, SCAN_SECONDS, FileFollower
from solpi_exporter.follow.generation import BLOCK
from solpi_exporter.follow.generations import DONE
from solpi_exporter.follow.lines import Block
from solpi_exporter.follow.position import Position
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock, FakeWatcher

EVERYTHING = 1 << 40


class Following:
    """A follower on a folder, asked again and again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "vllm.log"
        self.clock = FakeClock()
        self.watcher = FakeWatcher()
        self.follower: FileFollower

    def start(self, *patterns: str, from_beginning: bool = True, position: Position | None = None) -> None:
        chosen = patterns or (str(self.path),)
        self.follower = FileFollower(
            chosen,
            from_beginning=from_beginning,
            start=re.compile(rb"^ENGINE STARTS", re.MULTILINE),
            watcher=self.watcher,
            clock=self.clock,
            position=position,
        )

    def blocks(self, *, later: float = SCAN_SECONDS) -> list[Block]:
        """Return what is read `later` seconds after the last time; nothing where there is no file."""
        self.clock.now += later
        try:
            return list(self.follower.read(EVERYTHING))
        except SourceError:
            return []

    def lines(self, *, later: float = SCAN_SECONDS) -> list[bytes]:
        return [line for block in self.blocks(later=later) for line in block.data.split(b"\n")[:-1]]

    def append(self, text: str, path: Path | None = None) -> None:
        with (path or self.path).open("a") as file:
            file.write(text)


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    one = Following(tmp_path)
    yield one
    one.follower.close()


def test_lines_are_yielded_once_they_are_complete(following: Following) -> None:
    """A line written in two pieces is one line, and is not seen before its end."""
    following.append("one\ntw")
    following.start()
    assert following.lines() == [b"one"]

    following.append("o\nthree\n")

    assert following.lines() == [b"two", b"three"]
    assert following.lines() == []


def test_growth_is_seen_without_a_scan(following: Following) -> None:
    """Between two looks at the folder the open file is followed all the same."""
    following.append("one\n")
    following.start()
    following.lines()

    following.append("two\n")

    assert following.lines(later=0.1) == [b"two"]


def test_from_the_end_only_what_comes_later_counts(following: Following) -> None:
    """The existing lines are shown once as a head, for start-up facts, and are not counted as lines."""
    following.append("ENGINE STARTS\nold\n")
    following.start(from_beginning=False)
    assert following.blocks() == [Block(b"ENGINE STARTS\nold\n", None, str(following.path), head=True)]
    assert following.follower.counters.lines == 0

    following.append("new\n")

    assert following.blocks() == [Block(b"new\n", following.clock.time(), str(following.path))]


def test_what_comes_right_before_the_end_is_shown_last(following: Following) -> None:
    """Where the start lies far before: in a container's log, a record there may go on behind the end."""
    following.append("ENGINE STARTS\n" + "filling\n" * 300_000 + "last\n")
    following.start(from_beginning=False)

    head, tail = following.blocks()

    assert head.data.startswith(b"ENGINE STARTS\n")
    assert tail.data.endswith(b"filling\nlast\n")
    assert (head.head, tail.head) == (True, True)
    assert following.follower.counters.lines == 0


def test_the_head_begins_with_the_last_start(following: Following) -> None:
    """In a log that has been appended to for weeks, the facts are those of the engine that runs now."""
    filling = "x" * 99 + "\n"
    following.append("ENGINE STARTS first\n" + filling * 30_000 + "ENGINE STARTS last\nfact\n" + filling * 20_000)
    following.start(from_beginning=False)

    (head,) = following.blocks()

    assert b"ENGINE STARTS last\nfact\n" in head.data
    assert b"first" not in head.data
    assert len(head.data) <= BLOCK


def test_without_a_start_in_reach_the_head_is_the_files_own(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has logged for months said at the top what it is."""
    monkeypatch.setattr(start, "SEARCH_BYTES", 2 * BLOCK)
    following.append("ENGINE STARTS\nfact\n" + ("x" * 99 + "\n") * 40_000)
    following.start(from_beginning=False)

    (head,) = following.blocks()

    assert head.data.startswith(b"ENGINE STARTS\nfact\n")


def test_from_the_end_begins_with_a_whole_line(following: Following) -> None:
    """A line that was unfinished at the start is read from its beginning once it is complete."""
    following.append("old\nhalf")
    following.start(from_beginning=False)
    following.lines()

    following.append(" and half\n")

    assert following.lines() == [b"half and half"]


def test_history_is_told_from_what_is_live(following: Following) -> None:
    """What stood in the file at the start is history; once its end was reached, everything is live."""
    following.append("old\n")
    following.start()
    assert [block.time for block in following.blocks()] == [None]

    following.append("new\n")

    assert [block.time for block in following.blocks()] == [following.clock.time()]


def test_a_file_that_appears_later_is_read_from_its_beginning(following: Following) -> None:
    """Also when the follower started at the end of what there was."""
    following.start(from_beginning=False)
    assert following.lines() == []

    following.append("one\n")

    assert following.lines() == [b"one"]


def test_what_stood_in_a_file_that_appears_is_history(following: Following) -> None:
    """A log that is moved into place was not written now, whenever it is found."""
    following.start()
    following.blocks()
    following.append("last month\n")
    assert [block.time for block in following.blocks()] == [None]

    following.append("now\n")

    assert [block.time for block in following.blocks()] == [following.clock.time()]


def test_the_file_that_was_written_last_is_read_last(following: Following, tmp_path: Path) -> None:
    """Of vllm.log and vllm.log.1 the former tells what holds now, though its name sorts first."""
    following.append("present\n")
    following.append("past\n", tmp_path / "vllm.log.1")
    os.utime(tmp_path / "vllm.log.1", (1.0, 1.0))
    following.start(str(following.path) + "*")

    assert following.lines() == [b"past", b"present"]


def test_a_hint_shortens_the_wait(following: Following) -> None:
    """With the watcher's word a new file is found at once, without it at the next look."""
    following.start()
    following.lines()
    following.append("one\n")
    assert following.lines(later=0.1) == []

    following.watcher.hint = True

    assert following.lines(later=0.1) == [b"one"]
    assert following.watcher.directories == {str(following.path.parent)}


def test_rename_and_create(following: Following) -> None:
    """The old file's last lines and the new file's first ones all count, once each."""
    following.append("one\n")
    following.start()
    following.lines()

    following.append("two\n")
    following.path.rename(following.path.with_suffix(".1"))
    following.append("three\n")

    assert following.lines() == [b"two", b"three"]
    assert following.follower.counters.renames == 1


def test_a_writer_that_has_not_noticed_the_rotation(following: Following) -> None:
    """Lines written into the renamed file are still read, for an hour after the last one."""
    following.append("one\n")
    following.start()
    following.lines()
    old = following.path.with_suffix(".1")
    following.path.rename(old)
    following.append("new\n")
    following.lines()

    for number in range(3):
        following.append(f"late {number}\n", old)
        assert following.lines(later=KEEP_SECONDS - 2 * SCAN_SECONDS) == [b"late %d" % number]

    following.lines(later=KEEP_SECONDS + SCAN_SECONDS)
    following.append("too late\n", old)
    assert following.lines() == []
    assert following.follower.health().files == 1


def test_a_writer_that_has_not_noticed_the_deletion(following: Following) -> None:
    """What nobody can find any more is let go once it has stood still, so that its room on the disk is given free."""
    following.append("one\n")
    following.start()
    following.lines()
    with following.path.open("a") as old:
        following.path.unlink()
        following.append("new\n")
        assert following.lines() == [b"new"]
        old.write("late\n")
        old.flush()
        assert following.lines() == [b"late"]
        assert following.follower.health().files == 2

        following.lines(later=DRAIN_SECONDS + SCAN_SECONDS)

    assert following.follower.health().files == 1


def test_a_writer_that_never_notices_the_rotation(following: Following) -> None:
    """One behind a shell's redirection goes on in the renamed file; as long as that grows, it is read."""
    following.append("one\n")
    following.start()
    following.lines()
    old = following.path.with_suffix(".1")
    following.path.rename(old)

    for number in range(10):
        following.append(f"{number}\n", old)
        assert following.lines(later=DRAIN_SECONDS - 1) == [b"%d" % number]


def test_a_name_that_cannot_be_looked_at_retires_nothing(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without permission, or a server that is away, does not make a followed file a new one later."""
    following.append("one\n")
    following.start()
    following.lines()
    monkeypatch.setattr(os, "stat", _refuse)
    for _ in range(30):
        assert following.lines() == []

    monkeypatch.undo()
    following.append("two\n")

    assert following.lines() == [b"two"]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    following: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale handle or a disk error concerns one file; it is opened anew once it can be."""
    bad, good = tmp_path / "a.log", tmp_path / "b.log"
    bad.write_text("bad\n")
    good.write_text("good\n")
    following.start(str(tmp_path / "*.log"))
    inode, pread = bad.stat().st_ino, os.pread

    def fail(descriptor: int, length: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(116, "Stale file handle")
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", fail)
    assert following.lines() == [b"good"]

    monkeypatch.undo()

    assert following.lines() == [b"bad"]


def test_a_file_that_could_not_be_read_goes_on_where_it_was(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is counted again, however often reading failed."""
    following.append("one\nhal")
    following.start()
    assert following.lines() == [b"one"]
    monkeypatch.setattr(os, "pread", _refuse)
    for _ in range(5):
        assert following.lines() == []

    monkeypatch.undo()
    following.append("f\n")

    assert following.lines() == [b"half"]
    assert following.follower.counters.lines == 2


def test_a_name_that_cannot_be_looked_at_hides_no_other(following: Following, tmp_path: Path) -> None:
    """A link in a circle stands beside a good log."""
    (tmp_path / "circle.log").symlink_to(tmp_path / "circle.log")
    following.append("one\n")
    following.start(str(tmp_path / "*.log"))

    assert following.lines() == [b"one"]


def test_a_first_look_that_failed_is_not_over(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the end is from the end, also when the folder could not be looked into at first."""
    following.append("old\n")
    following.start(from_beginning=False)
    monkeypatch.setattr(os, "stat", _refuse)
    assert following.blocks() == []

    monkeypatch.undo()

    assert [block.head for block in following.blocks()] == [True]
    assert following.follower.counters.lines == 0


def test_a_rotation_is_counted_under_a_pattern_too(following: Following) -> None:
    """The renamed file is still followed under its new name; its successor was written now."""
    following.append("one\n")
    following.start(str(following.path) + "*")
    following.lines()
    following.path.rename(f"{following.path}.1")
    following.append("two\n")

    (block,) = following.blocks()

    assert block.time == following.clock.time()
    assert following.follower.counters.renames == 1


def test_a_pattern_that_matches_the_renamed_file_too(following: Following) -> None:
    """The same file under a new name goes on where it was and is not counted again."""
    following.append("one\ntwo\n")
    following.start(str(following.path) + "*")
    following.lines()

    following.path.rename(f"{following.path}.1")
    following.append("three\n")

    assert following.lines() == [b"three"]


def test_truncation(following: Following) -> None:
    """A file cut to nothing is read from its beginning again."""
    following.append("one\ntwo\n")
    following.start()
    following.lines()

    following.path.write_text("three\n")

    assert following.lines() == [b"three"]
    assert following.follower.counters.truncations == 1


def test_delete_and_create(following: Following) -> None:
    """A new file under the old name is a new file, though the system may give it the old inode."""
    following.append("one\n")
    following.start()
    following.lines()

    following.path.unlink()
    following.append("two\n")

    assert following.lines() == [b"two"]


def test_a_symbolic_link_that_is_switched(following: Following, tmp_path: Path) -> None:
    """The link's target is what is followed; both targets are read to their end."""
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two\n")
    following.path.symlink_to(tmp_path / "a")
    following.start()
    assert following.lines() == [b"one"]

    following.path.unlink()
    following.path.symlink_to(tmp_path / "b")

    assert following.lines() == [b"two"]


def test_a_folder_that_appears_later(following: Following, tmp_path: Path) -> None:
    """A path may be followed before its folder exists."""
    path = tmp_path / "later" / "vllm.log"
    following.start(str(path))
    assert following.lines() == []

    path.parent.mkdir()
    path.write_text("one\n")

    assert following.lines() == [b"one"]


def test_what_is_no_regular_file_is_left_alone(following: Following, tmp_path: Path) -> None:
    """A folder or a pipe that matches the pattern does not stop the rest."""
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    following.append("one\n")
    following.start(str(tmp_path / "*.log"))

    assert following.lines() == [b"one"]


def test_a_file_without_permission_is_tried_again(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """logrotate's chmod comes after its create; until then there is nothing to read, and no error."""
    following.append("one\n")
    following.start()
    refuse_to_open(monkeypatch)
    assert following.lines() == []

    monkeypatch.undo()

    assert following.lines() == [b"one"]


def refuse_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be opened, as for want of rights."""
    for module in (names, opened):
        monkeypatch.setattr(module, "FileIO", _refuse)


def _refuse(path: object, *_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_no_file_is_a_failure_that_says_why(following: Following, tmp_path: Path) -> None:
    """For each of the patterns."""
    following.start("/nowhere/a.log", "/nowhere/b*.log", str(tmp_path))

    with pytest.raises(SourceError) as raised:
        list(following.follower.read(EVERYTHING))

    assert str(raised.value) == (
        "no log to follow: /nowhere/a.log does not exist; /nowhere/b*.log matches no file that may be read; "
        f"{tmp_path} is no regular file"
    )


def test_a_file_without_rights_is_told_as_such(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to check."""
    following.append("one\n")
    following.start()
    refuse_to_open(monkeypatch)

    with pytest.raises(SourceError, match="cannot be read: Permission denied; check the rights of the service's user"):
        list(following.follower.read(EVERYTHING))


def test_a_line_without_end_is_passed_over(following: Following) -> None:
    """Memory stays bounded; the lines around it count, and it is counted as passed over."""
    following.append("before\n" + "x" * (3 * BLOCK))
    following.start()
    assert following.lines() == [b"before"]
    assert following.follower.counters.truncated_lines == 1

    following.append("x\nafter\n")

    assert following.lines() == [b"after"]


def test_counters_and_lag(following: Following) -> None:
    """Bytes and lines as read; the lag is what was written and is not read, such as a line without an end."""
    following.append("one\ntwo\n")
    following.start()
    following.lines()
    assert (following.follower.counters.lines, following.follower.counters.bytes) == (2, 8)

    following.append("three")
    following.lines()

    assert following.follower.health().lag == 5


def test_one_read_is_bounded(following: Following) -> None:
    """A long history is read over several polls and nothing of it is lost between them."""
    following.append("".join(f"{number}\n" for number in range(1_000_000)))
    following.start()

    first = list(following.follower.read(BLOCK))
    rest = following.blocks()

    assert sum(len(block.data) for block in first) <= 2 * BLOCK
    data = b"".join(block.data for block in (*first, *rest))
    assert data.split(b"\n")[:-1] == [b"%d" % number for number in range(1_000_000)]


def test_closing_closes_everything(following: Following) -> None:
    """No descriptor and no watch is left."""
    following.append("one\n")
    following.start()
    following.lines()

    following.follower.close()

    assert following.watcher.closed
    assert following.follower.health().lag == 0


def test_the_log_of_another_server_is_never_taken_for_a_generation(following: Following, tmp_path: Path) -> None:
    """vllm-2.log, written beside vllm.log: not when that is rotated or cut, nor after a restart."""
    other = tmp_path / "vllm-2.log"
    following.append("old\n", other)
    following.append("one\n")
    following.start()
    assert following.lines() == [b"one"]
    following.append("of another\n", other)
    following.path.rename(f"{following.path}.1")
    following.append("two\n")
    assert following.lines() == [b"two"]
    position = following.follower.position()
    following.follower.close()

    following.append("of another\n", other)
    following.path.write_text("three\n")
    following.start(position=position)

    assert following.lines() == [b"three"]


def test_what_is_known_of_old_generations_is_bounded(following: Following) -> None:
    """A log that is rotated by the minute for months leaves a state of some kilobytes, and few descriptors."""
    following.start()
    for number in range(3 * DONE):
        following.append(f"{number}\n")
        following.lines(later=DRAIN_SECONDS)
        following.path.rename(f"{following.path}.{number + 1}")
    following.lines(later=DRAIN_SECONDS)

    assert following.follower.counters.lines == 3 * DONE
    assert len(following.follower.position().records) <= DONE + KEEP_FILES + 2
    assert (following.follower.health().files or 0) <= KEEP_FILES + 2


def test_a_name_that_stays_unknown_holds_up_no_other(following: Following, tmp_path: Path) -> None:
    """Beside a link in a circle a log is rotated as ever: later files from their beginning, and old ones are let go."""
    (tmp_path / "circle.log").symlink_to(tmp_path / "circle.log")
    following.append("old\n")
    following.start(str(following.path), str(tmp_path / "circle.log"), from_beginning=False)
    assert [block.head for block in following.blocks()] == [True]
    for number in range(3):
        following.path.unlink()
        following.append(f"{number}\n")
        assert following.lines() == [b"%d" % number]

    following.lines(later=DRAIN_SECONDS + SCAN_SECONDS)

    assert following.follower.health().files == 1


def test_a_log_that_is_followed_no_more_counts_no_more(following: Following, tmp_path: Path) -> None:
    """After a change of the configuration, its record leads nowhere; the new log is joined at its end."""
    other = tmp_path / "other.log"
    following.append("one\n")
    following.append("old\n", other)
    following.start()
    following.lines()
    position = following.follower.position()
    following.follower.close()

    following.start(str(other), from_beginning=False, position=position)
    following.blocks()
    following.append("two\n")
    following.append("new\n", other)

    assert following.lines() == [b"new"]


def test_a_file_that_is_just_compressed_is_no_generation(following: Following) -> None:
    """gzip removes what it reads last: until then there is half a copy beside it, of today."""
    following.append("one\n" * 1000)
    following.start()
    following.lines()
    older = Path(f"{following.path}.1")
    following.path.rename(older)
    following.lines()
    packed = gzip.compress(older.read_bytes())
    Path(f"{older}.gz").write_bytes(packed[: len(packed) // 2])
    following.append("two\n")
    assert following.lines() == [b"two"]

    Path(f"{older}.gz").write_bytes(packed)
    older.unlink()
    Path(f"{following.path}").rename(f"{following.path}.0")
    following.append("three\n")

    assert following.lines() == [b"three"]
    assert following.follower.counters.lost_bytes == 0


def test_a_cut_is_seen_by_the_first_line_too(following: Following) -> None:
    """A server that says the same all day is cut, and has grown beyond the old place by the next look."""
    following.append("first 1\n" + "all well\n" * 200)
    following.start()
    following.lines()

    following.path.write_text("first 2\n" + "all well\n" * 300)

    assert len(following.lines()) == 301
    assert following.follower.counters.truncations == 1


def test_a_disk_error_behind_a_read_loses_nothing(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place moves with the lines that are yielded, whatever else is read for it."""
    following.append("one\n")
    following.start()
    following.lines()
    following.append("two\n")
    calls = iter(range(100))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *each: _refuse(*each) if next(calls) == 2 else pread(*each))
    read = following.lines(later=0.1)
    monkeypatch.undo()

    assert read + following.lines() + following.lines() == [b"two"]
