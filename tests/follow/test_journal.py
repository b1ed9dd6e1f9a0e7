"""The journal of a unit: the real journalctl on a journal that is made here, and a stand-in for what it may do."""

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from solpi_exporter.follow.journal import PROOF_SECONDS, RETRY_SECONDS, JournalFollower
from solpi_exporter.follow.lines import Block
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock
from tests.serving import eventually

UNIT = "vllm.service"
REMOTE = "/lib/systemd/systemd-journal-remote"
LONG = b"x" * 5000
EVERYTHING = 1 << 40


def export(messages: list[tuple[str, bytes]]) -> bytes:
    """Return (unit, message) pairs in the journal's export format, a second apart."""
    entries = []
    for number, (unit, message) in enumerate(messages):
        text = f"__REALTIME_TIMESTAMP={1795967133000000 + number * 1000000}\n__MONOTONIC_TIMESTAMP={1000 + number}\n"
        head = f"{text}_BOOT_ID={'0' * 31}1\n_SYSTEMD_UNIT={unit}\n".encode()
        entries.append(head + b"MESSAGE\n" + struct.pack("<Q", len(message)) + message + b"\n\n")
    return b"".join(entries)


@pytest.fixture
def journal(tmp_path: Path, tool: Callable[[str], str]) -> list[str]:
    """Make a journal of two units and return the command that reads it."""
    (tmp_path / "export").write_bytes(
        export(
            [
                (UNIT, b"one"),
                ("other.service", b"not ours"),
                (UNIT, b"tail \r 50%"),
                (UNIT, b"\xff\xfe"),
                (UNIT, LONG),
                (UNIT, b"a\nb"),
            ]
        )
    )
    folder = tmp_path / "journal"
    folder.mkdir()
    command = [tool(REMOTE), "-o", str(folder / "made.journal"), str(tmp_path / "export")]
    subprocess.run(command, check=True, capture_output=True)
    return [tool("journalctl"), "-D", str(folder)]


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
        entries = [
            {"__CURSOR": f"c{message}", "__REALTIME_TIMESTAMP": "1000000", "MESSAGE": message} for message in messages
        ]
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
