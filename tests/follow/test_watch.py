"""The door to watchdog, with real inotify."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from solpi_exporter.follow.watch import DirectoryWatcher


@pytest.fixture
def watcher() -> Iterator[DirectoryWatcher]:
    one = DirectoryWatcher()
    yield one
    one.close()


def hinted(watcher: DirectoryWatcher) -> bool:
    """Wait for the hint that a real event brings, five seconds at most."""
    return watcher._hint.event.wait(5.0) and watcher.changed()


@pytest.mark.parametrize("happening", ["create", "rename", "delete"])
def test_what_happens_to_names_is_a_hint(watcher: DirectoryWatcher, tmp_path: Path, happening: str) -> None:
    """Created, moved and deleted files are told of, each once."""
    file = tmp_path / "a.log"
    if happening != "create":
        file.touch()
    watcher.watch({str(tmp_path)})
    match happening:
        case "create":
            file.touch()
        case "rename":
            file.rename(tmp_path / "b")
        case "delete":
            file.unlink()

    assert hinted(watcher)


def test_growth_is_no_hint(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """Following growth by events would cost many times what asking for the size costs."""
    file = tmp_path / "a.log"
    file.touch()
    watcher.watch({str(tmp_path)})
    file.write_text("grown\n")
    (tmp_path / "b.log").touch()  # its event comes after those of the write

    assert hinted(watcher)
    assert not watcher.changed()


def test_a_folder_that_is_not_there_is_tried_again(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """A missing folder is no error; once it exists, it is watched."""
    folder = tmp_path / "later"
    watcher.watch({str(folder)})
    folder.mkdir()
    watcher.watch({str(folder)})

    (folder / "a.log").touch()

    assert hinted(watcher)


def test_what_is_no_longer_wanted_is_not_watched(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """Watches follow the set of folders asked for."""
    watcher.watch({str(tmp_path)})
    watcher.watch(set())

    assert watcher._watches == {}


def test_one_thread_that_ends_with_the_watcher(tmp_path: Path) -> None:
    """Closing leaves no thread behind."""
    before = threading.active_count()
    watcher = DirectoryWatcher()
    watcher.watch({str(tmp_path)})
    assert threading.active_count() > before

    watcher.close()

    assert threading.active_count() == before
