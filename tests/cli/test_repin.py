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


def test_a_file_that_is_pinned_is_told_to_stay(tmp_path: Path) -> None:
    """A new day is none beside it; it is asked for all the same, as the file may not fit."""
    config = tmp_path / "settings.toml"
    config.write_text(f'state_dir = "{tmp_path}"\n[probe]\nbaseline = "/etc/solpi/good.json"\n')

    result = CliRunner().invoke(main, ["repin", "--config", str(config)])

    assert result.exit_code == 0
    assert "but where /etc/solpi/good.json is its probe.baseline and fits this host, that stays" in result.output
    assert RepinMarker(tmp_path).take()


def test_settings_without_a_file_promise_a_new_day(tmp_path: Path) -> None:
    """Nothing is in its way; where the settings are not known, that a file would be is told."""
    config = tmp_path / "settings.toml"
    config.write_text(f'state_dir = "{tmp_path}"\n')

    said = [
        CliRunner().invoke(main, ["repin", *of]).output
        for of in (["--config", str(config)], ["--state-dir", str(tmp_path)])
    ]

    assert ["probe.baseline" in one for one in said] == [False, True]
    assert all(one.startswith("asked for: ") for one in said)


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
