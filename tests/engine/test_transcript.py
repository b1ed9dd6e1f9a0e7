"""What each recorded log and each file of format-exact lines reports, line by line, against what is written out.

The golden files are in `tests/readings`; a line that is not in its file reports nothing. Their diff is the review.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from pathlib import Path

import pytest

from solpi_exporter.engine.dialects.table import AUTO, chosen
from solpi_exporter.engine.listener import Listener
from solpi_exporter.engine.transcript import LONGEST_LINE, Transcript
from tests.conftest import READINGS
from tests.fakes import RECORDINGS, SHIPPED

LINES = Path(__file__).parent.parent / "loglines"
LOGS = sorted([*RECORDINGS.rglob("*.log"), *SHIPPED.rglob("*.log"), *LINES.glob("*.log")])
AFTER_ALL = datetime.fromisoformat("2026-11-30T00:00:00+00:00").timestamp()

# How many lines of each kind there are, counted with grep, in the short files by eye, and not by a dialect: stats,
# iteration, preemption, transfer, capacity, setting, error.
COUNTS = {
    "llamacpp-2024-json-and-text": (0, 0, 0, 0, 0, 0, 0, 0),
    "llamacpp-2026": (0, 0, 0, 0, 0, 0, 0, 0),
    "sglang-0.2-0.4.3": (5, 0, 1, 0, 1, 0, 0, 0),
    "sglang-0.5.8-0.5.23": (5, 0, 1, 0, 2, 0, 3, 0),
    "tensorrt-llm": (1, 4, 0, 0, 0, 0, 0, 0),
    "tgi": (0, 0, 0, 0, 0, 0, 0, 0),
    "vllm-hostile": (9, 0, 0, 0, 0, 0, 0, 0),
    "vllm-json": (2, 0, 0, 0, 1, 0, 1, 0),
    "vllm-kv-transfer-offload-lmcache": (0, 0, 0, 6, 0, 0, 0, 0),
    "vllm-rust-frontend-0.22-0.33": (5, 0, 0, 0, 1, 0, 0, 0),
    "vllm-trouble": (0, 0, 0, 0, 0, 0, 20, 0),
    "vllm-v0-0.2.0-0.4.2": (7, 0, 0, 0, 1, 1, 0, 0),
    "vllm-v0-0.8-0.10.2": (6, 0, 1, 0, 2, 2, 0, 0),
    "vllm-v1-0.10.1-0.11.2-ansi-prefix": (4, 0, 0, 0, 2, 3, 0, 0),
    "vllm-v1-0.12-0.15-ansi-prefix": (3, 1, 0, 0, 0, 0, 0, 0),
    "vllm-v1-0.16-0.27-plain-prefix": (2, 0, 0, 1, 3, 3, 0, 0),
    "vllm-v1-0.31-0.33": (6, 1, 0, 0, 1, 5, 0, 0),
    "vllm-v1-0.6.6-0.8.2": (6, 0, 0, 0, 4, 0, 0, 0),
    "vllm-v1-0.8.3-0.10.0": (6, 0, 0, 0, 3, 5, 1, 0),
    "vllm-v1-dp-and-aggregated": (4, 0, 0, 0, 2, 0, 0, 0),
    "wrap-docker-json": (3, 0, 0, 0, 0, 0, 0, 0),
    "wrap-journald-and-others": (12, 0, 0, 0, 0, 0, 0, 0),
    "vllm-0.11.2/kv-pressure": (14, 0, 0, 0, 2, 6, 1, 1),
    "vllm-0.24.0-h200/a-before": (11, 0, 0, 0, 2, 10, 1, 1),
    "vllm-0.24.0-h200/b-after": (16, 0, 0, 0, 2, 6, 1, 1),
    "vllm-0.24.0-h200/c-kv-pressure": (6, 0, 0, 0, 2, 6, 1, 1),
    "vllm-0.24.0-h200/d-kv-offload": (6, 0, 0, 6, 2, 6, 1, 1),
    "vllm-0.32.0/calm": (13, 0, 0, 0, 1, 5, 1, 1),
    "vllm-0.32.0/crash": (2, 0, 0, 0, 1, 5, 3, 0),
    "vllm-0.32.0/debug": (5, 0, 0, 0, 2, 5, 2, 1),
    "vllm-0.32.0/dp2": (0, 0, 0, 0, 2, 12, 1, 0),
    "vllm-0.32.0/dp2-one-api-server": (12, 0, 0, 0, 2, 6, 1, 1),
    "vllm-0.32.0/iteration-details": (3, 769, 0, 0, 1, 5, 2, 1),
    "vllm-0.32.0/json-config-file": (6, 0, 0, 0, 1, 5, 1, 1),
    "vllm-0.32.0/json-native": (6, 0, 0, 0, 1, 5, 1, 1),
    "vllm-0.32.0/kv-offload": (0, 0, 0, 0, 1, 4, 4, 0),
    "vllm-0.32.0/kv-pressure": (17, 0, 0, 0, 1, 5, 1, 1),
    "vllm-0.32.0/kv-pressure-quiet": (10, 0, 0, 0, 1, 5, 1, 1),
    "vllm-0.32.0/max-num-seqs-8": (3, 0, 0, 0, 1, 7, 2, 1),
    "vllm-0.32.0/no-stats": (0, 0, 0, 0, 1, 5, 1, 1),
    "vllm-0.32.0/spec-ngram": (11, 0, 0, 0, 1, 5, 1, 1),
    "vllm-0.8.5/kv-pressure": (19, 0, 6, 0, 2, 3, 1, 1),
}


def name_of(path: Path) -> str:
    return path.stem if path.parent == LINES else f"{path.parent.name}/{path.stem}"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def transcript(envelope: str = AUTO) -> Transcript:
    return Transcript(Listener(chosen(AUTO), envelope))


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_every_line_reports_what_is_written_out(path: Path, golden: Callable[[Path, str], None]) -> None:
    """Values in base units under their metrics' names, and the count of each kind."""
    reader = transcript()

    reports = list(reader.read(BytesIO(path.read_bytes()), "log", AFTER_ALL))

    text = "".join(f"{json.dumps(one)}\n" for one in (*reports, reader.summary()))
    golden(READINGS / f"{name_of(path).replace('/', '__')}.jsonl", text)
    assert tuple(reader.summary()["kinds"].values()) == COUNTS[name_of(path)]


