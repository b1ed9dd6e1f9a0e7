"""Each complete line counts once, as Prometheus sees it: real daemons that are killed, beside a writer that rotates.

The truth is what was written; it is held against `increase()` over all scrapes of all daemons.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO

import pytest

from tests.follow.writer import Writer
from tests.http_client import request
from tests.serving import eventually

UNREAD = 5  # rotations, of two generations each, before everything has to be read
KEPT = 2 * (UNREAD + 3) + 1  # generations: none is removed before it was read
ROUNDS = int(os.environ.get("SOLPI_KILLS", "60"))

_LINES = re.compile(r'^solpi_log_lines_total\{server="s"\} (\S+)$', re.MULTILINE)
_LOST = re.compile(r'^solpi_log_lost_bytes_total\{server="s"\} (\S+)$', re.MULTILINE)


class Scraper:
    """Scrapes one daemon after another, as one series."""

    def __init__(self, nursery: subprocess.Popen[str]) -> None:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        self._ask: IO[str] = nursery.stdin
        self._answer: IO[str] = nursery.stdout
        self._pid = self._port = 0
        self.values: list[float] = []
        self.lost = 0.0

    def start(self) -> None:
        """Start a daemon; it answers before its log is read, and then says nothing of that."""
        self._ask.write("\n")
        self._ask.flush()
        self._pid, self._port = map(int, self._answer.readline().split())

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def scrape(self) -> float | None:
        """Return the lines that are counted; None while nothing is told of them."""
        text = request(self._port, "/metrics").text
        found = _LINES.search(text)
        if found is None:
            return None
        self.values.append(float(found[1]))
        self.lost = float(_LOST.search(text)[1])  # type: ignore[index]
        return self.values[-1]

    def increase(self) -> float:
        """Return what Prometheus makes of the values: a value that falls is taken for a counter that began anew."""
        pairs = zip(self.values, self.values[1:], strict=False)
        return sum(new - old if new >= old else new for old, new in pairs)


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Scraper]:
    command = [sys.executable, "-m", "tests.nursery", str(tmp_path / "state"), str(tmp_path / "logs" / "vllm.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        scraper = Scraper(process)
        yield scraper
        scraper.kill()


def live_and_die(writer: Writer, scraper: Scraper, random: Random) -> int:
    """Let a daemon live for up to 0.2 s, and kill it at any instant of that; return how often the log was rotated."""
    scraper.start()
    end = time.monotonic() + random.choice((0.0, 0.02, 0.1, 0.2)) * random.random()
    rotations = 0
    while time.monotonic() < end:
        match random.choices(("write", "rotate", "scrape", "recreate"), (30, 2, 20, 1))[0]:
            case "write":
                writer.write(5)
            case "rotate" if rotations < 2:
                writer.rotate()
                rotations += 1
            case "scrape":
                scraper.scrape()
            case "recreate":  # nothing is removed before it was read
                writer.complete()
                if scraper.scrape() == len(writer.written):
                    writer.recreate()
    scraper.kill()
    if random.random() < 0.3:
        writer.rotate()
        rotations += 1
    writer.write(5)
    return rotations


def catch_up(writer: Writer, scraper: Scraper) -> bool:
    """Wait until a daemon has counted everything."""
    scraper.start()
    writer.complete()
    done = eventually(lambda: (scraper.scrape() or 0.0) >= len(writer.written))
    scraper.kill()
    return done


@pytest.mark.parametrize("appending", [True, False], ids=["appending", "not appending"])
def test_increase_is_the_truth_whatever_is_killed(nursery: Scraper, tmp_path: Path, appending: bool) -> None:
    """No value ever falls, none is too high, none of what was written is missing at the end, and none is lost."""
    (tmp_path / "logs").mkdir()
    random = Random(ROUNDS)
    writer = Writer(tmp_path / "logs" / "vllm.log", seed=1, appending=appending, kept=KEPT)
    nursery.start()
    assert eventually(lambda: nursery.scrape() == 0.0)
    nursery.kill()

    rotations = 0
    for _ in range(ROUNDS // 2):
        rotations += live_and_die(writer, nursery, random)
        assert nursery.values[-1] <= len(writer.written)
        if rotations > UNREAD or random.random() < 0.5:
            assert catch_up(writer, nursery), (nursery.values[-1], len(writer.written))
            rotations = 0
    nursery.start()
    writer.complete()
    assert eventually(lambda: nursery.scrape() == len(writer.written)), (nursery.values[-1], len(writer.written))

    assert nursery.increase() == len(writer.written)
    assert nursery.values == sorted(nursery.values)
    assert nursery.lost == 0.0
    writer.close()
