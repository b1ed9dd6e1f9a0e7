"""The command `rules`: what it prints, what it writes, and what it refuses."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from solpi_exporter.cli import main
from solpi_exporter.rules.files import FILES
from solpi_exporter.rules.limits import LIMITS


def test_it_writes_every_file(tmp_path: Path) -> None:
    """Into a folder that it makes, with the limits that were asked for."""
    result = CliRunner().invoke(main, ["rules", "--out", str(tmp_path / "rules"), "--set", "kv_usage=0.8"])

    assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "rules").iterdir()} == set(FILES)
    assert "> 0.8" in (tmp_path / "rules" / "solpi-engine.yml").read_text()


def test_it_prints_one_file() -> None:
    """What is printed can be given to Prometheus as it is."""
    result = CliRunner().invoke(main, ["rules"])

    groups = yaml.safe_load(result.stdout)["groups"]
    assert [group["name"] for group in groups] == [group.name for groups in FILES.values() for group in groups]


def test_limits_are_told_with_their_meaning() -> None:
    """One a line, as they would be used."""
    result = CliRunner().invoke(main, ["rules", "--limits", "--set", "kv_usage=0.8"])

    assert len(result.stdout.splitlines()) == len(LIMITS)
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith("kv_usage ")] == ["0.8"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "kv_usag=0.8"], "there is no such limit"),
        (["--set", "kv_usage"], "give a name and a number"),
        (["--set", "kv_usage=much"], "give a name and a number"),
        (["--set", "kv_usage=nan"], "give a name and a number"),
        (["--out", "/proc/nowhere"], "cannot be written"),
        (["--out", __file__], "is a file"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], message: str) -> None:
    """It says what is wrong and what would be right."""
    result = CliRunner().invoke(main, ["rules", *arguments])

    assert result.exit_code == 2
    assert message in result.stderr
