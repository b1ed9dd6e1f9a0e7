"""Asking for a new baseline."""

from pathlib import Path

from click.testing import CliRunner

from solpi_exporter.cli import main
from solpi_exporter.probe.repin import RepinMarker


def test_the_daemon_of_a_state_directory_is_asked(tmp_path: Path) -> None:
    """Once, and without its lock."""
    result = CliRunner().invoke(main, ["repin", "--state-dir", str(tmp_path)])

    assert result.exit_code == 0
    assert result.output.startswith("asked for: ")
    assert RepinMarker(tmp_path).take()
    assert not RepinMarker(tmp_path).take()


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    """In one line that names it."""
    result = CliRunner().invoke(main, ["repin", "--state-dir", str(tmp_path / "none")])

    assert result.exit_code == 2
    assert "none cannot be written: No such file or directory" in result.output


def test_without_a_directory_nobody_can_be_asked() -> None:
    """The flag and the setting that would name it are told."""
    result = CliRunner().invoke(main, ["repin"])

    assert result.exit_code == 2
    assert "--state-dir" in result.output
