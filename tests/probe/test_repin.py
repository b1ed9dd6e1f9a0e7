"""The marker that asks a daemon for a new baseline."""

from pathlib import Path

import pytest

from solpi_exporter.probe.repin import NAME, RepinMarker


def test_it_asks_once(tmp_path: Path) -> None:
    """However often it was set."""
    marker = RepinMarker(tmp_path)
    assert not marker.take()
    marker.ask()
    marker.ask()

    assert [marker.take(), marker.take()] == [True, False]


def test_a_directory_that_is_not_there_is_an_error_for_who_asks(tmp_path: Path) -> None:
    """And for the daemon it is no marker."""
    marker = RepinMarker(tmp_path / "no")

    assert not marker.take()
    with pytest.raises(FileNotFoundError):
        marker.ask()


def test_a_marker_that_cannot_be_taken_away_asks_for_nothing(tmp_path: Path) -> None:
    """Else each cycle would begin a new day."""
    (tmp_path / NAME).mkdir()

    assert not RepinMarker(tmp_path).take()
