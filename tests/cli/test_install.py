"""install and uninstall, without systemd; tests/test_service.py has them on a real one."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from solpi_exporter.cli import main
from solpi_exporter.rules.files import FILES
from solpi_exporter.service import installed
from solpi_exporter.service.unit import CONFIG, FLAGS, NO_PROBE, UNIT


def solpi(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def _readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this interpreter for one that everybody may read, wherever it lies."""
    monkeypatch.setattr(installed, "unreadable", lambda path: None)


def test_an_interpreter_that_the_service_cannot_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says which, why, and where to put it."""
    monkeypatch.setattr(installed, "unreadable", lambda path: f"{path} lies under /home")

    result = solpi("install", "--root", str(tmp_path))

    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {sys.executable} lies under /home: install the exporter elsewhere")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_readable")
def test_unit_settings_and_rules_are_laid_down(tmp_path: Path) -> None:
    """The unit runs this very interpreter; the drop-in is for those who ask for it."""
    result = solpi("install", "--root", str(tmp_path))

    places = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert result.exit_code == 0
    assert places == {UNIT, CONFIG, FLAGS, installed.NOTES, *(f"etc/solpi-exporter/rules/{name}" for name in FILES)}
    assert f"ExecStart={sys.executable} -m solpi_exporter run" in (tmp_path / UNIT).read_text()

    solpi("install", "--root", str(tmp_path), "--no-probe")
    assert (tmp_path / NO_PROBE).exists()


@pytest.mark.usefixtures("_readable")
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_a_dry_run_says_what_would_be_done(verb: str, tmp_path: Path) -> None:
    """And does nothing."""
    if verb == "uninstall":
        solpi("install", "--root", str(tmp_path))
    before = sorted(tmp_path.rglob("*"))

    result = solpi(verb, "--root", str(tmp_path), "--dry-run")

    assert f"{tmp_path / UNIT}: {'write' if verb == 'install' else 'remove'}\n" in result.output
    assert result.output.endswith("nothing was done: --dry-run\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_where_nothing_was_installed_nothing_is_taken_away(tmp_path: Path) -> None:
    """It may be another root that is meant."""
    result = solpi("uninstall", "--root", str(tmp_path))

    assert (result.exit_code, result.output) == (
        2,
        f"Error: {tmp_path}: nothing was installed there by `solpi-exporter install`\n",
    )


@pytest.mark.usefixtures("_readable")
def test_a_root_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    """With what is in the way."""
    (tmp_path / "etc").write_text("")

    result = solpi("install", "--root", str(tmp_path))

    assert result.exit_code == 2
    assert "Not a directory; run it as root, or with another --root" in result.output
