"""What users of other programs that follow logs have reported, each report as a test.

`REPORTS` says of each where it is tested: most of them here, by a test whose docstring begins with the report's name.
"""

import gzip
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from solpi_exporter.follow import opened
from solpi_exporter.follow.files import DRAIN_SECONDS, KEEP_FILES, KEEP_SECONDS, SCAN_SECONDS
from solpi_exporter.follow.generation import BLOCK, Generation
from solpi_exporter.follow.position import HEAD_BYTES
from tests.follow.following import Following

ROOT = Path(__file__).parent.parent.parent
HERE = "tests/follow/test_reports.py"
WATCH = "tests/follow/test_watch.py"
JOURNAL = "tests/follow/test_journal.py"
Rotation = Callable[[Following], None]

PIECES = "tests/engine/test_envelope.py"

REPORTS = {
    1: ("google/mtail#17", HERE),
    2: ("google/mtail#531", HERE),
    3: ("google/mtail#63", HERE),  # and #92
    4: ("fluent/fluent-bit#3117", HERE),
    5: ("fluent/fluent-bit#1875", HERE),
    6: ("fluent/fluent-bit#8025", HERE),  # and #11455
    7: ("fluent/fluent-bit#5382", HERE),
    8: ("fluent/fluent-bit#370", HERE),
    9: ("fluent/fluent-bit#3488", HERE),
    10: ("fluent/fluent-bit#2723", HERE),
    11: ("fluent/fluent-bit#1330", HERE),
    12: ("fluent/fluent-bit#2428", "tests/follow/test_overlay.py"),  # and moby/moby#31587, #11705
    13: ("influxdata/telegraf#6706", HERE),  # and fluent/fluent-bit#3111, google/mtail#157
    14: ("vectordotdev/vector#25079", HERE),
    15: ("vectordotdev/vector#643", HERE),  # and #5833
    16: ("vectordotdev/vector#23619", HERE),
    17: ("vectordotdev/vector#21998", HERE),  # and #8101, fluent/fluentd#780
    18: ("grafana/loki#14462", HERE),
    19: ("grafana/loki#2353", HERE),  # and fluent/fluentd#3871, #3532, #1613
    20: ("open-telemetry/opentelemetry-collector-contrib#40523", HERE),
    21: ("open-telemetry/opentelemetry-collector-contrib#43693", HERE),
    22: ("open-telemetry/opentelemetry-collector-contrib#10127", HERE),
    23: ("open-telemetry/opentelemetry-collector-contrib#32170", HERE),  # and #35042, #37596
    24: ("open-telemetry/opentelemetry-collector-contrib#31074", HERE),
    25: ("elastic/beats#38070", HERE),  # and #36541
    26: ("elastic/beats#46923", HERE),
    27: ("elastic/beats#50738", HERE),
    28: ("elastic/beats#39731", HERE),
    29: ("grafana/loki#1460", "tests/test_statedir.py"),  # and #6268: a state file cut off, or all NULs
    30: ("fstab/grok_exporter#124", WATCH),  # and #164, #156: a watcher that fails
    31: ("kumina/postfix_exporter#78", HERE),
    32: ("letsencrypt/boulder#7158", HERE),
    33: (
        "determined-ai/determined#3945",
        HERE,
    ),  # and folkertvanheusden/multitail#72; more in tests/engine/test_vllm.py
    34: ("moby/moby#40584", HERE),  # and #53631
    35: ("moby/moby#41650", PIECES),  # and #36777
    36: ("kubernetes/kubernetes#115701", HERE),  # and #64760
    37: ("gorakhargosh/watchdog#654", WATCH),
    38: ("gorakhargosh/watchdog#427", WATCH),  # and #829
    39: ("rsyslog/rsyslog#5477", JOURNAL),  # and #3675
    40: ("fluent/fluent-bit PR 1285", JOURNAL),  # and systemd/systemd#43649
    41: ("tfadeyi/auth0-simple-exporter#136", HERE),
}


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    one = Following(tmp_path)
    yield one
    one.follower.close()


def test_every_report_is_in_one_place() -> None:
    """Each has its number and its name, and is tested by one test here, or where the table says."""
    docstrings = (str(one.__doc__) for name, one in globals().items() if name.startswith("test_"))
    tested = Counter(docstring.partition(": ")[0] for docstring in docstrings if ": " in docstring)

    assert list(REPORTS) == list(range(1, 42))
    assert tested == Counter(name for name, where in REPORTS.values() if where == HERE)
    assert all((ROOT / where).exists() for _, where in REPORTS.values())


