"""The generations that lie beside a log: by their names, and by what they hold."""

import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from solpi_exporter.follow import opened
from solpi_exporter.follow.opened import PlainFile, open_any
from solpi_exporter.follow.position import HEAD_BYTES, MARK_BYTES, Proof, Record
from solpi_exporter.follow.siblings import (
    Candidate,
    between,
    candidate,
    is_copy_in_the_making,
    is_readable,
    is_rotated,
    place,
    read_record,
    rotated,
    with_copy_of_unread,
)

LONG = b"".join(b"line %06d\n" % number for number in range(1000))
OTHER = b"".join(b"other %06d\n" % number for number in range(1000))
SHORT = b"one\ntwo\n"
SECOND = 10**9


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


def write(path: Path, content: bytes, mtime: int = 100) -> Path:
    """Write a file that was last changed at a second of its own."""
    path.write_bytes(content)
    os.utime(path, (mtime, mtime))
    return path


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def found(path: Path) -> Candidate:
    one = candidate(str(path))
    assert one is not None
    return one


def read_up_to(path: Path, offset: int) -> Record:
    """Return the record of a log that was read up to an offset."""
    data = path.read_bytes()[:offset]
    fresh = found(path).fresh_record(str(path))
    return replace(fresh, proof=Proof.of(offset, data[:HEAD_BYTES], data[-MARK_BYTES:]))


def moved(record: Record) -> Record:
    """Return the record as of a file that had another inode."""
    return replace(record, inode=record.inode + 1_000_000)


def nothing_is_copied(_: Candidate) -> bool:
    return False


@pytest.mark.parametrize(
    "name",
    [
        "vllm.log.1",
        "vllm.log.12",
        "vllm.log-20261130",
        "vllm-20261130.log",
        "vllm.log.1.gz",
        "vllm.log.2.xz",
        "vllm.log.2.bz2",
        "vllm-20261130.log.gz",
        "vllm.log.2026-11-30",
        "vllm.log.2026-11-30_12",
        "vllm.log.2026-11-30T12:00:00+01:00",
        "vllm.log.old",
        "vllm.log.bak",
        "vllm-2026-11-30.log",
        "vllm.2026-11-30_12-00-00_123456.log",
    ],
)
def test_names_of_generations(name: str) -> None:
    """What logrotate, Python and people make of vllm.log."""
    assert is_rotated(f"/var/log/{name}", "/var/log/vllm.log")


@pytest.mark.parametrize("name", ["0.log.20261130-120000", "0.log.20261130-120000.gz"])
def test_names_of_generations_of_a_container(name: str) -> None:
    """What kubelet makes of 0.log."""
    assert is_rotated(f"/var/log/pods/{name}", "/var/log/pods/0.log")


@pytest.mark.parametrize(
    "name",
    [
        "vllm.log",
        "vllm.log.err",
        "vllm.log.lock",
        "vllm.log.1.lock",
        "vllm2.log",
        "vllm-1.log",
        "vllm.1.log",
        "vllm-8000.log",
        "vllm-1234567.log",
        "vllm.log.8001",
        "vllm-2.txt",
        "my-vllm.log.1",
        "vllmXlog.1",
        "vllm.log.gz",
        "vllm.log.1.zip",
        "older/vllm.log.1",
    ],
)
def test_names_of_other_files(name: str) -> None:
    """Other logs, other files of the same server, and what lies in other folders."""
    assert not is_rotated(f"/var/log/{name}", "/var/log/vllm.log")


def test_a_candidate_is_a_regular_file(log: Path) -> None:
    """A folder is none, and what is not there cannot be asked."""
    write(log, SHORT)
    status = log.stat()

    assert found(log) == Candidate(str(log), (status.st_dev, status.st_ino), len(SHORT), 100 * SECOND)
    assert candidate(str(log.parent)) is None
    with pytest.raises(FileNotFoundError):
        candidate(str(beside(log, ".1")))


