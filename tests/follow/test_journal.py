"""The journal of a unit: the real journalctl on a journal that is made here, and a stand-in for what it may do."""

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from solpi_exporter.follow import journal as following
from solpi_exporter.follow.journal import PROOF_SECONDS, RETRY_SECONDS, JournalFollower
from solpi_exporter.follow.lines import Block, LineCounters
from solpi_exporter.follow.position import Position
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock
from tests.serving import eventually

UNIT = "vllm.service"
BEGIN = 1795967133  # of the journals that are made here (Unix)
REMOTE = "/lib/systemd/systemd-journal-remote"
LONG = b"x" * 5000
GONE = f"s={'0' * 31}1;i=1;b={'0' * 31}1;m=1;t=640000000000;x=1"
EVERYTHING = 1 << 40


@dataclass(frozen=True, slots=True)
class Entry:
    """What a unit says; `run` is the number that systemd gives to each of its runs."""

    message: bytes
    unit: str = UNIT
    run: str | None = None


def export(entries: Sequence[Entry], first: int = 0) -> bytes:
    """Return entries in the journal's export format, a second apart, the first `first` seconds after the beginning."""
    exported = []
    for number, entry in enumerate(entries, first):
        text = f"__REALTIME_TIMESTAMP={(BEGIN + number) * 1000000}\n__MONOTONIC_TIMESTAMP={1000 + number}\n"
        text += f"_BOOT_ID={'0' * 31}1\n_SYSTEMD_UNIT={entry.unit}\n"
        text += f"_SYSTEMD_INVOCATION_ID={entry.run}\n" if entry.run else ""
        length = struct.pack("<Q", len(entry.message))
        exported.append(text.encode() + b"MESSAGE\n" + length + entry.message + b"\n\n")
    return b"".join(exported)


class Journal:
    """A journal that is made here, and the command that reads it."""

    def __init__(self, folder: Path, tool: Callable[[str], str]) -> None:
        self._folder = folder / "journal"
        self._folder.mkdir()
        self._remote = tool(REMOTE)
        self._files = self._entries = 0
        self._followers: list[JournalFollower] = []
        self.command = [tool("journalctl"), "-D", str(self._folder)]

    def add(self, *entries: Entry) -> None:
        command = [self._remote, "-o", str(self._folder / f"{self._files}.journal"), "-"]
        subprocess.run(command, input=export(entries, self._entries), check=True, capture_output=True)
        self._entries += len(entries)

    def vacuum(self) -> None:
        """Remove all entries, as journald does with old ones; those that are added get a file with another number."""
        (self._folder / f"{self._files}.journal").unlink()
        self._files += 1

    def follower(
        self,
        *,
        from_beginning: bool = True,
        follow: bool = True,
        clock: FakeClock | None = None,
        position: Position | None = None,
        counters: LineCounters | None = None,
    ) -> JournalFollower:
        follower = JournalFollower(
            UNIT,
            from_beginning=from_beginning,
            follow=follow,
            clock=clock or FakeClock(),
            command=self.command,
            position=position,
            counters=counters,
        )
        self._followers.append(follower)
        return follower

    def close(self) -> None:
        """Close all its followers."""
        for follower in self._followers:
            follower.close()


@pytest.fixture
def empty(tmp_path: Path, tool: Callable[[str], str]) -> Iterator[Journal]:
    one = Journal(tmp_path, tool)
    yield one
    one.close()


@pytest.fixture
def journal(empty: Journal) -> list[str]:
    """Make a journal of two units and return the command that reads it."""
    empty.add(
        Entry(b"one"),
        Entry(b"not ours", unit="other.service"),
        Entry(b"tail \r 50%"),
        Entry(b"\xff\xfe"),
        Entry(LONG),
        Entry(b"a\nb"),
    )
    return empty.command


def numbered(first: int, count: int) -> list[Entry]:
    return [Entry(b"line %d" % number) for number in range(first, first + count)]


def lines(first: int, count: int) -> list[bytes]:
    """Return what `numbered` entries are read as."""
    return [entry.message + b"\n" for entry in numbered(first, count)]


def read(follower: JournalFollower, count: int) -> list[bytes]:
    """Read until as many messages have come, five seconds at most, and return them."""
    messages: list[bytes] = []

    def enough() -> bool:
        with suppress(SourceError):
            messages.extend(block.data for block in follower.read(EVERYTHING))
        return len(messages) >= count

    eventually(enough, timeout=5.0)
    return messages