def refuse(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_new_file_that_may_not_be_opened_yet(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """google/mtail#17: the mode comes after the file; it is tried again, and the old file is read on meanwhile."""
    following.write(50)
    following.start()
    following.rename()
    following.path.touch()
    monkeypatch.setattr(opened, "FileIO", refuse)
    following.poll()
    following.write(10, following.older)
    following.poll()
    assert following.counted == following.written
    assert following.follower.counters.open_failures == 2

    monkeypatch.undo()
    following.write(10)
    following.poll()

    assert following.counted == following.written


@pytest.mark.parametrize("away", [False, True], ids=["running", "restarted"])
def test_the_same_content_under_another_inode(following: Following, away: bool) -> None:
    """google/mtail#531: a mount that comes back, or a copy put in place, has other numbers and the old content."""
    following.write(100)
    following.start()
    kept = following.stop() if away else None
    shutil.copyfile(following.path, following.folder / "copy")
    (following.folder / "copy").replace(following.path)
    if kept is not None:
        following.resume(*kept)
    following.poll()

    following.write(20)
    following.poll()

    assert following.counted == following.written


def test_copytruncate(following: Following) -> None:
    """google/mtail#63: the cut is seen, and reading begins anew, each time."""
    following.start()
    for _ in range(3):
        following.write(50)
        following.poll()
        following.copytruncate()
        following.poll()

    following.write(10)
    following.poll()

    assert following.counted == following.written
    assert following.follower.counters.truncations == 3


def test_a_hole_of_a_gibibyte(following: Following) -> None:
    """fluent/fluent-bit#3117: it is jumped over, not read, and each line after it counts once."""
    following.write(50)
    following.start()
    os.truncate(following.path, 0)
    following.poll()
    os.truncate(following.path, 1 << 30)

    following.write(50)
    following.poll()

    assert following.counted == following.written
    assert following.follower.counters.bytes < 2 * BLOCK


@pytest.mark.parametrize("count", [100, 20, 50], ids=["longer", "shorter", "as long"])
def test_a_new_file_that_got_the_old_inode(following: Following, count: int) -> None:
    """fluent/fluent-bit#1875: the number is the same and the content is not; it is read from its beginning."""
    following.write(50)
    following.start()
    position, counters = following.stop()
    following.path.unlink()
    following.write(count)
    status = following.path.stat()
    (record,) = position.records

    following.resume(replace(position, records=(replace(record, device=status.st_dev, inode=status.st_ino),)), counters)

    assert following.counted == following.written
    assert following.lost == []


def test_a_record_beyond_the_end_of_its_file(following: Following) -> None:
    """fluent/fluent-bit#8025: what is known of a dead file with this inode does not hide a smaller new one."""
    following.write(5000)
    following.start()
    kept = following.stop()
    os.truncate(following.path, 0)
    following.write(1)
    following.resume(*kept)

    following.write(1)
    following.poll()

    assert following.counted == following.written
    assert [record.proof.offset for record in following.follower.position().records if not record.done] == [
        following.path.stat().st_size
    ]


def test_a_new_file_is_not_read_from_the_old_ones_offset(following: Following) -> None:
    """fluent/fluent-bit#5382: it begins at its first line, though the old offset is in the middle of one."""
    following.write(50)
    following.start()
    following.rename()
    following.append(following.note(b"a first line that is longer than the whole old file " * 100 + b"\n"))
    following.write(50)

    following.poll()

    assert following.counted == following.written


def test_a_line_longer_than_the_buffer(following: Following) -> None:
    """fluent/fluent-bit#370: only that line is passed over, and it is counted as such."""
    following.write(5)
    following.append(b"x" * 2 * BLOCK + b"\n")
    following.start()
    following.write(5)
    following.poll()

    assert following.counted == following.written
    assert following.follower.counters.truncated_lines == 1


def test_a_restart_within_a_line_that_is_passed_over(following: Following) -> None:
    """fluent/fluent-bit#3488: offset and bytes are what was consumed, and the rest of that line is no line."""
    following.write(5)
    following.append(b"x" * 2 * BLOCK)
    following.start()
    kept = following.stop()
    following.append(b"x" * BLOCK + b"\n")
    following.write(5)

    following.resume(*kept)

    assert following.counted == following.written
    assert following.follower.counters.truncated_lines == 1
    assert following.follower.counters.bytes == following.path.stat().st_size


def test_a_reader_that_is_slow(following: Following) -> None:
    """fluent/fluent-bit#2723: nothing is lost, and how far it is behind is told, rising and falling to nothing."""
    following.write(100_000)
    following.start()
    lags = []
    for count in (50_000, 50_000, 50_000, *[0] * 100):
        following.write(count)
        following.poll(later=0.1, limit=1)
        lags.append(following.follower.health().lag or 0)

    assert lags[0] < lags[1] < lags[2]
    assert lags[-1] == 0
    assert following.counted == following.written


def test_a_rotation_while_nobody_reads(following: Following) -> None:
    """fluent/fluent-bit#1330: the rotated file is found, and read from where it was left, before the new one."""
    following.write(50)
    following.start()
    kept = following.stop()
    following.write(30)
    following.rename()
    following.write(20)

    following.resume(*kept)

    assert following.counted == following.written


def test_without_any_event(following: Following) -> None:
    """influxdata/telegraf#6706: over NFS nothing tells of growth or of new files; both are looked for."""
    following.watcher.active = False
    following.start()
    following.write(10)
    assert len(following.poll(later=SCAN_SECONDS)) == 10
    following.write(10)
    assert len(following.poll(later=0.1)) == 10
    following.rename()
    following.write(10)

    assert len(following.poll(later=SCAN_SECONDS)) == 10


def test_files_that_begin_alike(following: Following) -> None:
    """vectordotdev/vector#25079: neither the first lines nor the inode make a file another one."""
    first, second = following.folder / "a.log", following.folder / "b.log"
    for path in (first, second):
        following.append(following.note(b"the same banner\n" * HEAD_BYTES), path)
        following.write(10, path)
    following.start("*.log")
    position, counters = following.stop()
    a, b = position.records
    following.write(10, first)
    following.write(10, second)

    swapped = (replace(a, inode=b.inode), replace(b, inode=a.inode))
    following.resume(replace(position, records=swapped), counters)

    assert Counter(following.counted) == Counter(following.written)


def test_empty_files_and_files_that_are_alike(following: Following) -> None:
    """vectordotdev/vector#643: each is read in full, however little tells them apart."""
    paths = [following.folder / name for name in ("a.log", "b.log", "c.log")]
    for path in paths:
        path.touch()
    following.start("*.log")
    for path in paths:
        following.append(following.note(b"the same\n"), path)
    following.poll()
    kept = following.stop()
    for path in paths:
        following.write(1, path)

    following.resume(*kept)

    assert Counter(following.counted) == Counter(following.written)


def test_a_file_that_is_cut_and_written_at_once(following: Following) -> None:
    """vectordotdev/vector#23619: one reader has it, not the new one beside the old one."""
    following.write(50)
    following.start()
    os.truncate(following.path, 0)
    following.write(200)
    following.poll()
    following.write(10)
    following.poll()

    assert following.counted == following.written
    assert following.follower.health().files == 1


def test_deleted_files_are_let_go(following: Following) -> None:
    """vectordotdev/vector#21998: what is deleted is held until it is read and stands still, renamed files by number."""
    following.write(50)
    following.start()
    following.write(50)
    following.append(bytes(10))
    following.path.unlink()
    following.poll()
    assert len(following.deleted_but_open()) == 1
    following.settle()
    assert following.deleted_but_open() == []
    for number in range(2 * KEEP_FILES):
        following.write(1)
        following.poll(later=DRAIN_SECONDS)
        following.path.rename(following.folder / f"vllm.log.{number}")
    following.settle()

    assert following.counted == following.written
    assert following.follower.health().files == KEEP_FILES


@pytest.mark.parametrize("read", [0, 50])
@pytest.mark.parametrize("first", [Following.rename, Following.copytruncate])
@pytest.mark.parametrize("second", [Following.rename, Following.copytruncate])
def test_two_rotations_between_two_looks(following: Following, read: int, first: Rotation, second: Rotation) -> None:
    """grafana/loki#14462: the file in the middle, which never had its name when somebody looked, is read as well."""
    following.write(read)
    following.start()
    for rotate in (first, second):
        following.write(10)
        following.tick()
        rotate(following)
        following.tick()
    following.write(10)

    following.poll()

    assert following.counted == following.written


def test_a_pattern_that_matches_rotated_files(following: Following) -> None:
    """grafana/loki#2353: a file under its new name goes on where it was."""
    following.start("vllm.log*")
    for _ in range(4):
        following.write(40)
        following.poll()
        following.rename()
        following.poll()

    following.write(40)
    following.poll()

    assert following.counted == following.written


@pytest.mark.parametrize("away", [False, True], ids=["running", "restarted"])
def test_a_compressed_generation_under_a_pattern(following: Following, away: bool) -> None:
    """open-telemetry/opentelemetry-collector-contrib#40523: of a compressed file only what was not read is read."""
    following.write(50)
    following.start("vllm.log*")
    kept = following.stop() if away else None
    following.write(50)
    following.rename()
    following.older.with_name("vllm.log.1.gz").write_bytes(gzip.compress(following.older.read_bytes()))
    following.older.unlink()
    following.write(10)
    if kept is not None:
        following.resume(*kept)

    following.settle()

    assert following.counted == following.written


def test_a_compressed_generation_that_is_damaged(following: Following) -> None:
    """It is given up at once, not tried for ever; what it holds is not known, that it cannot be read is told."""
    following.write(500)
    following.start()
    kept = following.stop()
    following.write(50)
    following.rename()
    packed = gzip.compress(following.older.read_bytes())
    following.older.with_name("vllm.log.1.gz").write_bytes(packed[:-20])
    following.older.unlink()
    following.write(10)
    following.resume(*kept)

    following.settle()

    assert following.counted[-10:] == following.written[-10:]
    assert following.follower.counters.open_failures == 1


def test_a_cut_file_that_begins_as_before(following: Following) -> None:
    """open-telemetry/opentelemetry-collector-contrib#43693: the same banner at the top does not hide the cut."""
    banner = b"the same banner\n" * HEAD_BYTES
    following.append(following.note(banner))
    following.write(10)
    following.start()
    following.copytruncate()
    following.append(following.note(banner))
    following.write(50)

    following.poll()

    assert following.counted == following.written


def test_a_file_that_begins_with_an_empty_line(following: Following) -> None:
    """open-telemetry/opentelemetry-collector-contrib#10127: the beginning may be empty and grow; it is one file."""
    following.append(following.note(b"\n"))
    following.start("*.log")
    following.write(1)
    following.poll()
    kept = following.stop()
    following.write(50)
    following.resume(*kept)
    following.write(50)
    following.settle()

    assert following.counted == following.written


@pytest.mark.parametrize("length", [17 << 10, BLOCK - 1], ids=["17 KiB", "1 MiB"])
def test_a_long_line_in_slow_pieces(following: Following, length: int) -> None:
    """open-telemetry/opentelemetry-collector-contrib#32170: however long it takes, it is one line, and never pieces."""
    following.write(1)
    following.start()
    line = following.note(b"x" * length + b"\n")
    for begin in range(0, len(line), length // 4):
        assert following.poll(later=KEEP_SECONDS) == []
        following.append(line[begin : begin + length // 4])
    following.poll()

    assert following.counted == following.written


def test_position_and_counters_are_of_one_moment(following: Following) -> None:
    """open-telemetry/opentelemetry-collector-contrib#31074: after each block, what is kept is what was counted."""
    following.start()
    following.write(100_000)
    following.clock.now += SCAN_SECONDS
    moments = []
    for _ in following.follower.read(3 * BLOCK):
        (record,) = following.follower.position().records
        moments.append((record.proof.offset, following.follower.counters.bytes))

    assert len(moments) > 2
    assert all(offset == counted for offset, counted in moments)


def test_a_cut_is_in_the_position_at_once(following: Following) -> None:
    """elastic/beats#38070: a restart after it sends nothing again, as often as it is."""
    following.write(50)
    following.start()
    following.copytruncate()
    following.write(10)
    following.poll()
    for _ in range(3):
        following.resume(*following.stop())

    assert following.counted == following.written
    assert following.follower.position().records[-1].proof.offset == following.path.stat().st_size


def test_a_line_that_comes_while_its_file_is_let_go(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """elastic/beats#46923: of a file that has stood still, what is written in that very moment counts."""
    following.write(50)
    following.start()
    writer, finish = os.open(following.path, os.O_WRONLY | os.O_APPEND), Generation.finish
    following.path.unlink()
    following.poll()

    def finish_late(one: Generation) -> bytes | None:
        os.write(writer, following.text(1))
        monkeypatch.undo()
        return finish(one)

    monkeypatch.setattr(Generation, "finish", finish_late)
    following.settle()
    os.close(writer)

    assert following.counted == following.written


def test_a_file_that_is_opened_anew(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """elastic/beats#50738: it goes on after what was counted, not after what was asked for."""
    following.write(50)
    following.start()
    following.write(50)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", refuse)
        following.poll()

    following.write(50)
    following.poll()

    assert following.counted == following.written


@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen before the cut"])
@pytest.mark.parametrize("over", [False, True], ids=["a new copy", "over the old copy"])
@pytest.mark.parametrize("pattern", ["vllm.log", "vllm.log*"])
def test_a_copy_before_a_cut(following: Following, pattern: str, over: bool, seen: bool) -> None:
    """elastic/beats#39731: of each copy only what was not read yet is read, whatever the copy's file held before."""
    following.write(50)
    following.start(pattern)
    for _ in range(3):
        following.write(10)
        following.poll()
        following.write(10)
        following.copy(over=over)
        if seen:
            following.poll()
        os.truncate(following.path, 0)
        following.poll()
    following.write(20)
    following.settle()

    assert following.counted == following.written


def test_a_rotated_file_that_is_deleted(following: Following) -> None:
    """kumina/postfix_exporter#78: the new file is taken without any event, and the deleted one not held for ever."""
    following.write(50)
    following.start()
    following.rename()
    following.poll()
    following.older.unlink()
    following.write(50)
    following.poll()
    assert following.counted == following.written

    following.settle()

    assert following.deleted_but_open() == []
    assert following.follower.health().files == 1


def test_half_a_line_is_no_line(following: Following) -> None:
    """letsencrypt/boulder#7158: a live file's last line is not seen before its end, however long that takes."""
    line = following.text(1)
    following.append(line[:10])
    following.start()
    assert following.poll(later=0.1) == following.poll(later=KEEP_SECONDS) == []

    following.append(line[10:])

    assert following.poll(later=0.1) == following.written


def test_a_progress_bar(following: Following) -> None:
    """determined-ai/determined#3945: it has no newline of its own; the line behind it comes with it, as it is."""
    bar = b"".join(b"\rLoading shards: %3d%%|####    |" % number for number in range(100))
    following.write(1)
    following.start()
    following.append(bar)
    assert following.poll(later=KEEP_SECONDS) == []

    following.append(b"\r" + following.text(1))

    assert following.poll() == [bar + b"\r" + following.written[-1]]


@pytest.mark.parametrize("length", [10, 5000, 3 * BLOCK])
def test_a_run_of_nuls(following: Following, length: int) -> None:
    """moby/moby#40584: a crash of the host left them; they are passed over, and the line they are in is counted so."""
    following.write(5)
    following.start()
    following.append(b"\0" * length)
    following.poll()
    following.write(5)
    following.poll()

    assert following.counted == following.written
    assert following.follower.counters.damaged_lines == (0 if length > BLOCK else 1)


def test_the_log_of_a_container(following: Following) -> None:
    """kubernetes/kubernetes#115701: kubelet renames what the link points to; the old file is read to its end."""
    real, rotated = following.folder / "pod" / "0.log", following.folder / "pod" / "0.log.20261130-120000"
    real.parent.mkdir()
    following.path.symlink_to(real)
    following.write(50, real)
    following.start()
    real.rename(rotated)
    following.poll()
    following.write(10, rotated)
    following.write(10, real)
    following.poll()
    rotated.with_name(rotated.name + ".gz").write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()
    following.write(10, real)
    following.settle()

    assert following.counted == following.written


@pytest.mark.parametrize("shrink", [Path.unlink, lambda path: os.truncate(path, 0)], ids=["deleted", "cut"])
def test_a_log_that_shrinks(following: Following, shrink: Callable[[Path], None]) -> None:
    """tfadeyi/auth0-simple-exporter#136: what was counted stays counted, also over a restart."""
    following.write(50)
    following.start()
    kept = following.stop()
    shrink(following.path)
    following.resume(*kept)
    assert following.follower.counters.lines == 50

    following.write(10)
    following.poll()

    assert following.follower.counters.lines == len(following.written) == 60
