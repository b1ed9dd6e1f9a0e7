"""Follows files by name or pattern and yields their new complete lines, each once. It has never heard of an engine.

Growth is seen by fstat, not by events. Which file a name means is looked at each second, and when the watcher hints at
a change. What has lost its name is read to its end before its successor, as is what came and went between two looks.
"""

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace

from solpi_exporter.clock import Clock
from solpi_exporter.follow.generation import Cut, Generation
from solpi_exporter.follow.generations import Generations
from solpi_exporter.follow.lines import Block, Health, LineCounters
from solpi_exporter.follow.names import Named, Names, matches
from solpi_exporter.follow.position import Position, Record
from solpi_exporter.follow.siblings import Candidate, is_readable, is_rotated, place
from solpi_exporter.follow.start import around_last, before, last_line_end
from solpi_exporter.follow.watch import Watcher
from solpi_exporter.source import SourceError

SCAN_SECONDS = 1.0  # the longest time that a new file goes unnoticed when no event tells of it
DRAIN_SECONDS = 10.0  # after which the unfinished last line of a file that lost its name is taken as it is
KEEP_SECONDS = 3600.0  # how long one that has another name by now is kept open: its writer may only be idle
KEEP_FILES = 16  # how many of those


def _report_nothing(name: str, lost: int) -> None:
    """Report to nobody."""


def _of_these(patterns: Sequence[str], position: Position) -> Position:
    """Return what is known of the logs that are followed now: of another one, nothing shall be counted."""
    records = (one for one in position.records if any(matches(one.name, pattern) for pattern in patterns))
    return replace(position, records=tuple(records))


