"""What the configured names and patterns mean at present: which files, in which folders, and why there may be none."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob, has_magic
from io import FileIO
from stat import S_ISREG

from solpi_exporter.follow.position import Identity
from solpi_exporter.follow.siblings import Candidate, candidate, is_text


@dataclass(frozen=True, slots=True)
class Named:
    """The files under our names, the one last written to last: what that says is what holds now.

    `late` are those to join at their end: they were there when their name was looked at first. `unknown` are the paths
    and patterns that could not be looked at, and may well mean a file.
    """

    files: tuple[Candidate, ...]
    late: frozenset[Identity]
    unknown: tuple[str, ...]

    @property
    def identities(self) -> frozenset[Identity]:
        """Their devices and inodes."""
        return frozenset(one.identity for one in self.files)

    def is_unknown(self, path: str) -> bool:
        """Whether nobody can say which file a path means now."""
        return any(matches(path, pattern) for pattern in self.unknown)


def matches(path: str, pattern: str) -> bool:
    """Return whether a pattern, or a path as it is, means a path."""
    return path == pattern or fnmatchcase(path, pattern)


class Names:
    """Paths and patterns; of those in `late`, what is there at the first look is joined at its end."""

    def __init__(self, patterns: Sequence[str], late: Collection[str]) -> None:
        self.patterns = tuple(patterns)
        self._late = set(late)

    def look(self) -> Named:
        """Return what is there. Compressed files are no logs to follow, whatever their name matches."""
        found: dict[Identity, Candidate] = {}
        meant: dict[Identity, bool] = {}  # and whether by nothing but names that were not looked at yet
        unknown: list[str] = []
        for pattern in self.patterns:
            for one in self._means(pattern, unknown):
                found.setdefault(one.identity, one)
                meant[one.identity] = meant.get(one.identity, True) and bool(self._late & {pattern, one.path})
        self._late.intersection_update(unknown)
        files = sorted(found.values(), key=lambda one: (one.mtime, one.path))
        return Named(tuple(files), frozenset(one for one, late in meant.items() if late), tuple(unknown))

    def present(self) -> list[Candidate]:
        """Return the files that are there, which is no first look at them."""
        return [one for pattern in self.patterns for one in self._means(pattern, [])]

    def postpone(self, path: str) -> None:
        """Let the next look be the first one at a path."""
        self._late.add(path)

    def _means(self, pattern: str, unknown: list[str]) -> Iterator[Candidate]:
        """Yield the files of a pattern; add to `unknown` what cannot be looked at."""
        try:
            paths = _expanded(pattern)
        except OSError:
            unknown.append(pattern)
            return
        for path in paths:
            try:
                one = candidate(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                unknown.append(path)
                continue
            if one is not None and one.is_plain:
                yield one

    def folders(self) -> set[str]:
        """Return the folders of the names; of a pattern of folders, the one that is above them all."""
        return {_plain(os.path.dirname(pattern)) or "." for pattern in self.patterns}

    def obstacles(self) -> str:
        """Say why nothing can be followed."""
        return "; ".join(map(_obstacle, self.patterns))


def _expanded(pattern: str) -> list[str]:
    """Return the paths of a pattern; raise OSError where its folder cannot be listed, of which glob says nothing.

    A name that is no text could not be written down, and is no log's.
    """
    if not has_magic(pattern):
        return [pattern]
    paths = glob(pattern)
    if not paths:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(_plain(os.path.dirname(pattern)) or "."):
            pass
    return [path for path in paths if is_text(path)]


def _plain(folder: str) -> str:
    while has_magic(folder):
        folder = os.path.dirname(folder)
    return folder


def _obstacle(pattern: str) -> str:
    """Say why nothing at `pattern` can be followed."""
    if has_magic(pattern):
        return f"{pattern} matches no file that may be read"
    try:
        if not S_ISREG(os.stat(pattern).st_mode):
            return f"{pattern} is no regular file"
        FileIO(pattern).close()
    except FileNotFoundError:
        return f"{pattern} does not exist"
    except OSError as error:
        return f"{pattern} cannot be read: {error.strerror}; check the rights of the service's user"
    return f"{pattern} has only now become readable"
