"""Finds the generations of a log that lie beside it under rotated names, and tells which of them were read already."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from stat import S_ISREG

from solpi_exporter.follow.opened import COMPRESSED, Opened, open_any
from solpi_exporter.follow.position import HEAD_BYTES, MARK_BYTES, Identity, Proof, Record

# What logrotate, Python, kubelet and people put behind a name: a small number, a time, "old". Before its ending only a
# time counts: vllm-1.log beside vllm.log is another server's, and vllm.log.8001 that of a port.
_TIME = r"(19|20)\d\d[.\-_]?(0[1-9]|1[0-2])[\d.\-_T:+Z]*|1\d{9}"
_SUFFIX = rf"[.\-_](\d{{1,3}}|{_TIME}|old|bak)"
_COMPRESSION = r"(\.gz|\.xz|\.bz2)?"

TAIL_BYTES = 4096  # compared of what may be a copy


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a generation; `mtime` in Unix nanoseconds."""

    path: str
    identity: Identity
    size: int
    mtime: int

    @property
    def is_plain(self) -> bool:
        """Whether its size is that of its lines."""
        return not _is_compressed(self.path)

    def fresh_record(self, name: str) -> Record:
        """Return the record of a file that is a generation of `name` and has not been read."""
        return Record(name, os.path.realpath(name), *self.identity, Proof(), self.size, self.mtime)


Pair = tuple[Candidate, Record]  # a file, and the record at whose end it is to be read on