def test_a_candidate_that_cannot_be_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that may not be opened, nor one that is gone, nor one whose disk fails; an empty one can."""

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    one = found(write(log, b""))
    assert is_readable(one)
    for module, name in ((os, "pread"), (opened, "FileIO")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fail)
            assert not is_readable(one)
    log.unlink()

    assert not is_readable(one)


def test_generations_in_the_order_of_their_last_change(log: Path) -> None:
    """Of all names that are asked for, each once; the log itself is none of them."""
    for name, mtime in (("", 9), (".1", 8), (".2.gz", 6), (".3", 7), (".err", 5)):
        write(beside(log, name), SHORT, mtime)
    beside(log, ".4").mkdir()

    paths = [one.path for one in rotated([str(log), str(log), str(log.parent / "nowhere" / "vllm.log")])]

    assert paths == [str(beside(log, name)) for name in (".2.gz", ".3", ".1")]


@pytest.mark.parametrize("content", [LONG, SHORT], ids=["long", "short"])
def test_a_renamed_file_is_found_by_its_inode(log: Path, content: bytes) -> None:
    """Under whatever name, and with what was written to it since."""
    record = read_up_to(write(log, content), len(content))
    elsewhere = log.rename(log.with_name("elsewhere"))
    write(elsewhere, content + b"more\n", 200)

    assert place([record], [found(elsewhere)]) == {record: found(elsewhere)}


@pytest.mark.parametrize("content", [LONG, SHORT], ids=["long", "short"])
def test_a_file_is_found_after_its_device_has_got_another_number(log: Path, content: bytes) -> None:
    """As after a new start of the host: inode, path and content are the same."""
    record = read_up_to(write(log, content), len(content))
    record = replace(record, device=record.device + 1)

    assert place([record], [found(log)]) == {record: found(log)}


@pytest.mark.parametrize("content", [OTHER, SHORT, b""], ids=["as long", "shorter", "empty"])
def test_a_reused_inode_is_not_the_file(log: Path, content: bytes) -> None:
    """The number came back; the content did not."""
    record = read_up_to(write(log, LONG), 5000)
    write(log, content, 200)

    assert found(log).identity == record.identity
    assert place([record], [found(log)]) == {}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "compressed"])
def test_a_copy_is_found_by_its_content(log: Path, pack: Callable[[bytes], bytes]) -> None:
    """In another inode, beside files that are none."""
    record = moved(read_up_to(write(log, LONG), 5000))
    ending = ".1" if pack is bytes else ".1.gz"
    copy = found(write(beside(log, ending), pack(LONG), 200))
    others = [found(write(log, OTHER, 200)), found(write(beside(log, ".2"), LONG[:4999], 200))]

    assert place([record], [*others, copy]) == {record: copy}


def test_a_file_that_ends_before_the_offset_is_not_it(log: Path) -> None:
    """Also when NULs before the offset leave its head as the only proof."""
    record = read_up_to(write(log, LONG[:2000] + bytes(3000)), 5000)
    assert place([record], [found(log)]) != {}

    os.truncate(log, 2000)

    assert place([record], [found(log)]) == {}


def test_a_copy_is_not_older_than_the_last_line(log: Path) -> None:
    """What changed for the last time before that is an earlier generation that begins alike."""
    record = moved(read_up_to(write(log, LONG, 100), 5000))

    assert place([record], [found(write(beside(log, ".1"), LONG, 99))]) == {}


def test_a_short_copy_is_found_under_a_rotated_name_only(log: Path) -> None:
    """Short files may well be alike."""
    record = moved(read_up_to(write(log, SHORT), len(SHORT)))
    elsewhere, copy = (found(write(log.with_name(name), SHORT, 200)) for name in ("vllm2.log", "vllm.log.1"))

    assert place([record], [elsewhere]) == {}
    assert place([record], [elsewhere, copy]) == {record: copy}


def test_a_copy_beside_what_a_link_points_to(log: Path) -> None:
    """The rotated names are those of the real file."""
    real = write(log.with_name("0.log"), SHORT)
    log.symlink_to(real)
    record = moved(read_up_to(log, len(SHORT)))
    copy = found(write(log.with_name("0.log.20261130-120000"), SHORT, 200))

    assert place([record], [copy]) == {record: copy}


def test_two_records_have_two_files(log: Path) -> None:
    """One is the copy, the other the file that was cut and written again: whichever is asked for first."""
    old = read_up_to(write(log, LONG), len(LONG))
    copy = write(beside(log, ".1"), LONG, 200)
    new = read_up_to(write(log, OTHER, 300), len(OTHER))

    for records in ([old, new], [new, old]):
        assert place(records, [found(copy), found(log)]) == {old: found(copy), new: found(log)}


def test_where_nothing_was_read_the_inode_is_all_there_is(log: Path) -> None:
    """Unless it belongs to a file that is known to be another record's by now."""
    fresh = found(write(log, LONG)).fresh_record(str(log))
    read = moved(read_up_to(log, 5000))

    assert place([fresh], [found(log)]) == {fresh: found(log)}
    assert place([moved(fresh)], [found(log)]) == {}
    assert place([fresh, read], [found(log)]) == {read: found(log)}


