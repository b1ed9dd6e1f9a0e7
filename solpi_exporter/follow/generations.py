"""Which generations of the followed logs there are: the open ones, older first, and what is known of all others.

Between the follower, which reads them, and the folder, where whoever rotates logs renames, copies, cuts, compresses and
removes files at any moment.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace

from solpi_exporter.follow.generation import Generation, open_generation
from solpi_exporter.follow.lines import LineCounters
from solpi_exporter.follow.position import Identity, Record
from solpi_exporter.follow.siblings import (
    Candidate,
    Pair,
    are_same_files,
    between,
    is_copy_in_the_making,
    place,
    present_and_rotated,
    read_record,
    rotated,
    with_copy_of_unread,
)

ATTEMPTS = 100  # to open what is being renamed: some 30 ms, since whoever renames may wait for a CPU meanwhile
DONE = 64  # records kept of files that were read to their end: as many generations as may lie about
WAITING = 1024  # and of those that cannot be found at present


class Generations:
    """`open` are read in their order; `past` are the records of files that are done, or cannot be found at present.

    `report` is told of bytes that were lost, by the name of their log.
    """

    def __init__(self, past: Iterable[Record], counters: LineCounters, report: Callable[[str, int], None]) -> None:
        self.open: list[Generation] = []
        self.past = list(past)
        self._counters = counters
        self._report = report
        self._missing: list[Record] = []  # of which nothing was read, so that nothing proves what became of them

    @property
    def records(self) -> tuple[Record, ...]:
        """All that is known."""
        return (*self.past, *(one.record() for one in self.open))

    @property
    def identities(self) -> set[Identity]:
        """Devices and inodes of the open files."""
        return {one.identity for one in self.open}

    def last(self, name: str) -> Record | None:
        """Return the last generation that was written under a name."""
        return next((record for record in reversed(self.records) if record.name == name), None)

    def waiting_for(self, found: Candidate) -> list[Record]:
        """Return what a file that is met may be: what was lost sight of, or let go and is here again."""
        return [record for record in self.past if not record.done or record.identity == found.identity]

    def is_being_copied(self, found: Candidate) -> bool:
        """Whether this is what comes before a truncation: nothing in it is new, until then."""
        return any(is_copy_in_the_making(found, one.file, one.record()) for one in self.open if one.is_current())

    def resume(self, named: Iterable[Candidate]) -> None:
        """Open what a predecessor was reading, wherever it is now; what is not found is kept in mind."""
        names = {name for record in self.past for name in (record.name, record.real)}
        pairs, opened = self._open_all(names, lambda: self._resumable(names, named))
        for one, record in pairs:
            if any(new.identity == one.identity for new in opened):
                self._take_up(record, one)
        self.open += opened

    def settle(self) -> None:
        """Wait no longer for what was not found of a log whose present file was."""
        for name in {one.name for one in self.open if one.is_current()}:
            self._give_up(name)

    def _resumable(self, names: Collection[str], named: Iterable[Candidate]) -> list[Pair]:
        """Return the files of what is not done."""
        present = {one.identity: one for one in (*named, *present_and_rotated(names))}
        placed = place(self.past, present.values())
        return [(placed[record], record) for record in self.past if record in placed and not record.done]

    def add(self, one: Candidate, record: Record) -> Generation | None:
        """Open a file where its record ends, as the newest; return None where it cannot be, or is another by now."""
        new = open_generation(one, record, self._counters)
        if new is not None:
            self._take_up(record, one)
            self.open.append(new)
        return new

    def add_since(self, last: Record, new: Generation) -> None:
        """Open what was written between the last known generation of a log and a new one, and the rest of the former.

        The new one is open by then: a copy of it may just be made.
        """
        self._insert(self._opened_since(last, rest=last in self.past and not last.done, before=new, is_next=True), new)
        self._give_up(last.name)

    def add_before(self, one: Generation, record: Record, *, rest: bool) -> list[Generation]:
        """Open what an open file held before what it holds now, and return it; `record` is what was read of that."""
        older = self._opened_since(record, rest=rest, before=one, is_next=rest)
        self._insert(older, one)
        return older

    def _insert(self, older: list[Generation], before: Generation) -> None:
        index = self.open.index(before)
        self.open[index:index] = older

    def ignore_older(self, new: Generation, named: Iterable[Identity]) -> None:
        """Note which generations there are when a log is met for the first time: they were never to be read."""
        for one in rotated({new.name, new.real}):
            if one.identity not in named:
                with suppress(OSError):
                    self._put_away(read_record(one, new.name))

    def close(self, one: Generation, *, done: bool) -> None:
        """Close a file that is read to its end, or else to be found again."""
        self.open.remove(one)
        self._put_away(replace(one.record(), done=done))
        one.file.close()

    def lose(self, one: Generation) -> None:
        """Close a file that cannot be read, and would not be met again; how much that costs may not be known."""
        self._counters.open_failures += 1
        self.close(one, done=False)
        self._lose(one.record())

    def close_all(self) -> None:
        """Close every file."""
        for one in self.open:
            one.file.close()
        self.open.clear()

    def _opened_since(self, record: Record, *, rest: bool, before: Generation, is_next: bool) -> list[Generation]:
        """Open a record's rest, if asked for, and the generations after it, but none that may come after `before`.

        `is_next`: the record's content has a successor, and this is not merely a look at what came before a file.
        """

        def wanted() -> list[Pair]:
            files = [(one.record(), one.file) for one in self.open]
            pairs = between(record, self.past, files, self.is_being_copied, rest=rest)
            if not before.has_its_name():  # asked last: else all that is rotated now came before it
                until = before.changed()
                pairs = [(one, its) for one, its in pairs if its == record or until is None or one.mtime <= until]
            return with_copy_of_unread(pairs, record) if rest else pairs

        missing = [each for each in self._missing if is_next and each.name == record.name]
        pairs, opened = self._open_all({record.name, record.real}, wanted)
        for one, its in pairs:
            if any(new.identity == one.identity for new in opened):
                self._take_up(its, one)
            elif its == record and its.proof.offset:
                self._lose(its)
            else:  # of which nothing was read: it is looked for again with the next generation
                self._counters.open_failures += 1
        if rest and not any(its == record for _, its in pairs):
            self._lose(record)
        self._account_for(missing)
        return opened

    def _open_all(
        self, names: Collection[str], wanted: Callable[[], list[Pair]]
    ) -> tuple[list[Pair], list[Generation]]:
        """Open what is wanted of the generations of `names`, all of it.

        Or again, if whoever rotates them was at it meanwhile: then some may have been looked for at a wrong name.
        """
        for attempt in range(1, ATTEMPTS + 1):
            before = present_and_rotated(names)
            pairs = wanted()
            opened = [new for one, its in pairs if (new := open_generation(one, its, self._counters)) is not None]
            is_whole = len(opened) == len(pairs) and are_same_files(before, present_and_rotated(names))
            if is_whole or attempt == ATTEMPTS:
                break
            for new in opened:
                new.file.close()
        return pairs, opened

    def _take_up(self, record: Record, one: Candidate) -> None:
        """Note that a record is open; of one that is continued by a copy, what it was stays known."""
        self.past = [each for each in self.past if each != record]
        if record.identity != one.identity or record.identity in self.identities:
            self._put_away(replace(record, done=True))

    def _put_away(self, record: Record) -> None:
        done = [each for each in self.past if each.done]
        waiting = [each for each in self.past if not each.done]
        if not record.done:
            self.past = [*done, *waiting[-WAITING + 1 :], record]
        elif record.proof.offset:  # nothing that was read is nothing to know
            self.past = [*done[-DONE + 1 :], record, *waiting]

    def _give_up(self, name: str) -> None:
        """Wait no longer for generations of a log that were not found when a later one was."""
        for record in self.past:
            if record.name == name and not record.done:
                self._lose(record)

    def _lose(self, record: Record) -> None:
        """Count what is known to have been there and cannot be found; where nothing was read of it, not at once."""
        self.past = [each for each in self.past if each != record]
        self._put_away(replace(record, done=True))
        if record.proof.offset:
            self._count_loss(record)
        elif record.unread and record not in self._missing:
            self._missing.append(record)

    def _count_loss(self, record: Record) -> None:
        if record.unread:
            self._counters.lost_bytes += record.unread
            self._report(record.name, record.unread)

    def _account_for(self, missing: Collection[Record]) -> None:
        """Count those of which no copy was met until the log's next generation: a copy may be found only with that."""
        known = [*self.past, *(replace(one.record(), mtime=one.changed() or 0) for one in self.open)]
        for record in missing:
            self._missing.remove(record)
            others = (one for one in known if one.name == record.name and one.identity != record.identity)
            if not any(one.mtime >= record.mtime and one.size >= record.size for one in others):
                self._count_loss(record)
