"""The door to watchdog, with real inotify: names, what ends silently, limits, and what a follower makes of it."""

import ctypes
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from watchdog.events import FileSystemEvent
from watchdog.observers.api import BaseObserver

from solpi_exporter.follow.files import SCAN_SECONDS, FileFollower
from solpi_exporter.follow.watch import MOST_DIRECTORIES, OVERFLOW_LOGGER, DirectoryWatcher, _Hint
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock
from tests.follow.namespaces import inside
from tests.serving import eventually

EVERYTHING = 1 << 40


@pytest.fixture
def watcher() -> Iterator[DirectoryWatcher]:
    one = DirectoryWatcher()
    yield one
    one.close()


def hinted(watcher: DirectoryWatcher) -> bool:
    """Wait for the hint that a real event brings, five seconds at most."""
    return watcher._hint.event.wait(5.0) and watcher.changed()


def observer(watcher: DirectoryWatcher) -> BaseObserver:
    assert watcher._observer is not None
    return watcher._observer


def watched(watcher: DirectoryWatcher) -> set[str]:
    """Return which folders have an emitter that lives."""
    return {str(one.watch.path) for one in observer(watcher).emitters if one.is_alive()}


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

    assert watcher._watched == {}


def test_one_thread_that_ends_with_the_watcher(tmp_path: Path) -> None:
    """Closing leaves no thread behind."""
    before = threading.active_count()
    watcher = DirectoryWatcher()
    watcher.watch({str(tmp_path)})
    assert threading.active_count() > before

    watcher.close()

    assert threading.active_count() == before


@pytest.mark.parametrize("happening", ["deleted", "renamed"])
def test_a_folder_that_was_made_anew_is_watched_again(
    watcher: DirectoryWatcher, tmp_path: Path, happening: str
) -> None:
    """A watch is on a directory, not on its name: it ends with a deleted one, and goes along with a renamed one."""
    folder = tmp_path / "logs"
    folder.mkdir()
    watcher.watch({str(folder)})
    if happening == "deleted":
        folder.rmdir()
        assert hinted(watcher)
        assert eventually(lambda: not watched(watcher))
    else:
        folder.rename(tmp_path / "logs.old")
    folder.mkdir()
    watcher.watch({str(folder)})

    (folder / "a.log").touch()

    assert hinted(watcher)
    assert watcher.active