def test_a_units_messages_to_the_end(journal: list[str]) -> None:
    """In order, of this unit only, bytes and long lines as they are, each one line, at their own times."""
    follower = JournalFollower(UNIT, from_beginning=True, follow=False, clock=FakeClock(), command=journal)

    blocks = list(follower.read(EVERYTHING))

    assert blocks == [
        Block(b"one\n", 1795967133.0),
        Block(b"tail \r 50%\n", 1795967135.0),
        Block(b"\xff\xfe\n", 1795967136.0),
        Block(LONG + b"\n", 1795967137.0),
        Block(b"a b\n", 1795967138.0),
    ]
    assert follower.counters.lines == 5


def test_the_real_journal_is_followed(journal: list[str]) -> None:
    """A child that stays; its entries come as they are ready, and none before the end is asked for with it."""
    follower = JournalFollower(UNIT, from_beginning=True, follow=True, clock=FakeClock(), command=journal)
    read: list[Block] = []

    assert eventually(lambda: read.extend(follower.read(EVERYTHING)) or len(read) == 5)  # type: ignore[func-returns-value]
    follower.close()


class StandIn:
    """A journalctl that prints what it is told to, notes its arguments, and ends or stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.script = folder / "journalctl.py"
        self.script.write_text(
            "import pathlib, sys, time\n"
            "folder = pathlib.Path(__file__).parent\n"
            "(folder / 'arguments').write_text(' '.join(sys.argv[1:]))\n"
            "sys.stdout.write((folder / 'output').read_text()); sys.stdout.flush()\n"
            "sys.stderr.write((folder / 'complaint').read_text())\n"
            "sys.exit(1)\n"
        )
        (folder / "complaint").write_text("")

    def says(self, *messages: str) -> None:
        self.enters(
            {"__CURSOR": f"c{message}", "__REALTIME_TIMESTAMP": "1000000", "MESSAGE": message} for message in messages
        )

    def enters(self, entries: Iterable[dict[str, str]]) -> None:
        (self.folder / "output").write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    def arguments(self) -> list[str]:
        return (self.folder / "arguments").read_text().split()

    def follower(self, *, from_beginning: bool = True) -> JournalFollower:
        command = (sys.executable, str(self.script))
        return JournalFollower(UNIT, from_beginning=from_beginning, follow=True, clock=self.clock, command=command)

    def until_it_ends(self, follower: JournalFollower) -> tuple[list[bytes], str]:
        """Read until the child has ended; return the messages and the complaint."""
        read: list[bytes] = []
        complaint: list[str] = []

        def ended() -> bool:
            try:
                read.extend(block.data for block in follower.read(EVERYTHING))
            except SourceError as error:
                complaint.append(str(error))
            return follower._child is None

        assert eventually(ended)
        return read, complaint[-1]


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


@pytest.mark.parametrize(("from_beginning", "lines"), [(True, "--lines=all"), (False, "--lines=1")])
def test_where_it_begins(stand_in: StandIn, from_beginning: bool, lines: str) -> None:
    """With everything, or with the last entry, which only proves that the unit is there."""
    stand_in.says()

    stand_in.until_it_ends(stand_in.follower(from_beginning=from_beginning))

    assert stand_in.arguments() == [f"--unit={UNIT}", "--output=json", "--all", "--quiet", lines, "--follow"]


def test_a_child_that_ends_is_started_again_at_its_cursor(stand_in: StandIn) -> None:
    """After a pause, and the entry that was read already does not count twice."""
    stand_in.says("one", "two")
    follower = stand_in.follower()
    assert stand_in.until_it_ends(follower)[0] == [b"one\n", b"two\n"]
    with pytest.raises(SourceError, match="journalctl ended without a word"):
        list(follower.read(EVERYTHING))

    stand_in.says("two", "three")
    stand_in.clock.now += RETRY_SECONDS

    assert stand_in.until_it_ends(follower)[0] == [b"three\n"]
    assert "--cursor=ctwo" in stand_in.arguments()
    assert follower.counters.lines == 3


def test_what_journalctl_complains_of_is_passed_on(stand_in: StandIn) -> None:
    """Its last line, and what to check."""
    stand_in.says()
    (stand_in.folder / "complaint").write_text(
        "Hint: x\nNo journal files were opened due to insufficient permissions.\n"
    )

    _, complaint = stand_in.until_it_ends(stand_in.follower())

    assert complaint == (
        "no journal of vllm.service: No journal files were opened due to insufficient permissions. "
        "(its readers are in the group systemd-journal)"
    )


def test_a_child_that_ends_again_and_again_is_one_failure(stand_in: StandIn) -> None:
    """No recovery is told before the new child has said something or lived for a while, and the reason stays."""
    stand_in.says()
    follower = stand_in.follower()
    _, first = stand_in.until_it_ends(follower)

    stand_in.clock.now += RETRY_SECONDS
    complaints = set()
    for _ in range(20):
        with pytest.raises(SourceError) as raised:
            list(follower.read(EVERYTHING))
        complaints.add(str(raised.value))

    assert complaints == {first}
    follower.close()


def test_from_the_end_the_last_entry_is_a_proof_and_no_line(stand_in: StandIn) -> None:
    """It was written before anybody looked."""
    stand_in.says("old", "new")
    follower = stand_in.follower(from_beginning=False)

    assert stand_in.until_it_ends(follower)[0] == [b"new\n"]


@pytest.mark.parametrize("follow", [True, False])
def test_a_unit_without_entries_is_a_failure(journal: list[str], follow: bool) -> None:
    """A misspelt name is not a quiet engine."""
    clock = FakeClock()
    follower = JournalFollower("typo.service", from_beginning=True, follow=follow, clock=clock, command=journal)

    if follow:
        assert list(follower.read(EVERYTHING)) == []
        clock.now += PROOF_SECONDS + 0.1
    with pytest.raises(SourceError, match=r"no journal of typo.service: it has no entry; check `journal`"):
        list(follower.read(EVERYTHING))
    follower.close()


def test_a_line_that_journald_has_broken_is_one_line(stand_in: StandIn) -> None:
    """Above LineMax it comes in several entries; the second one may begin like a line of the log, and is none."""
    broken = {"_LINE_BREAK": "line-max"}
    entries = [
        ("a prompt", "out", broken),
        ("Engine 000: no", "out", broken),
        ("an error", "err", {}),
        ("rest", "out", {}),
    ]
    stand_in.enters(
        {"__CURSOR": str(number), "__REALTIME_TIMESTAMP": "1000000", "MESSAGE": text, "_STREAM_ID": stream, **more}
        for number, (text, stream, more) in enumerate([*entries, ("next", "out", {})])
    )

    assert stand_in.until_it_ends(stand_in.follower())[0] == [b"a prompt\n", b"an error\n", b"next\n"]


def test_a_line_that_is_no_entry_costs_only_itself(stand_in: StandIn) -> None:
    """One that was cut off, or has no time."""
    stand_in.says("one", "two")
    output = stand_in.folder / "output"
    first, second = output.read_text().splitlines()
    output.write_text(f'{first}\n{{"__CURSOR": "x", "MESS\n[1]\n{{"MESSAGE": "timeless"}}\n{second}\n')

    assert stand_in.until_it_ends(stand_in.follower())[0] == [b"one\n", b"two\n"]


def test_without_a_place_for_complaints_there_is_one_failure(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary directory that is gone is told, and is not tried ten times a second."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    follower = stand_in.follower()
    complaints = set()
    for _ in range(5):
        with pytest.raises(SourceError) as raised:
            list(follower.read(EVERYTHING))
        complaints.add(str(raised.value))

    assert len(complaints) == 1


def test_no_journalctl() -> None:
    """A host without systemd is told so, and journalctl is not tried ten times a second."""
    clock = FakeClock()
    command = ("/nowhere/journalctl",)
    follower = JournalFollower(UNIT, from_beginning=True, follow=True, clock=clock, command=command)
    begun = clock.now
    for _ in range(3):
        with pytest.raises(SourceError, match=r"/nowhere/journalctl cannot be run \(No such file"):
            list(follower.read(EVERYTHING))
        clock.now += 0.1

    assert follower._started == begun
    follower.close()


def test_closing_ends_the_child(journal: list[str]) -> None:
    """No journalctl outlives its daemon."""
    follower = JournalFollower(UNIT, from_beginning=True, follow=True, clock=FakeClock(), command=journal)
    list(follower.read(EVERYTHING))
    child = follower._child
    assert child is not None
    assert child.poll() is None

    follower.close()

    assert child.poll() is not None


def test_a_successor_goes_on_after_the_last_entry(empty: Journal) -> None:
    """All that was written meanwhile, however much, and nothing twice; the counters go on as well."""
    empty.add(*numbered(0, 20))
    first = empty.follower(follow=False)
    assert read(first, 20) == lines(0, 20)
    empty.add(*numbered(20, 30))
    second = empty.follower(position=first.position(), counters=first.counters)

    assert read(second, 30) == lines(20, 30)
    assert second.counters.lines == 50


def test_a_successor_goes_on_with_what_is_written_now(empty: Journal) -> None:
    """Having caught up, it follows."""
    empty.add(*numbered(0, 2))
    first = empty.follower(follow=False)
    assert read(first, 2) == lines(0, 2)
    second = empty.follower(from_beginning=False, position=first.position())
    assert eventually(lambda: list(second.read(EVERYTHING)) == [] and second._proved)

    empty.add(*numbered(2, 1))

    assert read(second, 1) == lines(2, 1)


def test_a_unit_that_says_nothing_new_is_no_failure(empty: Journal) -> None:
    """The entry at the cursor is proof enough that there is such a unit."""
    empty.add(*numbered(0, 1))
    first = empty.follower(follow=False)
    assert read(first, 1) == lines(0, 1)
    clock = FakeClock()
    second = empty.follower(clock=clock, position=first.position())
    assert eventually(lambda: list(second.read(EVERYTHING)) == [] and second._proved)

    clock.now += PROOF_SECONDS + 0.1

    assert list(second.read(EVERYTHING)) == []


@pytest.mark.parametrize("follow", [True, False])
def test_a_cursor_whose_entry_is_gone_loses_nothing(empty: Journal, follow: bool) -> None:
    """Entries are removed by age and size; the first one that is left was not read."""
    empty.add(*numbered(0, 15))
    position = Position(cursor=GONE, time=BEGIN - 100.0)
    follower = empty.follower(from_beginning=False, follow=follow, position=position)

    assert read(follower, 15) == lines(0, 15)


def test_entries_that_were_removed_cost_none_of_those_after_them(empty: Journal) -> None:
    """The whole file is gone in which the cursor's entry was."""
    empty.add(*numbered(0, 5))
    first = empty.follower(follow=False)
    assert read(first, 5) == lines(0, 5)
    empty.vacuum()
    empty.add(*numbered(5, 15))

    second = empty.follower(follow=False, position=first.position())

    assert read(second, 15) == lines(5, 15)


