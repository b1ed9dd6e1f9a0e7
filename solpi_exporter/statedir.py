"""The state directory: held by one daemon at a time, so that two never keep their state over one another."""

import fcntl
import os
from pathlib import Path


class StateDirBusy(Exception):
    """The directory cannot be had; the message is one line and says why."""


class StateDir:
    """Makes and locks the directory; the lock goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._file = (path / "solpi-exporter.pid").open("a+")
        except OSError as error:
            raise StateDirBusy(f"state_dir {path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise StateDirBusy(
                f"state_dir {path} is in use by process {holder}: stop it, or choose another --state-dir"
            ) from error
        except OSError as error:
            self._file.close()
            raise StateDirBusy(f"state_dir {path} cannot be locked: {error.strerror}") from error
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def close(self) -> None:
        """Give the directory free."""
        self._file.close()
