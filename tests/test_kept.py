"""What sources keep over a restart."""

from pathlib import Path

import pytest

from solpi_exporter.kept import COPY_SECONDS, Kept
from solpi_exporter.statedir import StateDir
from tests.fakes import FakeClock, capturing_log, values


def test_state_without_a_directory_is_not_kept() -> None:
    """Nothing is read, nothing is written, nothing fails, and nothing is told of it."""
    log, captured = capturing_log()
    kept = Kept(None, log, FakeClock())

    assert kept.write("gpus", {"most": 1})

    assert kept.read("gpus", dict[str, int]) is None
    assert captured.entries == []
    assert list(kept.samples()) == []


def test_state_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    """A full disk takes no reading away; it is logged when it begins, counted each time, and tried again."""
    log, captured = capturing_log()
    directory = StateDir(tmp_path)
    kept = Kept(directory, log, FakeClock())
    kept.read("gpus", dict[str, int])
    assert kept.write("gpus", {"most": 1})
    in_the_way = tmp_path / "gpus.json.new"  # of the temporary file
    in_the_way.mkdir()

    assert [kept.write("gpus", {"most": 2}) for _ in range(3)] == [False, False, False]
    assert kept.read("gpus", dict[str, int]) == {"most": 1}
    in_the_way.rmdir()
    assert kept.write("gpus", {"most": 3})

    assert [entry["event"] for entry in captured.entries] == ["state_not_saved"]
    assert values(kept.samples())["solpi_state_write_failures_total"] == {("gpus",): 3.0}
    directory.close()


def test_what_changes_all_the_time_is_copied_now_and_then(tmp_path: Path) -> None:
    """Bringing it to the disk takes ten milliseconds of it; the state itself is written each time."""
    log, _ = capturing_log()
    directory, clock = StateDir(tmp_path), FakeClock()
    kept = Kept(directory, log, clock)
    copies = []
    for number in range(30):
        kept.write("log", number, often=True)
        assert directory.read("log", int).value == number
        copies.append((tmp_path / "log~copy.json").read_text().split()[1])
        clock.now += 1.0

    assert COPY_SECONDS == 10.0
    assert copies == ["0"] * 10 + ["10"] * 10 + ["20"] * 10
    directory.close()


@pytest.mark.parametrize(
    ("state", "copy", "value", "outcome"),
    [
        (None, None, None, "none"),
        (b"", None, 2, "ok"),
        (b"damaged", None, 1, "copy"),
        (b"damaged", b"damaged", None, "damaged"),
    ],
)
def test_how_a_state_was_had_is_told(
    tmp_path: Path, state: bytes | None, copy: bytes | None, value: int | None, outcome: str
) -> None:
    """By a counter, and where something was wrong by one line of the log, with what is used in its place."""
    log, captured = capturing_log()
    directory = StateDir(tmp_path)
    if state is not None:
        directory.write("log", 1)
        directory.write("log", 2, copy=False)
        (tmp_path / "log~before.json").unlink()
    if state:
        (tmp_path / "log.json").write_bytes(state)
    if copy:
        (tmp_path / "log~copy.json").write_bytes(copy)
    kept = Kept(directory, log, FakeClock())

    assert kept.read("log", int) == value

    assert values(kept.samples())["solpi_state_loads_total"] == {("log", outcome): 1.0}
    told = [(entry["event"], entry["log_level"]) for entry in captured.entries]
    assert told == [("state_damaged", "error")] * (outcome in ("copy", "damaged"))
    directory.close()
