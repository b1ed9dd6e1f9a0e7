"""The log that is written and the /metrics that answer."""

from pathlib import Path

import pytest

from solpi_exporter.clock import FastClock
from solpi_exporter.demo.recording import RUNS, load_run
from solpi_exporter.demo.stage import LogWriter, playing
from solpi_exporter.demo.timeline import Timeline
from solpi_exporter.engine.endpoint import fetch
from tests.fakes import SHIPPED, FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timeline(clock: FakeClock) -> Timeline:
    return Timeline([load_run(name) for name in RUNS], clock)


def test_a_round_writes_every_recorded_line(tmp_path: Path, timeline: Timeline, clock: FakeClock) -> None:
    """In steps of a few seconds, over all three runs, byte for byte."""
    path = tmp_path / "vllm.log"
    writer = LogWriter(path, timeline)
    for _ in range(int(timeline.seconds / 3)):
        writer.write_due()
        clock.now += 3.0
    clock.now += 3.0
    writer.write_due()
    writer.close()

    recorded = b"".join((SHIPPED / "vllm-0.24.0-h200" / f"{name}.log").read_bytes() for name in RUNS)
    assert (tmp_path / "vllm.log.1").read_bytes() == recorded


def test_nothing_is_written_before_its_time(tmp_path: Path, timeline: Timeline, clock: FakeClock) -> None:
    """Start-up is there at once; the first report comes nine seconds into the first load."""
    path = tmp_path / "vllm.log"
    writer = LogWriter(path, timeline)
    writer.write_due()
    assert b"KV cache size" in path.read_bytes()
    assert b"Avg prompt throughput" not in path.read_bytes()

    clock.now += 15.0
    writer.write_due()
    writer.close()

    assert path.read_bytes().count(b"Avg prompt throughput") == 1


def test_the_endpoint_answers_with_the_present(tmp_path: Path) -> None:
    """Over HTTP, in step with the clock."""
    clock = FastClock(100.0)
    timeline = Timeline([load_run(name) for name in RUNS], clock)

    with playing(tmp_path / "vllm.log", timeline, clock) as server:
        text = fetch(server.url, 5.0)

    assert "vllm:generation_tokens_total{" in text