def test_an_inode_that_came_back_for_a_compressed_file(log: Path) -> None:
    """No log is compressed in place: only a record of that very file, which changes no more, is its record."""
    packed = found(write(beside(log, ".2.gz"), gzip.compress(LONG), 200))
    itself = packed.fresh_record(str(log))
    earlier = replace(itself, mtime=100 * SECOND)

    assert place([itself], [packed]) == {itself: packed}
    assert place([earlier], [packed]) == {}


@pytest.mark.parametrize(("content", "is_another"), [(LONG[:5000], True), (b"", True), (OTHER, False)])
def test_an_inode_that_came_back_for_a_copy(log: Path, content: bytes, is_another: bool) -> None:
    """What is as the log is now, as far as it goes, is a copy of that, or becomes one."""
    write(log, LONG, 100)
    rotated_one = found(write(beside(log, ".1"), content, 200))
    record = replace(rotated_one.fresh_record(str(log)), mtime=50 * SECOND)

    assert place([record], [rotated_one]) == ({} if is_another else {record: rotated_one})


def test_an_empty_file_that_was_renamed(log: Path) -> None:
    """It is known by its inode, and by having changed no more: a copy that is not begun yet is of another time."""
    record = found(write(log, b"", 50)).fresh_record(str(log))
    log.rename(beside(log, ".1"))
    write(log, LONG)

    renamed = found(beside(log, ".1"))

    assert place([record], [renamed]) == {record: renamed}


def test_a_generation_that_is_taken_as_read(log: Path) -> None:
    """To its end where that is known, which is that of a plain file; it is known again in either case."""
    plain = found(write(beside(log, ".1"), LONG))
    packed = found(write(beside(log, ".2.gz"), gzip.compress(LONG)))

    records = [read_record(one, str(log)) for one in (plain, packed)]

    assert [record.done for record in records] == [True, True]
    assert [record.proof.offset for record in records] == [len(LONG), HEAD_BYTES]
    assert place(records, [plain, packed]) == dict(zip(records, [plain, packed], strict=True))


def test_the_rest_and_what_came_after_it(log: Path) -> None:
    """The record's own file from its offset, then each later generation from its beginning; no older one."""
    record = moved(read_up_to(write(log, LONG, 100), 5000))
    write(beside(log, ".3"), b"older\n" * HEAD_BYTES, 50)
    own = found(write(beside(log, ".2"), LONG, 100))
    later = found(write(beside(log, ".1"), OTHER, 150))
    fresh = later.fresh_record(str(log))

    assert between(record, [], [], nothing_is_copied, rest=True) == [(own, record), (later, fresh)]
    assert between(record, [], [], nothing_is_copied, rest=False) == [(later, fresh)]


def test_what_is_being_copied_is_no_news(log: Path) -> None:
    """A copy of a file that is being read has to wait for the cut, if that comes."""
    record = read_up_to(write(log, LONG, 100), len(LONG))
    copy, later = (found(write(beside(log, ending), OTHER, 150)) for ending in (".1", ".2"))

    assert between(record, [], [], lambda one: one == copy, rest=False) == [(later, later.fresh_record(str(log)))]


def test_what_was_read_is_not_read_again(log: Path) -> None:
    """Neither a generation that is known, nor another copy of it, nor one that is open."""
    record = read_up_to(write(log, LONG, 100), len(LONG))
    one = found(write(beside(log, ".1"), OTHER, 150))
    known = read_record(one, str(log))
    write(beside(log, ".2.gz"), gzip.compress(OTHER), 150)
    open_one = write(beside(log, ".3"), SHORT * 500, 160)
    file = open_any(str(open_one))

    opened_now = [(found(open_one).fresh_record(str(log)), file)]
    wanted = between(record, [known], opened_now, nothing_is_copied, rest=True)
    file.close()

    assert wanted == []


def test_what_was_made_of_an_open_file_that_is_deleted(log: Path) -> None:
    """gzip removes the plain file at the end; until it is read to its end here, its compressed self is no news."""
    record = read_up_to(write(log, LONG), 0)
    file = open_any(str(log))
    write(beside(log, ".1.gz"), gzip.compress(LONG), 100)
    log.unlink()

    wanted = between(record, [], [(record, file)], nothing_is_copied, rest=False)
    file.close()

    assert wanted == []


