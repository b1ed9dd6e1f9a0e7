"""Where a log that is joined late is begun, and what is shown of it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solpi_exporter.follow import start
from solpi_exporter.follow.generation import BLOCK
from solpi_exporter.follow.opened import PlainFile, open_any
from solpi_exporter.follow.start import TAIL_BYTES, around_last, before, last_line_end

LANDMARK = re.compile(rb"^ENGINE STARTS", re.MULTILINE)
FILLING = b"x" * 99 + b"\n"

Open = Callable[[bytes], PlainFile]


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Open]:
    """Return what opens a file of the given content."""
    files: list[PlainFile] = []

    def open_one(content: bytes) -> PlainFile:
        path = tmp_path / f"{len(files)}.log"
        path.write_bytes(content)
        files.append(PlainFile(str(path)))
        return files[-1]

    yield open_one
    for file in files:
        file.close()


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (b"", 0),
        (b"one\n", 4),
        (b"one\ntwo", 4),
        (b"one\n\n", 5),
        (b"half", 4),
        (b"one\n" + b"x" * 2 * BLOCK + b"\nhalf", 5 + 2 * BLOCK),
        (b"one\n" + b"x" * 2 * BLOCK, 4 + 2 * BLOCK),
    ],
    ids=["empty", "whole", "unfinished", "empty line", "one half", "long before", "long unfinished"],
)
def test_the_end_of_the_last_line(holding: Open, content: bytes, end: int) -> None:
    """After the last newline; a file without one near its end is begun at its end."""
    assert last_line_end(holding(content), len(content)) == end


def test_what_grew_meanwhile_does_not_move_the_end(holding: Open) -> None:
    """The size is that of one moment, and so is the end."""
    assert last_line_end(holding(b"one\ntwo\nthree\n"), 6) == 4


def test_a_small_file_is_shown_whole(holding: Open) -> None:
    """With its landmark or without, in complete lines."""
    for content in (b"before\nENGINE STARTS\nafter\n", b"before\nafter\n"):
        assert around_last(LANDMARK, holding(content + b"half"), len(content) + 4) == content


def test_an_empty_file_shows_nothing(holding: Open) -> None:
    """There is no line in it."""
    assert around_last(LANDMARK, holding(b""), 0) == b""


@pytest.mark.parametrize("after", [0, 1, 9_000, 20_000, 50_000])
def test_the_last_start_is_in_the_middle(holding: Open, after: int) -> None:
    """However far back it is: what was said shortly before it, and after it, is shown, and no older start."""
    content = b"ENGINE STARTS first\n" + FILLING * 30_000 + b"version\nENGINE STARTS last\nfact\n" + FILLING * after

    shown = around_last(LANDMARK, holding(content), len(content))

    assert b"version\nENGINE STARTS last\nfact\n" in shown
    assert b"first" not in shown
    assert len(shown) <= BLOCK


def test_a_landmark_across_two_blocks_is_found(holding: Open) -> None:
    """The search goes back in blocks and misses nothing at their borders."""
    for shift in (1, 7, 13):
        content = FILLING * 20_000 + b"ENGINE STARTS\n" + b"y" * (BLOCK - shift) + b"\n"

        assert b"ENGINE STARTS\n" in around_last(LANDMARK, holding(content), len(content))


@pytest.mark.parametrize("first", [b"ENGINE STARTS\n", b"one\n"])
def test_what_grew_meanwhile_is_not_shown(holding: Open, first: bytes) -> None:
    """It is read as lines, and would be seen twice."""
    assert around_last(LANDMARK, holding(first + b"two\n"), len(first)) == first


def test_only_complete_lines_are_shown(holding: Open) -> None:
    """The block is cut at newlines on both sides."""
    content = FILLING * 30_000 + b"ENGINE STARTS\n" + FILLING * 30_000

    shown = around_last(LANDMARK, holding(content), len(content))

    assert set(shown.split(b"\n")) == {FILLING[:-1], b"ENGINE STARTS", b""}


def test_without_a_start_in_reach_the_beginning_is_shown(holding: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server said at the top of its log what it is, and the search has an end."""
    monkeypatch.setattr(start, "SEARCH_BYTES", 2 * BLOCK)
    content = b"top\n" + FILLING * 20_000 + b"ENGINE STARTS out of reach\n" + FILLING * 50_000

    shown = around_last(LANDMARK, holding(content), len(content))

    assert shown.startswith(b"top\n")
    assert b"ENGINE STARTS" not in shown
    assert shown.endswith(b"\n")
    assert len(shown) <= BLOCK


def test_what_comes_before_the_end_is_whole_lines(tmp_path: Path) -> None:
    """Of a long file its last lines, of a short one all."""
    path = tmp_path / "log"
    path.write_bytes(b"a line of a log\n" * 10_000)
    file = open_any(str(path))

    tail = before(file, 160_000)
    short = before(file, 32)
    file.close()

    assert tail == b"a line of a log\n" * (len(tail) // 16)
    assert TAIL_BYTES - 16 <= len(tail) <= TAIL_BYTES
    assert short == b"a line of a log\n" * 2