def test_after_a_cursor_that_is_not_understood_the_time_tells(empty: Journal) -> None:
    """Journalctl ends because of it; what was written up to the time of the last entry was read."""
    empty.add(*numbered(0, 20))
    clock = FakeClock()
    follower = empty.follower(clock=clock, position=Position(cursor="nonsense", time=BEGIN + 4.0))

    def fails() -> bool:
        try:
            return list(follower.read(EVERYTHING)) != []
        except SourceError as error:
            return "Failed to seek to cursor: Invalid argument" in str(error)

    assert eventually(fails)
    clock.now += RETRY_SECONDS

    assert read(follower, 15) == lines(5, 15)


def test_the_position_is_that_of_the_last_entry(stand_in: StandIn) -> None:
    """Its cursor, and its time for when the cursor is good for nothing."""
    stand_in.says("one", "two")
    follower = stand_in.follower()
    assert follower.position() == Position()
    stand_in.until_it_ends(follower)

    assert follower.position() == Position(cursor="ctwo", time=1.0)


def test_what_the_real_journal_gives_as_position_is_found_again(empty: Journal) -> None:
    """Also where the last entry that was read is another's than the unit's."""
    empty.add(*numbered(0, 2), Entry(b"not ours", unit="other.service"))
    follower = empty.follower(follow=False)
    assert read(follower, 2) == lines(0, 2)

    position = follower.position()

    assert position.time == BEGIN + 1.0
    shown = subprocess.run(
        [*empty.command, f"--cursor={position.cursor}", "--output=cat"], check=True, capture_output=True
    )
    assert shown.stdout == b"line 1\nnot ours\n"