def test_every_log_is_in_the_table() -> None:
    """A log that is added must have its expected counts, and nothing else has a golden file."""
    names = {name_of(path) for path in LOGS}

    assert names == COUNTS.keys()
    assert {path.stem for path in READINGS.iterdir()} == {name.replace("/", "__") for name in names}


def test_nothing_of_the_logs_text_is_told() -> None:
    """Requests, addresses, paths and prompts of the recordings stay where they are."""
    words = ("chatcmpl", "127.0.0.1", "/opt/", "prompt:", "story", "SamplingParams")
    for path in LOGS:
        text = (READINGS / f"{name_of(path).replace('/', '__')}.jsonl").read_text()
        assert not any(word in text for word in words)


def test_lines_are_counted_as_editors_count_them() -> None:
    """From 1 on; a last one without its newline is not complete, and reports nothing."""
    head = b"INFO 11-20 06:05:05 [loggers.py:335] "
    stats = head + b"Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs"
    reader = transcript()

    reports = list(reader.read(BytesIO(b"one\n\n" + stats + b"\n" + stats), "log", AFTER_ALL))

    assert [one["line"] for one in reports] == [3]
    assert (reader.summary()["lines"], reader.summary()["passed_over"]) == (4, 3)


def test_a_line_that_is_too_long_for_the_daemon_reports_nothing() -> None:
    """It is one line all the same; the next one is read."""
    stats = b"INFO 11-20 06:05:05 [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs"
    reader = transcript()

    reports = list(reader.read(BytesIO(stats + b", x" * LONGEST_LINE + b"\n" + stats + b"\n"), "log", AFTER_ALL))

    assert [one["line"] for one in reports] == [2]
    assert Counter(one["kind"] for one in reports) == {"stats": 1}
