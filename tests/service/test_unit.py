"""The unit, as it is committed, and as systemd judges it."""

import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from solpi_exporter.config import Settings
from solpi_exporter.service.unit import CONFIG, FLAGS, NO_PROBE, UNIT, UNIT_NAME, files

FOLDER = Path(__file__).parents[2] / "systemd"
SHOWN = {UNIT: UNIT_NAME, NO_PROBE: "no-probe.conf", CONFIG: "config.toml", FLAGS: "default"}
PYTHON = "/usr/bin/python3"  # systemd-analyze wants a program that is there


@pytest.mark.parametrize("place", SHOWN)
def test_what_is_shown_is_what_is_installed(place: str, golden: Callable[[Path, str], None]) -> None:
    """In the folder systemd/, for a Python in /opt; --update-golden writes it."""
    golden(FOLDER / SHOWN[place], files(probe=False)[place])


def laid_down(folder: Path, *, probe: bool) -> Path:
    """Write the unit and its drop-in; return the unit's path."""
    texts = files(PYTHON, probe=probe)
    (folder / f"{UNIT_NAME}.d").mkdir()
    (folder / UNIT_NAME).write_text(texts[UNIT])
    if not probe:
        (folder / f"{UNIT_NAME}.d" / "no-probe.conf").write_text(texts[NO_PROBE])
    return folder / UNIT_NAME


@pytest.mark.parametrize(("probe", "most"), [(True, 1.8), (False, 1.5)])
def test_it_is_hardened(probe: bool, most: float, tool: Callable[[str], str], tmp_path: Path) -> None:
    """By systemd's own score, of which 10 is no protection at all: with the probe in the process, and without it."""
    unit = laid_down(tmp_path, probe=probe)

    analysed = subprocess.run(
        [tool("systemd-analyze"), "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    score = re.search(r"Overall exposure level for \S+: (\S+)", analysed.stdout)
    assert score is not None, analysed.stdout + analysed.stderr
    assert float(score[1]) <= most


def test_systemd_finds_no_fault_with_it(tool: Callable[[str], str], tmp_path: Path) -> None:
    """No unknown directive, no program that is missing."""
    unit = laid_down(tmp_path, probe=False)

    verified = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )

    about = [line for line in verified.stderr.splitlines() if "solpi-exporter" in line]
    assert about == []


def test_the_settings_to_begin_with_fit() -> None:
    """As they are, and with the example in them."""
    text = files()[CONFIG]
    example = re.sub(r"^# (?=\[\[|\w+ = )", "", text, flags=re.MULTILINE)

    assert msgspec.convert(tomllib.loads(text), Settings) == Settings()
    (server,) = msgspec.convert(tomllib.loads(example), Settings).engine.server
    assert (server.name, server.journal) == ("vllm", "vllm.service")