def test_a_short_generation_like_the_open_file(log: Path) -> None:
    """As long as that has a name, nothing was made of it: the other one is another one, which happens to be alike."""
    record = read_up_to(write(log, LONG), len(LONG))
    log.rename(beside(log, ".2"))
    file = open_any(str(write(log, SHORT, 200)))
    alike = found(write(beside(log, ".1"), SHORT, 200))

    wanted = between(record, [], [(read_up_to(log, len(SHORT)), file)], nothing_is_copied, rest=False)
    file.close()

    assert wanted == [(alike, alike.fresh_record(str(log)))]


def test_the_copy_of_a_file_of_which_nothing_was_read(log: Path) -> None:
    """Nothing proves it, and the first later generation may as well be it; there is no other."""
    record = moved(found(write(log, LONG)).fresh_record(str(log)))
    first = found(write(beside(log, ".2"), LONG, 150))
    second = found(write(beside(log, ".1"), OTHER, 200))

    wanted = with_copy_of_unread(between(record, [], [], nothing_is_copied, rest=True), record)

    assert wanted == [(first, record), (second, second.fresh_record(str(log)))]


def test_what_is_shorter_than_a_file_of_which_nothing_was_read(log: Path) -> None:
    """It is no copy of that, and read for itself."""
    record = moved(found(write(log, LONG)).fresh_record(str(log)))
    shorter = found(write(beside(log, ".1"), LONG[:-10], 150))
    pairs = [(shorter, shorter.fresh_record(str(log)))]

    assert with_copy_of_unread(pairs, record) == pairs


COPIES = {
    "none yet": (".1", b"", True),
    "some bytes": (".1", LONG[:10], True),
    "half": (".1", LONG[:5000], True),
    "whole": (".1", LONG, True),
    "another content": (".1", OTHER, False),
    "another end": (".1", LONG[:-1] + b"#", False),
    "some bytes of another content": (".1", OTHER[:10], False),
    "half with another end": (".1", LONG[:5000] + b"#", False),
    "another name": (".err", LONG, False),
    "compressed": (".1.gz", gzip.compress(LONG), True),
}


@pytest.mark.parametrize(("ending", "content", "is_one"), COPIES.values(), ids=COPIES)
def test_copies_in_the_making(log: Path, ending: str, content: bytes, is_one: bool) -> None:
    """What comes before a truncation, complete or not, is told from a new file by name and content."""
    record = read_up_to(write(log, LONG), len(LONG))
    copy = found(write(beside(log, ending), content, 200))
    file = PlainFile(str(log))

    answer = is_copy_in_the_making(copy, file, record)
    file.close()

    assert answer is is_one


def test_a_compressed_file_is_no_copy_of_one_that_begins_with_a_hole(log: Path) -> None:
    """Both begin with NULs, and nothing was read; what is compressed was cut before."""
    hole = bytes(len(LONG))
    record = found(write(log, hole + OTHER)).fresh_record(str(log))
    older = found(write(beside(log, ".1.gz"), gzip.compress(hole + LONG), 200))
    file = PlainFile(str(log))

    answer = is_copy_in_the_making(older, file, record)
    file.close()

    assert not answer


def test_a_copy_is_one_after_the_cut_as_well(log: Path) -> None:
    """What was read proves it when the file itself holds it no more."""
    record = read_up_to(write(log, LONG), 5000)
    copy = found(write(beside(log, ".1"), LONG, 200))
    file = PlainFile(str(log))
    write(log, b"")

    answer = is_copy_in_the_making(copy, file, record)
    file.close()

    assert answer


def test_a_copy_that_was_completed_since_it_was_looked_at(log: Path) -> None:
    """Its file may be cut by then, and does not begin any more as it did; what was read proves the copy."""
    record = read_up_to(write(log, LONG), len(LONG))
    half = found(write(beside(log, ".1"), LONG[:5000], 200))
    file = PlainFile(str(log))
    write(beside(log, ".1"), LONG, 200)
    write(log, OTHER[:100])

    answer = is_copy_in_the_making(half, file, record)
    file.close()

    assert answer


def test_a_copy_that_has_more_than_was_read(log: Path) -> None:
    """The writer had written on before it was made."""
    record = read_up_to(write(log, LONG), 5000)
    shutil.copyfile(log, beside(log, ".1"))
    file = PlainFile(str(log))

    answer = is_copy_in_the_making(found(beside(log, ".1")), file, record)
    file.close()

    assert answer
