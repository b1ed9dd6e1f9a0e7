"""The thirteen situations in which mtail was measured: 3.0.0~rc50 lost lines in six of them.

Each line has its own number, so what was written and what was counted are compared line by line. As there, the file
exists, empty, when the follower joins it at its end.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.follow.following import Following


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    one = Following(tmp_path)
    one.path.touch()
    yield one
    one.follower.close()


def test_plain_appends(following: Following) -> None:
    """What is appended is counted."""
    following.start(from_beginning=False)
    following.write(100)
    following.poll()

    assert following.counted == following.written
    assert len(following.written) == 100


def test_an_old_writer_that_writes_after_the_rotation(following: Following) -> None:
    """It holds the renamed file until it is told, one second later; mtail lost its ten lines."""
    following.start(from_beginning=False)
    following.write(50)
    following.poll()
    following.rename()
    following.path.touch()
    following.poll()

    following.write(10, following.older)
    following.poll(later=0.5)
    following.write(40)
    following.poll()

    assert following.counted == following.written


def test_lines_just_before_and_just_after_a_rotation(following: Following) -> None:
    """Between two looks ten lines end the old file and forty begin the new one."""
    following.start(from_beginning=False)
    following.write(50)
    following.poll()

    following.write(10)
    following.rename()
    following.write(40)
    following.poll()

    assert following.counted == following.written


def test_a_new_file_that_comes_late_and_not_empty(following: Following) -> None:
    """For a second there is no file, then one with fifty lines, which mtail lost."""
    following.start(from_beginning=False)
    following.write(50)
    following.poll()
    following.rename()
    following.poll()

    following.write(50)
    following.poll()

    assert following.counted == following.written


def test_a_new_file_under_a_pattern(following: Following) -> None:
    """It is read from its beginning; mtail began at its end."""
    following.start("*.log", from_beginning=False)

    following.write(100, following.folder / "second.log")
    following.poll()

    assert following.counted == following.written


def test_a_cut_file_that_outgrows_its_old_size_unseen(following: Following) -> None:
    """Its size tells nothing; mtail went on in the middle of the new content."""
    following.start(from_beginning=False)
    following.write(50)
    following.poll()

    os.truncate(following.path, 0)
    following.write(80)
    following.poll()

    assert following.counted == following.written
    assert following.follower.counters.truncations == 1


def test_a_cut_file_that_is_seen_empty(following: Following) -> None:
    """The plain case of copytruncate."""
    following.start(from_beginning=False)
    following.write(50)
    following.poll()

    os.truncate(following.path, 0)
    following.poll()
    following.write(80)
    following.poll()

    assert following.counted == following.written


def test_a_writer_without_o_append(following: Following) -> None:
    """Behind a plain redirection it goes on at its old place, after a hole."""
    with following.path.open("wb", buffering=0) as writer:
        following.start(from_beginning=False)
        writer.write(following.text(50))
        following.poll()

        os.truncate(following.path, 0)
        following.poll()
        writer.write(following.text(80))
        following.poll()

    assert following.counted == following.written


def test_a_line_in_two_pieces(following: Following) -> None:
    """A second lies between them, and it is one line."""
    following.start(from_beginning=False)
    following.write(99)
    line = following.text(1)
    following.append(line[:5])
    following.poll()

    following.append(line[5:])
    following.poll()

    assert following.counted == following.written


def test_an_unfinished_last_line_that_is_rotated_away(following: Following) -> None:
    """Nobody finishes it; once the file has stood still it is taken as it is. mtail lost it."""
    following.start(from_beginning=False)
    following.write(99)
    following.append(following.text(1).rstrip(b"\n"))
    following.poll()
    following.rename()
    following.path.touch()

    following.settle()

    assert following.counted == following.written


def test_a_pattern_that_matches_the_rotated_name(following: Following) -> None:
    """A file under a new name is not a new file."""
    following.start("vllm.log*", from_beginning=False)
    following.write(60)
    following.poll()
    following.rename()
    following.path.touch()
    following.poll()

    following.write(40)
    following.poll()

    assert following.counted == following.written


def test_a_symbolic_link_that_is_switched(following: Following) -> None:
    """The name means another file in one moment."""
    first, second, link = (following.folder / name for name in ("r1", "r2", "link"))
    following.path.unlink()
    first.touch()
    following.path.symlink_to(first)
    following.start(from_beginning=False)
    following.write(60, first)
    following.poll()

    link.symlink_to(second)
    link.replace(following.path)
    following.write(40, second)
    following.poll()

    assert following.counted == following.written


def test_a_restart_with_lines_written_meanwhile(following: Following) -> None:
    """Thirty lines come while nobody reads, and the count goes on where it was; mtail had twenty of a hundred."""
    following.start(from_beginning=False)
    following.write(50)
    following.poll()
    kept = following.stop()

    following.write(30)
    following.resume(*kept)
    following.write(20)
    following.poll()

    assert following.counted == following.written
    assert following.follower.counters.lines == 100
