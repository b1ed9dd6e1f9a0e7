"""The GPUs this host has had."""

from pathlib import Path
from typing import Any

import pytest

from solpi_exporter.gpu.reading import ExpectedGpus, GpuReading, GpuState
from solpi_exporter.gpu.remembered import NAME, RememberedGpus, Seen
from solpi_exporter.kept import Kept
from solpi_exporter.statedir import StateDir
from tests.fakes import FakeClock, capturing_log


class Shelf:
    """A store that counts how often it is written."""

    def __init__(self, kept: Any = None) -> None:
        self.kept, self.writes, self.is_full = kept, 0, False

    def read(self, name: str, kind: type[Any]) -> Any | None:
        assert (name, kind) == (NAME, Seen)
        return self.kept

    def write(self, name: str, value: object) -> bool:
        assert name == NAME
        self.writes += 1
        if self.is_full:
            return False
        self.kept = value
        return True


def told(gpus: RememberedGpus, *but: str) -> list[Any]:
    return list(gpus.readings(GpuState.LOST, but))


def test_a_host_that_has_had_no_gpu_expects_none() -> None:
    """Not known is not 0."""
    gpus = RememberedGpus(Shelf())

    assert gpus.count is None
    assert told(gpus) == []
    gpus.note(0, {})
    assert gpus.count is None


def test_the_most_that_were_there_are_expected() -> None:
    """As many as the driver ever listed, also where not all of them answered."""
    gpus = RememberedGpus()
    gpus.note(2, {"GPU-a": 0})
    gpus.note(1, {"GPU-a": 0})

    assert gpus.count == 2
    assert told(gpus) == [ExpectedGpus(2), GpuReading(0, "GPU-a", GpuState.LOST)]


def test_every_gpu_is_told_that_is_not_left_out() -> None:
    """Under its last index, and in the state that is asked for."""
    gpus = RememberedGpus()
    gpus.note(2, {"GPU-a": 0, "GPU-b": 1})
    gpus.note(2, {"GPU-b": 0})

    assert told(gpus, "GPU-a") == [ExpectedGpus(2), GpuReading(0, "GPU-b", GpuState.LOST)]
    assert list(gpus.readings(GpuState.QUIESCED))[1:] == [
        GpuReading(0, "GPU-a", GpuState.QUIESCED),
        GpuReading(0, "GPU-b", GpuState.QUIESCED),
    ]


def test_the_name_under_an_index_is_the_newest() -> None:
    """Also where one that was lost had the same."""
    gpus = RememberedGpus()
    gpus.note(2, {"GPU-a": 0, "GPU-b": 1})
    gpus.note(1, {"GPU-b": 0})

    assert gpus.uuids == {0: "GPU-b"}


def test_a_gpu_that_was_replaced_is_forgotten() -> None:
    """Once as many answer as are expected, the one that is not among them is not missing."""
    gpus = RememberedGpus()
    gpus.note(2, {"GPU-a": 0, "GPU-b": 1})
    gpus.note(1, {"GPU-a": 0})
    assert len(told(gpus)) == 3

    gpus.note(2, {"GPU-a": 0, "GPU-c": 1})

    assert [one.uuid for one in told(gpus)[1:]] == ["GPU-a", "GPU-c"]


def test_a_host_that_grows_forgets_none() -> None:
    """With four listed where there were two, three that answer are not enough."""
    gpus = RememberedGpus()
    gpus.note(2, {"GPU-a": 0, "GPU-b": 1})

    gpus.note(4, {"GPU-b": 1, "GPU-c": 2, "GPU-d": 3})

    assert {one.uuid for one in told(gpus)[1:]} == {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}


def test_what_is_configured_overrules_what_was_seen() -> None:
    """In both directions, and before any GPU was seen; it also says who is missing."""
    few, many = RememberedGpus(expected=1), RememberedGpus(expected=8)
    assert (few.count, many.count) == (1, 8)
    for gpus in (few, many):
        gpus.note(2, {"GPU-a": 0, "GPU-b": 1})
        gpus.note(1, {"GPU-b": 0})

    assert (few.count, many.count) == (1, 8)
    assert [one.uuid for one in told(few)[1:]] == ["GPU-b"]
    assert [one.uuid for one in told(many)[1:]] == ["GPU-a", "GPU-b"]


def test_it_is_kept_when_it_changes() -> None:
    """And not at every poll."""
    shelf = Shelf()
    gpus = RememberedGpus(shelf)
    for _ in range(3):
        gpus.note(2, {"GPU-a": 0, "GPU-b": 1})
    assert (shelf.kept, shelf.writes) == (Seen(2, {"GPU-a": 0, "GPU-b": 1}), 1)
    for _ in range(3):
        gpus.note(1, {"GPU-b": 1})
    assert shelf.writes == 1

    gpus.note(1, {"GPU-b": 0})

    assert (shelf.kept, shelf.writes) == (Seen(2, {"GPU-a": 0, "GPU-b": 0}), 2)


def test_it_is_known_after_a_restart(tmp_path: Path) -> None:
    """From the state directory: what is missing now was there before."""
    log, _ = capturing_log()
    directory = StateDir(tmp_path)
    state = Kept(directory, log, FakeClock())
    RememberedGpus(state).note(2, {"GPU-a": 0, "GPU-b": 1})

    gpus = RememberedGpus(state)

    assert told(gpus) == [
        ExpectedGpus(2),
        GpuReading(0, "GPU-a", GpuState.LOST),
        GpuReading(1, "GPU-b", GpuState.LOST),
    ]
    assert (tmp_path / "gpus.json").exists()
    directory.close()


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        "gpus",
        7,
        {"most": "2", "gpus": {}},
        {"most": 2.5, "gpus": {}},
        {"most": True, "gpus": {}},
        {"most": None, "gpus": {}},
        {"most": 2, "gpus": ["GPU-a"]},
        {"most": 2, "gpus": {"GPU-a": "0"}},
        {"most": 2, "gpus": {"GPU-a": None}},
        {"most": 2, "gpus": {"GPU-a": {}}},
    ],
)
def test_a_file_of_somebody_else_is_nothing(kept: Any, tmp_path: Path) -> None:
    """It is begun anew, and written over."""
    directory = StateDir(tmp_path)
    directory.write(NAME, kept)
    log, _ = capturing_log()
    state = Kept(directory, log, FakeClock())
    gpus = RememberedGpus(state)
    assert gpus.count is None
    assert told(gpus) == []

    gpus.note(1, {"GPU-a": 0})

    assert state.read(NAME, Seen) == Seen(1, {"GPU-a": 0})
    directory.close()


def test_what_could_not_be_written_is_tried_again() -> None:
    """After a full disk, though nothing has changed since; and not once it is written."""
    shelf = Shelf()
    shelf.is_full = True
    gpus = RememberedGpus(shelf)
    gpus.note(1, {"GPU-a": 0})
    gpus.note(1, {"GPU-a": 0})
    assert (shelf.writes, shelf.kept) == (2, None)

    shelf.is_full = False
    for _ in range(3):
        gpus.note(1, {"GPU-a": 0})

    assert shelf.writes == 3
    assert shelf.kept == Seen(1, {"GPU-a": 0})
