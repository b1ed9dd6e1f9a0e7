"""What the configured names and patterns mean at present: which files, in which folders, and why there may be none."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from io import FileIO
from stat import S_ISREG

from solpi_exporter.follow.opened import COMPRESSED
from solpi_exporter.follow.position import Identity
from solpi_exporter.follow.siblings import Candidate, candidate


@dataclass(frozen=True, slots=True)
class Named:
    """The files under our names, the one last written to last: what that says is what holds now.

    `late` are those to join at their end if they are there at the first look. Unless `whole`, some name could not be
    looked at, and may well mean a file.
    """

    files: tuple[Candidate, ...]
    late: frozenset[Identity]
    whole: bool

    @property
    def identities(self) -> frozenset[Identity]:
        """Their devices and inodes."""
        return frozenset(one.identity for one in self.files)


class Names:
    """Paths and patterns; of those in `late`, what is there at the first look is joined at its end."""

    def __init__(self, patterns: Sequence[str], late: Collection[str]) -> None:
        self.patterns = tuple(patterns)
        self._late = frozenset(late)

    def look(self) -> Named:
        """Return what is there. Compressed files are no logs to follow, whatever their name matches."""
        found: dict[Identity, Candidate] = {}
        late: set[Identity] = set()
        whole = True
        for path, is_late in self._paths().items():
            try:
                one = candidate(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                whole = False
                continue
            if one is not None:
                found[one.identity] = one
                late |= {one.identity} if is_late else set()
        return Named(tuple(sorted(found.values(), key=lambda one: (one.mtime, one.path))), frozenset(late), whole)

    def folders(self) -> set[str]:
        """Return the folders of the names; of a pattern of folders, the one that is above them all."""
        return {_plain(os.path.dirname(pattern)) or "." for pattern in self.patterns}

    def obstacles(self) -> str:
        """Say why nothing can be followed."""
        return "; ".join(map(_obstacle, self.patterns))

    def _paths(self) -> dict[str, bool]:
        paths: dict[str, bool] = {}
        for pattern, path in self._expanded():
            if os.path.splitext(path)[1] not in COMPRESSED:
                paths[path] = paths.get(path, True) and pattern in self._late
        return paths

    def _expanded(self) -> Iterator[tuple[str, str]]:
        for pattern in self.patterns:
            for path in glob(pattern) if has_magic(pattern) else [pattern]:
                yield pattern, path


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
