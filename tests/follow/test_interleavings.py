"""Each line once, whatever a writer does between any two system calls of the follower, and wherever that is killed."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from solpi_exporter.follow.files import DRAIN_SECONDS, SCAN_SECONDS, FileFollower
from solpi_exporter.follow.lines import LineCounters
from solpi_exporter.follow.position import Position
from solpi_exporter.source import SourceError
from tests.fakes import FakeClock, FakeWatcher
from tests.follow.interleaved import Killed, Turns
from tests.follow.writer import Writer

RUNS = int(os.environ.get("SOLPI_INTERLEAVINGS", "100"))
ROTATIONS = 12
KEPT = 4 * ROTATIONS  # generations: none is removed


class Daemons:
    """One follower after another: what counts is what was read up to the last save."""

    def __init__(self, path: Path, random: Random) -> None:
        self._path = path
        self._random = random
        self._clock = FakeClock()
        self._watcher = FakeWatcher()
        self._saved, self._counters = Position(), LineCounters()
        self.counted: list[bytes] = []
        self._follower = self._start()

    @property
    def lost(self) -> int:
        return self._counters.lost_bytes

    def _start(self) -> FileFollower:
        return FileFollower(
            [str(self._path)],
            from_beginning=True,
            start=re.compile(b"$^"),
            watcher=self._watcher,
            clock=self._clock,
            position=self._saved,
            counters=replace(self._counters),
        )

    def poll(self, *, later: float) -> None:
        """Read what is there, and save."""
        self._clock.now += later
        self._watcher.hint = self._random.random() < 0.5
        new: list[bytes] = []
        try:
            for block in self._follower.read(1 << 40):
                new += block.data.split(b"\n")[:-1]
        except SourceError:
            pass
        self._saved, self._counters = self._follower.position(), replace(self._follower.counters)
        self.counted += new

    def replace(self) -> None:
        """Start the next one where the last one's save was."""
        self._follower.close()
        self._follower = self._start()

    def close(self) -> None:
        self._follower.close()


def work(writer: Writer, random: Random) -> None:
    """Write and rotate, as often as generations are kept."""
    for _ in range(ROTATIONS):
        for _ in range(random.randint(0, 4)):
            writer.write(random.choice((1, 5, 60)))
        writer.rotate()
    writer.complete()


def run(folder: Path, seed: int, *, appending: bool, patch: pytest.MonkeyPatch) -> tuple[Counter[bytes], int]:
    """Return which lines were counted too often (or, negatively, not), and the bytes that were told as lost."""
    random = Random(seed)
    writer = Writer(folder / "vllm.log", seed, appending=appending, kept=KEPT)
    daemons = Daemons(folder / "vllm.log", random)
    daemons.poll(later=0.0)  # whoever has never saved anything begins anew
    turns = Turns(lambda: work(writer, random), random, random.choice((0.02, 0.1, 0.3)), random.choice((0.0, 0.003)))
    with patch.context() as hooks:
        turns.install(hooks)
        while not turns.done:
            for _ in range(random.randint(0, 30)):
                turns.let_write()
            try:
                with turns.following():
                    daemons.poll(later=random.choice((0.1, 0.1, SCAN_SECONDS)))
            except Killed:
                daemons.replace()
        turns.finish()
    for _ in range(4):
        daemons.poll(later=DRAIN_SECONDS + SCAN_SECONDS)
    daemons.close()
    writer.close()
    counted = Counter(daemons.counted)
    counted.subtract(writer.written)
    return Counter({line: count for line, count in counted.items() if count}), daemons.lost


@pytest.mark.parametrize("appending", [True, False], ids=["appending", "not appending"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what was open, when killed
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_each_line_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appending: bool) -> None:
    """None is missing, none counts twice, and nothing is told as lost."""
    for seed in range(RUNS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert run(folder, seed, appending=appending, patch=monkeypatch) == (Counter(), 0), seed
