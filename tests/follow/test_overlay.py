"""A container's file system: overlayfs, where a file of an image is copied when it is first written to."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from solpi_exporter.follow.files import SCAN_SECONDS, FileFollower
from solpi_exporter.follow.watch import DirectoryWatcher
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock
from tests.follow.namespaces import inside

EVERYTHING = 1 << 40


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def overlay(folder: str, layers: str) -> Path:
    """Mount an overlay whose lower layer holds a log of one line, and return where that log is seen.

    The layers are on one file system, or on `two`.
    """
    base = Path(folder)
    mount("-t", "tmpfs", "none", folder)
    for name in ("lower", "top", "merged"):
        (base / name).mkdir()
    if layers == "two":
        mount("-t", "tmpfs", "none", str(base / "lower"))
    for name in ("upper", "work"):
        (base / "top" / name).mkdir()
    (base / "lower" / "vllm.log").write_text("image\n")
    top = base / "top"
    options = f"lowerdir={base / 'lower'},upperdir={top / 'upper'},workdir={top / 'work'}"
    mount("-t", "overlay", "none", "-o", options, str(base / "merged"))
    return base / "merged" / "vllm.log"


class Following:
    """Reads a log to its end, a second later each time, with real inotify."""

    def __init__(self, path: Path, predecessor: "Following | None" = None) -> None:
        self.clock = FakeClock()
        before = predecessor.follower if predecessor else None
        self.follower: FileFollower = FileFollower(
            [str(path)],
            from_beginning=True,
            start=re.compile(b"START"),
            watcher=DirectoryWatcher(),
            clock=self.clock,
            position=before.position() if before else None,
            counters=before.counters if before else None,
        )

    def read(self) -> str:
        """Return what is new, empty where there is no file."""
        self.clock.now += SCAN_SECONDS
        try:
            return b"".join(block.data for block in self.follower.read(EVERYTHING)).decode()
        except SourceError:
            return ""


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def follow_copy_up(folder: str, layers: str) -> list[str]:
    """Return what is read of a file of the lower layer before and after each of two appends."""
    path = overlay(folder, layers)
    following = Following(path)
    read = [following.read()]
    for text in ("one\n", "two\n"):
        append(path, text)
        read.append(following.read())
    return [*read, following.read()]


def follow_rotation(folder: str, layers: str) -> list[str]:
    """Return what is read before and after a file of the lower layer is written to, renamed and made anew."""
    path = overlay(folder, layers)
    following = Following(path)
    read = [following.read()]
    append(path, "one\n")
    path.rename(f"{path}.1")
    path.write_text("new\n")
    return [*read, following.read(), following.read()]


def follow_truncation(folder: str, layers: str) -> list[str]:
    """Return what is read before and after a file of the lower layer is cut to nothing, which copies nothing up."""
    path = overlay(folder, layers)
    following = Following(path)
    read = [following.read()]
    path.write_text("a longer line\n")
    return [*read, following.read(), following.read()]


def resume_after_copy_up(folder: str, layers: str) -> list[str]:
    """Return what is read before an append, and by a successor after it."""
    path = overlay(folder, layers)
    following = Following(path)
    read = [following.read()]
    successor = Following(path, following)
    following.follower.close()
    append(path, "one\n")
    return [*read, successor.read(), successor.read(), str(successor.follower.counters.lines)]


def follow_upper_layer(folder: str, layers: str) -> list[str]:
    """Return what is read of what a host writes into a container's upper layer, of which no event tells."""
    path = overlay(folder, layers)
    append(path, "one\n")
    following = Following(path)
    read = [following.read()]
    append(Path(folder, "top", "upper", "vllm.log"), "from the host\n")
    return [*read, following.read(), following.read()]


def run(tool: Callable[[str], str], folder: Path, function: Callable[[str, str], list[str]], layers: str) -> list[str]:
    """Run one of the above where mounting is permitted, or skip."""
    base, probe = folder / "base", folder / "probe"
    for each in (base, probe):
        each.mkdir()
    script = (
        'mount -t tmpfs none "$1" && cd "$1" && mkdir l u w m && '
        "mount -t overlay none -o lowerdir=l,upperdir=u,workdir=w m"
    )
    tool("mount")
    needs = [tool("sh"), "-c", script, "sh", str(probe)]
    read: list[str] = inside([tool("unshare"), "-m"], function, str(base), layers, needs=needs)
    return read


both = pytest.mark.parametrize("layers", ["one", "two"])


@both
def test_a_file_of_an_image_is_followed_over_its_copy_up(
    tool: Callable[[str], str], tmp_path: Path, layers: str
) -> None:
    """Each line once, although the first append puts another file in its place."""
    assert run(tool, tmp_path, follow_copy_up, layers) == ["image\n", "one\n", "two\n", ""]


@both
def test_a_file_of_an_image_is_rotated(tool: Callable[[str], str], tmp_path: Path, layers: str) -> None:
    """Its rest comes first, then the new file."""
    assert run(tool, tmp_path, follow_rotation, layers) == ["image\n", "one\nnew\n", ""]


@both
def test_a_file_of_an_image_is_truncated(tool: Callable[[str], str], tmp_path: Path, layers: str) -> None:
    """What is written then is new, although it is longer than what was read."""
    assert run(tool, tmp_path, follow_truncation, layers) == ["image\n", "a longer line\n", ""]


@both
def test_a_successor_goes_on_after_the_copy_up(tool: Callable[[str], str], tmp_path: Path, layers: str) -> None:
    """The content proves which file it is, whatever its inode is by then."""
    assert run(tool, tmp_path, resume_after_copy_up, layers) == ["image\n", "one\n", "", "2"]


def test_what_the_host_writes_below_is_seen(tool: Callable[[str], str], tmp_path: Path) -> None:
    """The size tells."""
    assert run(tool, tmp_path, follow_upper_layer, "one") == ["image\none\n", "from the host\n", ""]
