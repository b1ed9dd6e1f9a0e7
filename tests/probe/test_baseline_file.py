"""A baseline as a file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from solpi_exporter.probe.baseline import Baseline, figures_of, fingerprint_of, over
from solpi_exporter.probe.baseline_file import (
    BaselineUnusable,
    check_new,
    encoded,
    read_baseline,
    write_baseline,
)
from solpi_exporter.probe.surroundings import Surroundings
from tests.fakes import FakeBench, batch_result

BENCH = FakeBench({1: batch_result(1)})
GOOD = Baseline(
    fingerprint_of(BENCH.identity, "AMD EPYC 9654"),
    Surroundings(driver="580.1", cuda=13.0, ecc=True, pcie_width=16),
    1.8e9,
    over([figures_of(BENCH.raw, [batch_result(1)])] * 3),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """All of it, whatever was there before, and nothing is left beside it."""
    path = tmp_path / "good.json"
    write_baseline(path, replace(GOOD, time=1.0))
    write_baseline(path, GOOD)

    assert read_baseline(path) == GOOD
    assert list(tmp_path.iterdir()) == [path]


def test_a_person_can_read_it() -> None:
    """It is JSON on many lines, and begins with its format."""
    lines = encoded(GOOD).decode().splitlines()

    assert lines[:2] == ["{", '  "solpi_probe_baseline": 1,']
    assert json.loads("\n".join(lines))["baseline"]["surroundings"]["driver"] == "580.1"


def test_what_a_later_program_adds_is_passed_over(tmp_path: Path) -> None:
    """As long as the format is the same."""
    plain = json.loads(encoded(GOOD))
    plain["baseline"]["surroundings"]["hypervisor"] = "none"
    (tmp_path / "good.json").write_text(json.dumps(plain))

    assert read_baseline(tmp_path / "good.json") == GOOD


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is damaged: "),
        (encoded(GOOD)[:-200], "is damaged: "),
        (encoded(GOOD).replace(b'"layers": 4', b'"layers": "four"'), "is damaged: Expected `int`, got `str`"),
        (encoded(GOOD).replace(b'"runs": 3', b'"runs": 0'), "is damaged: figure "),
        (b'{"solpi_probe_baseline": 1}', "is damaged: Object missing required field `baseline`"),
        (b"[" * 100_000, "is "),
        (b"\xff\xfe", "is damaged: "),
        (b"{}", "is no baseline of this probe: "),
        (b'["a", "list"]', "is no baseline of this probe: "),
        (b'{"identity": {}, "results": []}', "is no baseline of this probe: "),
        (b'{"solpi_probe_baseline": 2, "figures": {}}', "is of format 2, this program reads 1: use the program that "),
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: bytes, reason: str) -> None:
    """Damaged, foreign or of another format: one line that names the file and says how to get another one."""
    path = tmp_path / "bad.json"
    path.write_bytes(text)

    with pytest.raises(BaselineUnusable) as error:
        read_baseline(path)

    message = str(error.value)
    assert message.startswith(f"{path}: {reason}")
    assert message.endswith("save a new one with `solpi-exporter probe --save-baseline`")
    assert "\n" not in message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(BaselineUnusable, match=r"good\.json: cannot be read: No such file or directory"):
        read_baseline(tmp_path / "good.json")


def test_a_baseline_is_not_written_over(tmp_path: Path) -> None:
    """It may be the last known-good one."""
    path = tmp_path / "good.json"
    check_new(path)
    write_baseline(path, GOOD)

    with pytest.raises(BaselineUnusable, match="is there already, and is not written over: remove it, or name another"):
        check_new(path)


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_folder_that_cannot_be_had_is_told_before_measuring(tmp_path: Path, folder: str) -> None:
    """Measuring takes a while."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BaselineUnusable, match=f"{folder} is no directory that this user may write to"):
        check_new(tmp_path / folder / "good.json")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no half of a file beside it."""
    path = tmp_path / "good.json"
    write_baseline(path, GOOD)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    with pytest.raises(BaselineUnusable, match="cannot be written: No space left on device"):
        write_baseline(path, replace(GOOD, time=1.0))

    assert read_baseline(path) == GOOD
    assert list(tmp_path.iterdir()) == [path]