def test_reading_that_is_broken_off_loses_nothing(stand_in: StandIn) -> None:
    """The first catching up has a time limit: what had come with the last block is read the next time."""
    stand_in.says("one", "two", "three")
    follower = stand_in.follower()
    first: list[Block] = []

    def begun() -> bool:
        first.extend(islice(follower.read(EVERYTHING), 1))
        return first != []

    assert eventually(begun)
    assert follower.position().cursor == "cone"

    assert stand_in.until_it_ends(follower)[0] == [b"two\n", b"three\n"]


RUNS = [
    Entry(b"version 0.1", run="a" * 32),
    Entry(b"not ours", unit="other.service", run="c" * 32),
    Entry(b"version 0.2", run="b" * 32),
    Entry(b"ready", run="b" * 32),
]


def test_joined_at_the_end_the_beginning_of_the_run_is_a_head(empty: Journal) -> None:
    """What a server tells at its start is shown, of this run only, and not counted; what comes later counts."""
    empty.add(*RUNS)
    follower = empty.follower(from_beginning=False)
    shown: list[Block] = []

    assert eventually(lambda: shown.extend(follower.read(EVERYTHING)) or len(shown) == 1)  # type: ignore[func-returns-value]
    assert shown == [Block(b"version 0.2\nready\n", None, head=True)]
    assert follower.counters == LineCounters()

    empty.add(Entry(b"later", run="b" * 32))
    assert read(follower, 1) == [b"later\n"]
    assert follower.counters.lines == 1


