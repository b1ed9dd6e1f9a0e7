"""The state directory."""

import os
from pathlib import Path

import pytest

from solpi_exporter.statedir import StateDir, StateDirBusy


def test_it_is_made_and_held_by_one(tmp_path: Path) -> None:
    """A second daemon is told who has it; once it is free again, it can be had."""
    first = StateDir(tmp_path / "state")
    with pytest.raises(StateDirBusy, match=f"is in use by process {os.getpid()}: stop it, or choose another"):
        StateDir(tmp_path / "state")

    first.close()

    StateDir(tmp_path / "state").close()


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "state").write_text("")

    with pytest.raises(StateDirBusy, match=r"state_dir .*/state cannot be written: File exists"):
        StateDir(tmp_path / "state")
