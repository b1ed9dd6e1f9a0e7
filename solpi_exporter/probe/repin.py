"""How a running daemon is told to pin a new baseline: by a file in its state directory, which it takes away.

The state itself is the daemon's, which holds the directory's lock; to make a file beside it needs none.
"""

from contextlib import suppress
from pathlib import Path

NAME = "repin-baseline"


class RepinMarker:
    """The marker in a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / NAME

    def ask(self) -> None:
        """Ask for a new baseline; raise OSError where the directory is not there or may not be written to."""
        self._path.touch()

    def take(self) -> bool:
        """Return whether it was asked for, once. A marker that cannot be taken away asks for nothing."""
        with suppress(OSError):
            self._path.unlink()
            return True
        return False