def test_a_successor_is_shown_no_head(empty: Journal) -> None:
    """Its predecessor has seen it."""
    empty.add(*RUNS)
    first = empty.follower(from_beginning=False, follow=False)
    assert [block.head for block in first.read(EVERYTHING)] == [True]
    empty.add(Entry(b"later", run="b" * 32))

    second = empty.follower(from_beginning=False, follow=False, position=first.position())

    assert list(second.read(EVERYTHING)) == [Block(b"later\n", BEGIN + 4.0)]


def test_a_run_without_a_number_has_no_head(journal: list[str]) -> None:
    """Whoever has started it, it was not systemd."""
    follower = JournalFollower(UNIT, from_beginning=False, follow=False, clock=FakeClock(), command=journal)

    assert list(follower.read(EVERYTHING)) == []
    assert follower._proved


def test_a_long_head_ends_with_a_whole_entry(empty: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on what journalctl says, which is several times the message."""
    empty.add(*(Entry(b"line %d" % number, run="b" * 32) for number in range(50)))
    monkeypatch.setattr(following, "HEAD_BYTES", 5000)
    follower = empty.follower(from_beginning=False, follow=False)

    (head,) = follower.read(EVERYTHING)

    assert head.data.startswith(b"line 0\nline 1\n")
    assert head.data == b"".join(b"line %d\n" % number for number in range(head.data.count(b"\n")))
    assert 2 <= head.data.count(b"\n") < 50


class Script:
    """A journalctl that says of a unit that its last entry is of the run `r`, and of this run what a script says."""

    def __init__(self, folder: Path, of_the_run: str, *, at_first: str = "") -> None:
        self._path = folder / "journalctl"
        self._path.write_text(
            f"#!/bin/sh\n{at_first}\n"
            f'case "$1" in _SYSTEMD_INVOCATION_ID=r) {of_the_run};; esac\n'
            f"echo '{self.entry('last')}'\n"
        )
        self._path.chmod(0o755)

    @staticmethod
    def entry(message: str) -> str:
        return json.dumps(
            {"__CURSOR": message, "__REALTIME_TIMESTAMP": "1000000", "MESSAGE": message, "_SYSTEMD_INVOCATION_ID": "r"}
        )

    def read(self) -> list[Block]:
        command = [str(self._path)]
        follower = JournalFollower(UNIT, from_beginning=False, follow=False, clock=FakeClock(), command=command)
        with closing(follower):
            return list(follower.read(EVERYTHING))


def test_a_head_that_takes_too_long_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come until then is shown."""
    monkeypatch.setattr(following, "HEAD_SECONDS", 1.0)
    script = Script(tmp_path, f"echo '{Script.entry('start')}'; sleep 10 >/dev/null; echo '{Script.entry('late')}'")

    assert script.read() == [Block(b"start\n", None, head=True)]


def test_a_head_that_cannot_be_had_is_none(tmp_path: Path) -> None:
    """A journalctl that is being replaced just now, or that no process can be had for, is no reason to fail."""
    script = Script(tmp_path, "exit 1", at_first='rm "$0"')

    assert [block.data for block in script.read()] in ([], [b""])