def candidate(path: str) -> Candidate | None:
    """Return the file at a path, None where that is no regular one; raise OSError."""
    status = os.stat(path)
    if not S_ISREG(status.st_mode):
        return None
    return Candidate(path, (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


def _is_compressed(path: str) -> bool:
    return path.endswith(COMPRESSED)


def is_readable(one: Candidate) -> bool:
    """Return whether its first byte can be read now: else nobody can say which file it is."""
    try:
        with closing(open_any(one.path)) as file:
            file.pread(1, 0)
    except OSError:
        return False
    return True


def is_rotated(path: str, name: str) -> bool:
    """Return whether `path` is called as a rotated generation of `name`."""
    folder, base = os.path.split(path)
    return folder == os.path.dirname(name) and _generation_of(name).fullmatch(base) is not None


@lru_cache(maxsize=4096)
def _generation_of(name: str) -> re.Pattern[str]:
    base = os.path.basename(name)
    stem, ending = os.path.splitext(base)
    behind = rf"{re.escape(base)}{_SUFFIX}{_COMPRESSION}"
    within = rf"{re.escape(stem)}[.\-_]({_TIME}){re.escape(ending)}{_COMPRESSION}"
    return re.compile(f"{behind}|{within}")


def rotated(names: Iterable[str]) -> list[Candidate]:
    """Return the rotated generations of `names` that there are, the one that was written last at the end.

    A compressed one does not count while it stands beside what is being compressed: that is removed last.
    """
    listed = {path for name in names for path in _listed(os.path.dirname(name), _generation_of(name))}
    found = {path for path in listed if not _is_compressed(path) or os.path.splitext(path)[0] not in listed}
    return sorted(_candidates(found), key=lambda one: (one.mtime, one.path))


def present_and_rotated(names: Iterable[str]) -> list[Candidate]:
    """Return the rotated generations of `names`, and what these are themselves."""
    return [*rotated(names), *_candidates(names)]


def are_same_files(some: Iterable[Candidate], others: Iterable[Candidate]) -> bool:
    """Return whether the same files stand under the same names."""
    return {(one.path, one.identity) for one in some} == {(one.path, one.identity) for one in others}


def place(records: Sequence[Record], candidates: Iterable[Candidate]) -> Mapping[Record, Candidate]:
    """Find the file of each record: the same inode with the same content, else, by content alone, a copy of it.

    Where nothing was read, the inode is all there is; by then it may be a file's that was found to be another record's.
    """
    left = {one.identity: one for one in candidates}
    placed: dict[Record, Candidate] = {}
    for is_its in (_is_same, _is_on_other_device, _is_copy, _is_unread):
        for record in records:
            found = None if record in placed else next((one for one in left.values() if is_its(one, record)), None)
            if found is not None:
                placed[record] = left.pop(found.identity)
    return placed


def _is_same(one: Candidate, record: Record) -> bool:
    return one.identity == record.identity and record.proof.offset > 0 and _holds(one, record)


def _is_on_other_device(one: Candidate, record: Record) -> bool:
    """Tell a file whose file system was mounted anew, and has got another number."""
    is_there = one.identity[1] == record.inode and one.path in (record.name, record.real)
    return is_there and record.proof.offset > 0 and _holds(one, record)


def _is_copy(one: Candidate, record: Record) -> bool:
    """Tell a copy, which is made after the last line; of a file too short to prove anything, by its name as well."""
    if one.mtime < record.mtime or not record.proof.offset:
        return False
    named_so = is_rotated(one.path, record.name) or is_rotated(one.path, record.real)
    return (record.proof.is_strong or named_so) and _holds(one, record)


def _is_unread(one: Candidate, record: Record) -> bool:
    """Tell a file by its inode, unless that is another file's by now: one that was made by compressing, or copying."""
    if one.identity != record.identity or record.proof.offset:
        return False
    return one.mtime == record.mtime or (one.is_plain and not _is_copy_of_present(one, record))


def _is_copy_of_present(one: Candidate, record: Record) -> bool:
    try:
        with closing(open_any(record.name)) as present:
            return present.identity != one.identity and is_copy_in_the_making(one, present, record)
    except OSError:
        return False


def read_record(one: Candidate, name: str) -> Record:
    """Return the record of a generation that is taken to be read to its end; raise OSError."""
    with closing(open_any(one.path)) as file:
        head, mark = file.pread(min(one.size, HEAD_BYTES), 0), b""
        if one.is_plain:
            mark = file.pread(min(one.size, MARK_BYTES), max(0, one.size - MARK_BYTES))
    return replace(one.fresh_record(name), proof=Proof.of(one.size if mark else len(head), head, mark), done=True)


def between(
    record: Record,
    past: Sequence[Record],
    opened: Sequence[tuple[Record, Opened]],
    is_being_copied: Callable[[Candidate], bool],
    *,
    rest: bool,
) -> list[Pair]:
    """Return the files of a record's rest, if asked for, and of the generations after it, each with where to begin.

    `past` and `opened` are what was read already, or is being read; of that, a copy may just be made.
    """
    others = [one for one in past if one.proof.offset and one != record] + [record]  # of the rest nothing was read
    open_now = {one.identity for one, _ in opened}
    found = [one for one in rotated({record.name, record.real}) if one.identity not in open_now]
    placed = place(others, found)
    taken = {one.identity for one in placed.values()}
    later = [one for one in found if one.identity not in taken and one.mtime >= record.mtime]
    new = [one for one in later if not _is_known(one, others, opened) and not is_being_copied(one)]
    wanted = [(one, one.fresh_record(record.name)) for one in new]
    if rest and record in placed:
        return [(placed[record], record), *wanted]
    return wanted


def with_copy_of_unread(pairs: list[Pair], record: Record) -> list[Pair]:
    """Return the pairs, the first for a record of which nothing was read: where it is as long, it may well be that."""
    if record.proof.offset or not pairs or any(its == record for _, its in pairs):
        return pairs
    first, *others = pairs
    may_be = first[0].size >= record.size or not first[0].is_plain
    return [(first[0], record), *others] if may_be else pairs


def _is_known(one: Candidate, records: Sequence[Record], opened: Sequence[tuple[Record, Opened]]) -> bool:
    """Return whether a file is a copy beyond doubt, or what was made of an open file that has lost its last name."""
    read = [*records, *(record for record, _ in opened)]
    if any(record.proof.is_strong and _holds(one, record) for record in read):
        return True
    try:
        return any(_has_same_end(one, file) for _, file in opened if not file.status().named)
    except OSError:
        return False


def _has_same_end(one: Candidate, file: Opened) -> bool:
    """Return whether a file is as long as another one, and ends alike; raise OSError."""
    size = file.status().size or 0
    begin = max(0, size - TAIL_BYTES)
    end = file.pread(TAIL_BYTES, begin)
    with closing(open_any(one.path)) as copy:
        return end.strip(b"\0") != b"" and copy.pread(TAIL_BYTES + 1, begin) == end


def is_copy_in_the_making(one: Candidate, file: Opened, record: Record) -> bool:
    """Return whether `one` may be a copy, complete or not yet, of a file that is read: what comes before a truncation.

    An empty one may well become that. Only what was read tells once the file is cut: as it is before compressing, and
    may be by now if the copy was completed since it was looked at.
    """
    if not is_rotated(one.path, record.name):
        return False
    try:
        may_be_half = one.is_plain and not 0 < record.proof.offset <= one.size
        if may_be_half and (one.size == 0 or _begins_alike(one, file)):
            return True
    except OSError:
        return False
    return record.proof.offset > 0 and _holds(one, record)


def _begins_alike(one: Candidate, file: Opened) -> bool:
    parts = ((min(one.size, HEAD_BYTES), 0), (min(one.size, TAIL_BYTES), max(0, one.size - TAIL_BYTES)))
    with closing(open_any(one.path)) as copy:
        return all(copy.pread(*part) == file.pread(*part) for part in parts)


def _holds(one: Candidate, record: Record) -> bool:
    try:
        with closing(open_any(one.path)) as file:
            size = file.status().size
            return (size is None or size >= record.proof.offset) and record.proof.holds(file.pread)
    except OSError:
        return False


def _listed(folder: str, wanted: re.Pattern[str]) -> list[str]:
    try:
        names = [name for name in os.listdir(folder or ".") if wanted.fullmatch(name) and is_text(name)]
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names]


def is_text(path: str) -> bool:
    """Return whether a path is text: anybody may make a file whose name is not."""
    return path.isascii() or not any("\ud800" <= one <= "\udfff" for one in path)


def _candidates(paths: Iterable[str]) -> Iterator[Candidate]:
    for path in paths:
        try:
            one = candidate(path)
        except OSError:
            continue
        if one is not None:
            yield one
