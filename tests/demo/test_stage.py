"""The log that is written and the /metrics that answer."""

import threading
from pathlib import Path

import pytest

from solpi_exporter.clock import FastClock
from solpi_exporter.demo.recording import RUNS, load_run
from solpi_exporter.demo.stage import LogWriter, MetricsServer, playing
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


def test_the_endpoint_answers_with_the_present(timeline: Timeline, clock: FakeClock) -> None:
    """Over HTTP: at two instants what the recording says of them."""
    server = MetricsServer(timeline)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    answers, expected = [], []
    try:
        for _ in range(2):
            clock.now += 60.0
            answers.append(fetch(server.url, 5.0))
            now = timeline.now()
            expected.append(now.run.metrics.text(now.time))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert answers == expected
    assert answers[0] != answers[1]


def test_playing_begins_with_the_start_up_and_ends_clean(tmp_path: Path, timeline: Timeline) -> None:
    """The daemon finds the log, and no thread is left."""
    before = set(threading.enumerate())

    with playing(tmp_path / "vllm.log", timeline, FastClock(1.0)):
        assert b"KV cache size" in (tmp_path / "vllm.log").read_bytes()
        assert len(set(threading.enumerate()) - before) == 2

    assert set(threading.enumerate()) <= before