class FileFollower:
    """Follows every file that matches `patterns`; files that exist at the first look start at their end or beginning.

    Files that appear later are always read from their beginning. Of a file that is joined at its end, the part around
    its last line that matches `start` is shown as a head. `position` and `counters` are those of a predecessor: then
    only what was written since is read. `report` is told of bytes that were lost, by the name of their log.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        from_beginning: bool,
        start: re.Pattern[bytes],
        watcher: Watcher,
        clock: Clock,
        position: Position | None = None,
        counters: LineCounters | None = None,
        report: Callable[[str, int], None] = _report_nothing,
    ) -> None:
        self.counters = counters or LineCounters()
        kept = _of_these(patterns, position or Position())
        self._names = Names(patterns, () if from_beginning else set(patterns) - set(kept.patterns))
        self._start = start
        self._watcher = watcher
        self._clock = clock
        self._generations = Generations(kept.records, self.counters, report)
        self._next_scan: float | None = None  # None until the first look
        self._is_fresh = not kept.records  # until then, unless there was a predecessor

    def read(self, limit: int) -> Iterator[Block]:
        """Yield what is new, at most about `limit` bytes; raise SourceError while there is no file to follow.

        A file that may not be read is tried again at each look; one that has lost its name counts until it is drained.
        """
        for block in self._blocks():
            yield block
            limit -= len(block.data)
            if limit <= 0:
                return
        if not self._generations.open:
            raise SourceError(f"no log to follow: {self._names.obstacles()}")

    def position(self) -> Position:
        """Return what is known of every file, so that a successor goes on where this one is."""
        return Position(self._names.patterns, self._generations.records)

    def health(self) -> Health:
        """Return how many bytes are written and not yet read, how many files are open, and how the watcher does."""
        files = self._generations.open
        return Health(sum(one.lag() for one in files), len(files), self._watcher.active, self._watcher.overflows)

    def close(self) -> None:
        """Close every file and the watcher."""
        self._watcher.close()
        self._generations.close_all()

    def _blocks(self) -> Iterator[Block]:
        now = self._clock.monotonic()
        if self._next_scan is None:
            self._generations.resume(self._names.present())
        if self._watcher.changed() or self._next_scan is None or now >= self._next_scan:
            yield from self._read_all(self._generations.open)  # first: which of them were cut has to be known
            yield from self._scan(now)
        yield from self._read_all(self._generations.open)

    def _read_all(self, several: Iterable[Generation]) -> Iterator[Block]:
        for one in tuple(several):
            if one.has_news():
                yield from self._read(one)

    def _read(self, one: Generation) -> Iterator[Block]:
        """Yield a file's new lines; one that fails, by a stale handle or a disk error, is opened anew later."""
        try:
            untouched = one.record() if one.may_grow and one.is_untouched() else None
            if untouched is not None:
                yield from self._read_all(self._before(one))
            for lines in one.read():
                if one.retired is not None:
                    one.retired = self._clock.monotonic()  # it is written on, as behind a shell's redirection
                yield Block(lines, self._clock.time() if one.live else None, one.name)
            one.live = True
            if untouched is not None:  # or it was cut, and written again, between that look and the read
                yield from self._read_all(self._generations.add_before(one, untouched, rest=False))
        except Cut:
            yield from self._begin_again(one)
        except OSError:
            if one.is_current():
                self._generations.close(one, done=False)
            else:
                self._generations.lose(one)

    def _before(self, one: Generation) -> list[Generation]:
        """Open what a file held before what it holds now, if it was cut before anything was read of it."""
        older = self._generations.add_before(one, one.record(), rest=False)
        if older:
            one.restart()
        return older

    def _begin_again(self, one: Generation) -> Iterator[Block]:
        """Go on at the beginning of a file that was cut, after what can still be had of its old content."""
        if not one.may_grow:  # a copy that is written over by the next one: what is new in that is found when it is met
            self._generations.lose(one)
            return
        self.counters.truncations += 1
        record = one.record()
        one.restart()
        yield from self._read_all((*self._generations.add_before(one, record, rest=True), one))

    def _scan(self, now: float) -> Iterator[Block]:
        """Look at the names: open what is new, retire what has lost its name, let go of what has been drained.

        While a name cannot be looked at, nobody knows which file it means: that is not retired then, nor was the name
        looked at for the first time.
        """
        self._watcher.watch(self._folders())
        named = self._names.look()
        known = {one.identity: one for one in self._generations.open}
        for found in named.files:
            if found.identity in known:
                known[found.identity].path = found.path
        self._generations.settle()
        for found in named.files:
            if found.identity in known:
                continue
            if found.identity not in self._generations.identities:  # opened meanwhile, as an older generation
                yield from self._meet(found, named)
        yield from self._retire(named, now)
        self._next_scan, self._is_fresh = now + SCAN_SECONDS, False
        for one in self._generations.open:
            one.looked()

    def _folders(self) -> set[str]:
        """Return where names of ours may change: beside the names, and beside what symbolic links point to."""
        paths = {path for one in self._generations.open for path in (one.path, one.real)}
        return self._names.folders() | {os.path.dirname(path) or "." for path in paths}

    def _meet(self, found: Candidate, named: Named) -> Iterator[Block]:
        """Open a file that was not known; of one that replaces another, what was written between comes first."""
        join = found.identity in named.late
        if not join and self._generations.is_being_copied(found):
            return
        if not is_readable(found):  # its mode may be set only after its creation: the next look tells
            self.counters.open_failures += 1
            if join:
                self._names.postpone(found.path)
            return
        record = yield from self._same(found)
        name = self._log_of(found, named)
        last = self._generations.last(name) if record is None and not self._is_fresh else None
        new = self._generations.add(found, record or found.fresh_record(name))
        if new is None:
            self.counters.open_failures += 1
        elif join:
            self._generations.ignore_older(new, named.identities)
            yield from self._join(new)
        elif last is not None:
            self._generations.add_since(last, new)
            if found.path == name:
                self._count_rotation(found)
                new.live = self._next_scan is not None
        elif record is None:
            self._generations.ignore_older(new, named.identities)

    def _same(self, found: Candidate) -> Generator[Block, None, Record | None]:
        """Return the record of what was lost sight of and is here again, if need be with its content in another inode.

        The file that has lost its last name for it is read to its end first.
        """
        may_be = self._generations.waiting_for(found)
        for one in tuple(self._generations.open):
            if one.name == found.path and one.retired is None and not one.is_named():
                yield from self._read(one)
                may_be.append(one.record())
        return next(iter(place(may_be, [found])), None)

    def _log_of(self, found: Candidate, named: Named) -> str:
        """Return the log of which a file is a generation: the one that it is called after, or itself."""
        names = {one.path for one in named.files} | {one.name for one in self._generations.open}
        return min((name for name in names if is_rotated(found.path, name)), key=len, default=found.path)

    def _count_rotation(self, found: Candidate) -> None:
        if any(record.identity == found.identity for record in self._generations.past):
            self.counters.truncations += 1  # while nobody looked
        else:
            self.counters.renames += 1

    def _join(self, one: Generation) -> Iterator[Block]:
        """Go on at the end of a file, after showing its head, and at last what comes before that end.

        A file that cannot be read is left to the next read.
        """
        try:
            one.begin(last_line_end(one.file, one.file.status().size or 0))
            head, tail = around_last(self._start, one.file, one.offset), before(one.file, one.offset)
        except OSError:
            return
        finally:
            one.live = True
        yield Block(head, None, one.name, head=True)
        if not head.endswith(tail):
            yield Block(tail, None, one.name, head=True)

    def _retire(self, named: Named, now: float) -> Iterator[Block]:
        """Look after the files that have lost their name; of too many, the oldest go first."""
        present = named.identities
        for one in self._generations.open:
            if one.identity in present:
                one.retired = None
            elif one.retired is None and not named.is_unknown(one.path):
                one.retired = now
        quiet = {one: now - one.retired for one in self._generations.open if one.retired is not None}
        drained = [one for one, seconds in quiet.items() if seconds > DRAIN_SECONDS]
        for number, one in enumerate(drained, 1 - len(drained) + KEEP_FILES):
            yield from self._drained(one, close=number <= 0 or quiet[one] > KEEP_SECONDS)

    def _drained(self, one: Generation, *, close: bool) -> Iterator[Block]:
        """Take the unfinished last line of a file that has stood still, and close it if asked to, or nobody writes."""
        stood_still_since = one.retired
        yield from self._read(one)
        if one not in self._generations.open or one.retired != stood_still_since:
            return
        try:
            rest = one.finish()
            if rest is not None and (close or not (one.may_grow and one.is_named())):
                self._generations.close(one, done=True)
        except (Cut, OSError):  # which the next read meets as well
            return
        if rest:
            yield Block(rest, None, one.name)
