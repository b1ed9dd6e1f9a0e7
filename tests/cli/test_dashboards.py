"""The dashboards' command: what it writes, and its statuses."""

from pathlib import Path

from click.testing import CliRunner

from solpi_exporter.cli.dashboards import dashboards


def test_what_it_writes_passes_its_check(tmp_path: Path) -> None:
    """Both with status 0, and nothing said."""
    for flag in ("--out", "--check"):
        result = CliRunner().invoke(dashboards, [flag, str(tmp_path)])

        assert (result.exit_code, result.output) == (0, "")


def test_the_check_names_what_is_stale(tmp_path: Path) -> None:
    """With status 1, and how to mend it."""
    CliRunner().invoke(dashboards, ["--out", str(tmp_path)])
    (tmp_path / "solpi-fleet.json").write_text("{}")

    result = CliRunner().invoke(dashboards, ["--check", str(tmp_path)])

    assert result.exit_code == 1
    assert f"solpi-fleet.json: run `solpi-exporter dashboards --out {tmp_path}`" in result.output


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    """In one line, with status 2."""
    (tmp_path / "file").touch()

    result = CliRunner().invoke(dashboards, ["--out", str(tmp_path / "file" / "folder")])

    assert result.exit_code == 2
    assert "cannot be written: Not a directory" in result.output


def test_one_of_the_two_is_wanted() -> None:
    """Neither, or both, is a mistake."""
    assert CliRunner().invoke(dashboards, []).exit_code == 2
    assert CliRunner().invoke(dashboards, ["--out", "a", "--check", "b"]).exit_code == 2
