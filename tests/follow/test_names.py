"""What names and patterns mean at one moment."""

import os
from pathlib import Path

import pytest

from solpi_exporter.follow import names
from solpi_exporter.follow.names import Names


def touch(folder: Path, *several: str) -> None:
    """Make files, each changed a second later than the one before."""
    for number, name in enumerate(several):
        (folder / name).touch()
        os.utime(folder / name, (number, number))


def seen(folder: Path, *patterns: str) -> list[str]:
    """Return the names of the files that patterns of a folder mean."""
    return [os.path.basename(one.path) for one in Names([str(folder / one) for one in patterns], ()).look().files]


def test_a_name_is_a_name(tmp_path: Path) -> None:
    """And a pattern what it matches, the file that was written last at the end."""
    touch(tmp_path, "b.log", "a.log", "a.txt")

    assert seen(tmp_path, "a.log") == ["a.log"]
    assert seen(tmp_path, "*.log") == ["b.log", "a.log"]
    assert seen(tmp_path, "[a]*", "b.log") == ["b.log", "a.log", "a.txt"]


def test_a_file_is_one_under_however_many_names(tmp_path: Path) -> None:
    """Two patterns, a symbolic and a hard link mean it once."""
    touch(tmp_path, "a.log")
    (tmp_path / "link.log").symlink_to("a.log")
    (tmp_path / "hard.log").hardlink_to(tmp_path / "a.log")

    assert len(seen(tmp_path, "*.log", "a.*")) == 1


def test_patterns_of_folders(tmp_path: Path) -> None:
    """A folder may be a pattern too."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        touch(tmp_path / name, f"{name}.log")

    assert sorted(seen(tmp_path, "*/*.log")) == ["one.log", "two.log"]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst", ".lz4", ".zip"])
def test_a_compressed_file_is_never_a_log(tmp_path: Path, ending: str) -> None:
    """Not under a pattern, and not by its own name."""
    touch(tmp_path, "a.log.1", f"a.log.2{ending}")

    assert seen(tmp_path, "a.log*") == ["a.log.1"]
    assert seen(tmp_path, f"a.log.2{ending}") == []


def test_what_is_no_regular_file_is_passed_over(tmp_path: Path) -> None:
    """A folder and a pipe are no logs, and nothing is unclear about that."""
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    touch(tmp_path, "a.log")
    named = Names([str(tmp_path / "*.log")], ()).look()

    assert [one.path for one in named.files] == [str(tmp_path / "a.log")]
    assert named.unknown == ()


@pytest.mark.parametrize("name", ["missing.log", "missing/a.log", "a.log/b.log", "*.txt"])
def test_what_is_not_there_is_clear(tmp_path: Path, name: str) -> None:
    """A missing file, folder or match is an answer."""
    touch(tmp_path, "a.log")
    named = Names([str(tmp_path / name)], ()).look()

    assert (named.files, named.unknown) == ((), ())


def test_a_name_that_cannot_be_looked_at_is_not_clear(tmp_path: Path) -> None:
    """It may mean a file; the others are seen all the same."""
    (tmp_path / "circle.log").symlink_to("circle.log")
    touch(tmp_path, "a.log")
    named = Names([str(tmp_path / "circle.log"), str(tmp_path / "a.log")], ()).look()

    assert [one.path for one in named.files] == [str(tmp_path / "a.log")]
    assert named.unknown == (str(tmp_path / "circle.log"),)
    assert named.is_unknown(str(tmp_path / "circle.log"))
    assert not named.is_unknown(str(tmp_path / "a.log"))


def test_a_folder_that_cannot_be_listed_is_not_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """glob finds nothing there and says nothing; every file of the pattern may be there still."""
    touch(tmp_path, "a.log")
    pattern = str(tmp_path / "*.log")
    one = Names([pattern], [pattern])

    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        named = one.look()
    assert named.is_unknown(str(tmp_path / "a.log"))

    assert len(one.look().late) == 1


def test_a_name_is_looked_at_for_the_first_time_once(tmp_path: Path) -> None:
    """What is there then is joined at its end, and what comes later is not; one that is postponed has another time."""
    touch(tmp_path, "a.log")
    pattern = str(tmp_path / "*.log")
    one = Names([pattern], [pattern])
    assert len(one.look().late) == 1
    touch(tmp_path, "b.log")
    assert one.look().late == frozenset()

    one.postpone(str(tmp_path / "b.log"))

    assert len(one.look().late) == 1
    assert one.look().late == frozenset()


def test_a_name_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    """Anybody may make one, and no state could hold it."""
    touch(tmp_path, "a.log", os.fsdecode(b"\xff.log"))

    named = Names([str(tmp_path / "*.log")], ()).look()

    assert [one.path for one in named.files] == [str(tmp_path / "a.log")]


def test_what_is_to_be_joined_late(tmp_path: Path) -> None:
    """What only new patterns match; a file that an older pattern matches as well was being read."""
    touch(tmp_path, "a.log", "b.log")
    old, new = str(tmp_path / "a*"), str(tmp_path / "*.log")
    named = Names([old, new], [new]).look()
    late = {os.path.basename(one.path) for one in named.files if one.identity in named.late}

    assert late == {"b.log"}
    assert named.identities == {one.identity for one in named.files}
    assert len(named.identities) == 2


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("/var/log/vllm.log", "/var/log"),
        ("/var/log/*.log", "/var/log"),
        ("/var/log/pods/*/vllm/*.log", "/var/log/pods"),
        ("/*/vllm.log", "/"),
        ("vllm.log", "."),
        ("*/vllm.log", "."),
    ],
)
def test_the_folders_to_watch(pattern: str, folder: str) -> None:
    """Where a name may appear; above a pattern of folders, the last one that is none."""
    assert Names([pattern], ()).folders() == {folder}


def test_why_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pattern has its reason, and the one who reads it knows what to do."""
    touch(tmp_path, "a.log")
    file, missing, pattern, folder = (str(tmp_path / name) for name in ("a.log", "b.log", "c*.log", ""))
    assert Names([file], ()).obstacles() == f"{file} has only now become readable"

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(names, "FileIO", refuse)

    assert Names([file, missing, pattern, folder], ()).obstacles() == (
        f"{file} cannot be read: Permission denied; check the rights of the service's user; "
        f"{missing} does not exist; {pattern} matches no file that may be read; {folder} is no regular file"
    )