def test_a_renamed_folder_is_let_go(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """Only the directory that has the name now is watched."""
    folder = tmp_path / "logs"
    folder.mkdir()
    watcher.watch({str(folder)})
    folder.rename(tmp_path / "logs.old")
    folder.mkdir()
    watcher.watch({str(folder)})

    (tmp_path / "logs.old" / "late.log").touch()
    (tmp_path / "logs.old" / "late.log").unlink()

    assert not watcher._hint.event.wait(0.3)


def test_a_link_to_a_folder_that_is_switched(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """What the link means is watched, and no longer what it meant."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "current"
    link.symlink_to("one")
    watcher.watch({str(link)})
    assert watched(watcher) == {str(tmp_path / "one")}
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(link)
    watcher.watch({str(link)})

    (tmp_path / "two" / "a.log").touch()

    assert hinted(watcher)
    assert watched(watcher) == {str(tmp_path / "two")}


def test_a_tree_that_appears_later(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """Until it is there, the nearest directory above it is watched, so that each step is a hint."""
    levels = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    wanted = {str(levels[-1])}
    watcher.watch(wanted)
    for level in levels:
        assert watcher.active
        assert watched(watcher) == {str(level.parent)}
        level.mkdir()
        assert hinted(watcher)
        watcher.watch(wanted)

    (levels[-1] / "a.log").touch()

    assert hinted(watcher)


def test_several_folders_that_are_waited_for_in_one(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """One watch is enough for them, and none is left there once each has its own."""
    folders = [tmp_path / "a", tmp_path / "b"]
    watcher.watch(set(map(str, folders)))
    assert watched(watcher) == {str(tmp_path)}

    for folder in folders:
        folder.mkdir()
    watcher.watch(set(map(str, folders)))

    assert watched(watcher) == set(map(str, folders))
    assert watcher.active


def test_a_folder_that_cannot_be_read_is_not_watched(
    watcher: DirectoryWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inotify would raise no error, and watchdog neither; once it can be read, it is watched."""
    access = os.access
    with monkeypatch.context() as patched:
        patched.setattr("os.access", lambda path, mode: path != str(tmp_path) and access(path, mode))
        watcher.watch({str(tmp_path)})
        assert not watcher.active
        assert watcher._watched == {}

    watcher.watch({str(tmp_path)})
    assert watcher.active
    (tmp_path / "a.log").touch()

    assert hinted(watcher)


def active_in(*folders: str) -> bool:
    """Return whether a watcher says that it watches these."""
    watcher = DirectoryWatcher()
    watcher.watch(set(folders))
    watcher.close()
    return watcher.active


@pytest.mark.parametrize(("mode", "active"), [(0o755, True), (0o000, False), (0o600, False), (0o300, False)])
def test_rights_decide_what_is_watched(tool: Callable[[str], str], tmp_path: Path, mode: int, active: bool) -> None:
    """Without a superuser's rights, which a user namespace takes away, a directory must be readable to be watched."""
    folder = tmp_path / "logs"
    folder.mkdir()
    folder.chmod(mode)

    assert inside([tool("unshare"), "-U"], active_in, str(folder), needs=["true"]) == active
    folder.chmod(0o700)


@pytest.mark.parametrize("death", ["stopped", "handler"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_dispatcher_is_replaced(
    watcher: DirectoryWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    """Nobody is told when watchdog's thread ends, of an exception in a handler or otherwise."""

    def fail(hint: _Hint, event: FileSystemEvent) -> None:
        raise ValueError("boom")

    watcher.watch({str(tmp_path)})
    first = observer(watcher)
    with monkeypatch.context() as patched:
        patched.setattr(_Hint, "on_any_event", fail)
        (tmp_path / "a.log").touch() if death == "handler" else first.stop()
        first.join(5.0)
    assert not first.is_alive()
    watcher.watch({str(tmp_path)})

    (tmp_path / "b.log").touch()

    assert hinted(watcher)
    assert observer(watcher) is not first


def test_a_dead_dispatcher_leaves_no_threads(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """Its emitters and its reader end with it, however often that happens."""
    watcher.watch({str(tmp_path)})
    before = threading.active_count()
    for _ in range(3):
        observer(watcher).stop()
        observer(watcher).join(5.0)
        watcher.watch({str(tmp_path)})

    assert eventually(lambda: threading.active_count() <= before, timeout=5.0)


def test_a_dead_emitter_is_replaced(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """And the others are left alone."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    wanted = {str(tmp_path / "one"), str(tmp_path / "two")}
    watcher.watch(wanted)
    before = {str(one.watch.path): one for one in observer(watcher).emitters}
    before[str(tmp_path / "one")].stop()
    before[str(tmp_path / "one")].join(5.0)
    watcher.watch(wanted)

    (tmp_path / "one" / "a.log").touch()

    assert hinted(watcher)
    assert before[str(tmp_path / "two")] in observer(watcher).emitters


def test_too_many_folders(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """Each costs a thread: above the limit, only looking tells of the rest."""
    folders = [tmp_path / f"{number:02}" for number in range(MOST_DIRECTORIES + 1)]
    for folder in folders:
        folder.mkdir()
    watcher.watch(set(map(str, folders[1:])))
    assert watcher.active

    watcher.watch(set(map(str, folders)))
    assert not watcher.active
    assert len(watched(watcher)) == MOST_DIRECTORIES

    watcher.watch(set(map(str, folders[:-1])))
    assert watcher.active
    assert watched(watcher) == set(map(str, folders[:-1]))


def test_without_a_thread_to_be_had_there_is_no_watch(
    watcher: DirectoryWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit has a limit of tasks: its log is followed all the same, and trying again leaves no descriptors behind."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    watcher.watch({str(tmp_path)})
    assert not watcher.active
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        watcher.watch({str(tmp_path)})

    assert len(os.listdir("/proc/self/fd")) == opened


class AskedTooEarly(threading.Event):
    """Is set by another thread just after each question whether it is."""

    def is_set(self) -> bool:
        answer = super().is_set()
        self.set()
        return answer


def test_a_hint_that_comes_while_it_is_asked_for_is_not_lost(watcher: DirectoryWatcher) -> None:
    """It is the answer to this question or to the next."""
    watcher._hint.event = AskedTooEarly()

    assert watcher.changed() or watcher.changed()


def test_dropped_events_are_counted_and_are_a_hint(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """While no thread runs, the kernel's queue overflows: what was dropped may have been anything."""
    watcher.watch({str(tmp_path)})
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    script = f"import os\nfor _ in range({most}): os.mkdir('a'); os.rmdir('a')"
    writer = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    ctypes.PyDLL(None).waitpid(writer.pid, None, 0)  # a call that holds the interpreter's lock until the writer ends
    writer.wait()

    assert eventually(lambda: watcher.overflows == 1)
    assert watcher.changed()


def test_after_dropped_events_it_goes_on(watcher: DirectoryWatcher, tmp_path: Path) -> None:
    """The watches are still there."""
    watcher.watch({str(tmp_path)})
    logging.getLogger(OVERFLOW_LOGGER).warning("as watchdog says it")
    assert watcher.overflows == 1
    assert hinted(watcher)

    (tmp_path / "a.log").touch()

    assert hinted(watcher)
    assert watcher.overflows == 1


def test_a_closed_watcher_hears_nothing(tmp_path: Path) -> None:
    """Its handler is gone from watchdog's logger, so that daemons of one process do not pile up there."""
    logger = logging.getLogger(OVERFLOW_LOGGER)
    before = list(logger.handlers)
    watcher = DirectoryWatcher()
    watcher.watch({str(tmp_path)})
    assert len(logger.handlers) == len(before) + 1

    watcher.close()

    assert logger.handlers == before


class Following:
    """A follower with a real watcher, and a clock that stands still."""

    def __init__(self, *patterns: str) -> None:
        self.clock = FakeClock()
        self.watcher = DirectoryWatcher()
        self.follower = FileFollower(
            patterns, from_beginning=True, start=re.compile(b"START"), watcher=self.watcher, clock=self.clock
        )

    def read(self) -> str:
        """Return what is new, empty where there is no file."""
        try:
            return b"".join(block.data for block in self.follower.read(EVERYTHING)).decode()
        except SourceError:
            return ""

    def tells(self, text: str) -> bool:
        """Return whether this is what comes within five seconds, and no more."""
        said: list[str] = []

        def enough() -> bool:
            said.append(self.read())
            return len("".join(said)) >= len(text)

        return eventually(enough, timeout=5.0) and "".join([*said, self.read()]) == text


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    """Follow `logs/*.log` and `link.log`."""
    (tmp_path / "logs").mkdir()
    one = Following(str(tmp_path / "logs" / "*.log"), str(tmp_path / "link.log"))
    yield one
    one.follower.close()


def test_a_new_file_is_noticed_by_its_event(following: Following, tmp_path: Path) -> None:
    """No second passes."""
    assert following.read() == ""

    (tmp_path / "logs" / "a.log").write_text("one\n")

    assert following.tells("one\n")


def test_a_rotation_is_noticed_by_its_event(following: Following, tmp_path: Path) -> None:
    """What the old file still got comes before what the new one begins with."""
    path = tmp_path / "logs" / "a.log"
    path.write_text("one\n")
    assert following.read() == "one\n"

    with path.open("a") as file:
        file.write("two\n")
    path.rename(f"{path}.1")
    path.write_text("three\n")

    assert following.tells("two\nthree\n")
    assert following.follower.counters.lines == 3
    assert following.follower.counters.renames == 1


def test_a_file_that_is_moved_in_is_noticed_by_its_event(following: Following, tmp_path: Path) -> None:
    """It was complete before it had its name."""
    (tmp_path / "made.elsewhere").write_text("one\n")
    assert following.read() == ""

    (tmp_path / "made.elsewhere").rename(tmp_path / "logs" / "a.log")

    assert following.tells("one\n")


def test_a_link_that_is_switched_is_noticed_by_its_event(following: Following, tmp_path: Path) -> None:
    """As Kubernetes does it for a container that was started again."""
    for name in ("0", "1"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    (tmp_path / "link.log").symlink_to("0.txt")
    assert following.read() == "0\n"

    (tmp_path / "next").symlink_to("1.txt")
    (tmp_path / "next").replace(tmp_path / "link.log")

    assert following.tells("1\n")


def test_a_rotation_behind_a_link_is_noticed_by_its_event(following: Following, tmp_path: Path) -> None:
    """The folder of what a link points to is watched from the second look on."""
    pod = tmp_path / "pod"
    pod.mkdir()
    (pod / "0.txt").write_text("one\n")
    (tmp_path / "link.log").symlink_to(pod / "0.txt")
    assert following.read() == "one\n"
    following.clock.now += SCAN_SECONDS
    assert following.read() == ""

    (pod / "0.txt").rename(pod / "0.txt.1")
    (pod / "0.txt").write_text("two\n")

    assert following.tells("two\n")


def test_a_folder_that_is_made_anew_is_noticed_by_its_event(following: Following, tmp_path: Path) -> None:
    """As when a container's volume is cleared."""
    path = tmp_path / "logs" / "a.log"
    path.write_text("one\n")
    assert following.read() == "one\n"

    shutil.rmtree(path.parent)
    path.parent.mkdir()
    path.write_text("two\n")

    assert following.tells("two\n")


def test_a_folder_behind_a_link_takes_a_second(tmp_path: Path) -> None:
    """The link's own folder is not watched; once the switch is seen, the new folder is."""
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.log").write_text(f"{name}\n")
    (tmp_path / "current").symlink_to("v1")
    following = Following(str(tmp_path / "current" / "*.log"))
    assert following.read() == "v1\n"
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").replace(tmp_path / "current")

    following.clock.now += SCAN_SECONDS
    assert following.read() == "v2\n"
    (tmp_path / "v2" / "b.log").write_text("new\n")

    assert following.tells("new\n")
    following.follower.close()


def test_a_folder_that_appears_is_noticed_by_its_event(tmp_path: Path) -> None:
    """With a follower that has nothing to follow yet."""
    folder = tmp_path / "later"
    following = Following(str(folder / "a.log"))
    assert following.read() == ""
    folder.mkdir()
    assert eventually(lambda: following.read() == "" and watched(following.watcher) == {str(folder)})

    (folder / "a.log").write_text("one\n")

    assert following.tells("one\n")
    following.follower.close()


def follow_with(limit: str, value: str, folder: str) -> list[str | bool]:
    """Follow two folders under a limit on inotify; return what is read before and after a second has passed."""
    Path("/proc/sys/user", limit).write_text(value)
    one, two = Path(folder, "one"), Path(folder, "two")
    for each in (one, two):
        each.mkdir()
        (each / "old.log").write_text(f"old {each.name}\n")
    following = Following(str(one / "*.log"), str(two / "*.log"))
    first = following.read()
    (two / "new.log").write_text("new\n")
    at_once = following.read()
    following.clock.now += SCAN_SECONDS
    return [first, at_once, following.read(), bool(following.follower.health().notified)]


@pytest.mark.parametrize(
    ("limit", "value"), [("max_inotify_instances", "0"), ("max_inotify_watches", "0"), ("max_inotify_watches", "1")]
)
def test_without_inotify_a_new_file_takes_a_second(
    tool: Callable[[str], str], tmp_path: Path, limit: str, value: str
) -> None:
    """Where other programs have used up the system's instances or watches, nothing fails, and looking finds it."""
    needs = ["test", "-w", f"/proc/sys/user/{limit}"]

    read = inside([tool("unshare"), "-Ur"], follow_with, limit, value, str(tmp_path), needs=needs)

    assert read == ["old one\nold two\n", "", "new\n", False]


def share_one_instance(*folders: str) -> list[bool]:
    """Return whether each of several watchers is active when there is one instance, and the last, when the first ends.

    Folders are watched by one watcher each.
    """
    Path("/proc/sys/user/max_inotify_instances").write_text("1")
    watchers = [DirectoryWatcher() for _ in folders]
    for watcher, folder in zip(watchers, folders, strict=True):
        watcher.watch({folder})
    active = [watcher.active for watcher in watchers]
    watchers[0].close()
    watchers[-1].watch({folders[-1]})
    return [*active, watchers[-1].active]


def test_an_instance_that_becomes_free_is_taken(tool: Callable[[str], str], tmp_path: Path) -> None:
    """A watcher needs one instance, whatever it watches, and tries again for it."""
    (tmp_path / "one").mkdir()
    needs = ["test", "-w", "/proc/sys/user/max_inotify_instances"]
    folders = [str(tmp_path), str(tmp_path / "one")]

    assert inside([tool("unshare"), "-Ur"], share_one_instance, *folders, needs=needs) == [True, False, True]


def watch_mounts(folder: str, happening: str) -> list[bool]:
    """Watch a file system that is unmounted, or mounted anew; return whether that is noticed, and what it says."""
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    watcher = DirectoryWatcher()
    watcher.watch({folder})
    subprocess.run(["umount", folder], check=True)
    if happening == "remounted":
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    emitter = next(iter(observer(watcher).emitters))
    assert eventually(lambda: not emitter._inotify._active_callbacks_by_watch)  # type: ignore[attr-defined]
    watcher.watch({folder})
    Path(folder, "a.log").touch()
    return [hinted(watcher), watcher.active]


@pytest.mark.parametrize("happening", ["unmounted", "remounted"])
def test_a_file_system_that_goes_is_not_watched_any_more(
    tool: Callable[[str], str], tmp_path: Path, happening: str
) -> None:
    """The kernel ends the watch; the next tmpfs in that place has the same device and inode."""
    unshare = [tool("unshare"), "-m"]
    needs = [tool("mount"), "-t", "tmpfs", "none", str(tmp_path)]

    assert inside(unshare, watch_mounts, str(tmp_path), happening, needs=needs) == [True, True]
