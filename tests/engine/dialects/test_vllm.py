"""vLLM's dialect as a whole: every recorded log, the prefilter, the start, and what is never a report."""

from pathlib import Path

import pytest

from solpi_exporter.engine.dialects.dialect import Capacity, Event, Setting, Stats
from solpi_exporter.engine.dialects.vllm import VLLM, parse
from tests.engine.dialects.lines import HEAD, LOGLINES, STATS, event_of, head_of, log_lines
from tests.fakes import RECORDINGS, SHIPPED

LOGS = sorted([*RECORDINGS.rglob("*.log"), *SHIPPED.rglob("*.log")])
FORMS = sorted(LOGLINES.glob("vllm-*.log"))  # of releases that were not recorded

# The lines of each log that report something, by kind.
REPORTS: dict[str, dict[str, list[int]]] = {
    "vllm-hostile.log": {"stats": [3, 6, 7, 8, 9, 10, 11, 12, 17, 18]},  # 13 and 15 have blanks or NUL before the head
    "vllm-json.log": {"capacity": [1], "stats": [2, 6], "error": [4]},
    "vllm-kv-transfer-offload-lmcache.log": {"transfer": [1, 2, 3, 4, 5, 6]},
    "vllm-rust-frontend-0.22-0.33.log": {"stats": [2, 3, 4, 6, 7], "capacity": [8]},
    "vllm-trouble.log": {"error": [*(1, 2, 3, 4, 10, 14), *range(18, 24), *(31, 33, 34, 36, 37, 38, 39, 40)]},
    "vllm-v0-0.2.0-0.4.2.log": {"setting": [2], "capacity": [3], "stats": [11, 12, 13, 18, 19, 20, 21]},
    "vllm-v0-0.8-0.10.2.log": {
        "setting": [1, 3],
        "capacity": [5, 6],
        "stats": [8, 9, 11, 12, 13, 14],
        "preemption": [10],
    },
    "vllm-v1-0.10.1-0.11.2-ansi-prefix.log": {
        "setting": [1, 3, 4],
        "capacity": [11, 12],
        "stats": [15, 16, 17, 18],
    },
    "vllm-v1-0.12-0.15-ansi-prefix.log": {"stats": [1, 2, 5], "iteration": [4]},
    "vllm-v1-0.16-0.27-plain-prefix.log": {
        "setting": [3, 9, 10],
        "capacity": [14, 15, 21],
        "stats": [20, 22],
        "transfer": [23],
    },
    "vllm-v1-0.31-0.33.log": {  # 34 has a prefix, which the listener takes off
        "setting": [3, 7, 9, 10, 11],
        "capacity": [16],
        "stats": [22, 23, 24, 27, 28],
        "iteration": [26],
    },
    "vllm-v1-0.6.6-0.8.2.log": {"stats": [1, 2, 5, 11, 12, 13], "capacity": [3, 4, 6, 7]},
    "vllm-v1-0.8.3-0.10.0.log": {
        "setting": [1, 2, 3, 4, 5],
        "capacity": [10, 11, 13],
        "stats": [15, 16, 17, 18, 20, 21],
        "error": [22],
    },
    "vllm-v1-dp-and-aggregated.log": {"capacity": [4, 5], "stats": [6, 7, 8, 10]},
}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def log_path(name: str) -> Path:
    shipped = SHIPPED / name
    return shipped if shipped.exists() else RECORDINGS / name


def events(path: Path) -> list[Event]:
    lines = path.read_bytes().decode(errors="replace").split("\n")
    return [event for event in map(event_of, lines) if event is not None]


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_every_part_of_a_recorded_stats_line_is_known(path: Path) -> None:
    """Throughputs, running, waiting and KV usage are in each of them, whatever the release called them."""
    for event in events(path):
        if isinstance(event, Stats):
            assert event.values.keys() >= {
                "prompt_tokens_per_second",
                "generation_tokens_per_second",
                "running",
                "waiting",
                "kv_cache_usage_ratio",
            }
            assert 0 <= event.values["kv_cache_usage_ratio"] <= 1


@pytest.mark.parametrize("name", REPORTS)
def test_the_lines_that_report_are_these(name: str) -> None:
    """Of each release's log the same lines, and of the accesses, weights and tracebacks between them none."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(log_lines(name), 1):
        event = event_of(line)
        if event is not None:
            found.setdefault(event.kind, []).append(number)

    assert found == REPORTS[name]


def test_every_log_has_its_reports_listed() -> None:
    """A log that is added to tests/loglines gets its list."""
    assert [path.name for path in FORMS] == sorted(REPORTS)


@pytest.mark.parametrize("path", [*LOGS, *FORMS], ids=name_of)
def test_the_prefilter_lets_every_report_through(path: Path) -> None:
    """Of a whole log it yields every line that parses, once, in order; the source passes over all others undecoded."""
    data = path.read_bytes()
    data = data[: data.rfind(b"\n") + 1]
    reports = [line for line in data.split(b"\n") if parse(line.decode(errors="replace")) is not None]

    assert [line for line in VLLM.candidates(data) if parse(line.decode(errors="replace")) is not None] == reports


@pytest.mark.parametrize("path", [*LOGS, *FORMS], ids=name_of)
def test_the_prefilter_lets_a_report_through_that_stands_alone(path: Path) -> None:
    """Its own marker is on the line: it needs no neighbour that has one."""
    for line in path.read_bytes().split(b"\n"):
        if parse(line.decode(errors="replace")) is not None:
            assert list(VLLM.candidates(line + b"\n")) == [line]


def test_the_prefilter_looks_at_whole_lines() -> None:
    """A marker counts in the line of a gate only, and a line with many gates is one."""
    report = b"x] ] ] throughput: 1"
    assert list(VLLM.candidates(b"throughput: 1\n]\n" + report + b"\n[a] no\n" + report + b"\n")) == [report, report]


def test_the_prefilter_passes_over_an_access_log() -> None:
    """Lines without the logger's bracket, and those of other matters, are not looked at."""
    access = b'INFO:     10.20.0.14:51532 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    other = b"(APIServer pid=1) INFO 11-20 06:07:00 [async_llm.py:587] Added request chatcmpl-0a1b-77aa01.\n"

    assert list(VLLM.candidates((access + other) * 50)) == []


@pytest.mark.parametrize(
    ("name", "version", "model", "capacities"),
    [
        ("vllm-0.8.5/kv-pressure.log", "0.8.5", "tiny", {"blocks": 192.0, "concurrency": 3.0}),
        ("vllm-0.11.2/kv-pressure.log", "0.11.2", "tiny", {"tokens": 3072.0, "concurrency": 3.0}),
        ("vllm-0.24.0-h200/a-before.log", "0.24.0", "llama-8b-shape", {"tokens": 934096.0, "concurrency": 228.05}),
        ("vllm-0.32.0/json-native.log", "0.32.0", "tiny", {"tokens": 3072.0, "concurrency": 3.0}),
        ("vllm-0.32.0/json-config-file.log", "0.32.0", "tiny", {"tokens": 3072.0, "concurrency": 3.0}),
    ],
)
def test_start_up_facts(name: str, version: str, model: str, capacities: dict[str, float]) -> None:
    """Version, served model and the KV cache's size, from releases two years apart."""
    facts: dict[str, str] = {}
    sizes: dict[str, float] = {}
    for event in events(log_path(name)):
        if isinstance(event, Setting):
            facts.update(event.values)
        if isinstance(event, Capacity):
            known = {"tokens": event.tokens, "blocks": event.blocks, "concurrency": event.concurrency}
            sizes |= {key: value for key, value in known.items() if value is not None}

    assert (facts["version"], facts["model"]) == (version, model)
    assert sizes == capacities


def test_each_engine_of_several_tells_its_size() -> None:
    """With data parallelism the process that says it is the engine."""
    told = [event for event in events(log_path("vllm-0.32.0/dp2.log")) if isinstance(event, Capacity)]

    assert {event.engine: event.tokens for event in told} == {"0": 3072.0, "1": 3072.0}


@pytest.mark.parametrize(
    "line",
    [
        STATS,
        f"(APIServer pid=1) INFO 11-29 15:45:33 [logger.py:39] Received request x: prompt: '{HEAD}{STATS}'",
        f"prompt: {HEAD}{STATS}",
        f'INFO:     127.0.0.1:1 - "POST /{STATS} HTTP/1.1" 200 OK',
        "",
        "\r\n",
        "(APIServer pid=1) INFO 11-29 15:45:33 [loggers.py:273] ",
    ],
)
def test_what_is_quoted_or_has_no_head_is_not_read(line: str) -> None:
    """A prompt that holds a stats line, head and all, is no report."""
    assert event_of(line) is None


@pytest.mark.parametrize("file", ["serving_chat.py", "logger.py", "async_llm.py"])
def test_a_users_text_with_a_real_head_is_no_report(file: str) -> None:
    """vLLM repeats its head on every line of a message: only the file that prints reports can report."""
    head = HEAD.replace("loggers.py", file)

    assert event_of(head + STATS) is None
    assert event_of(head + "GPU KV cache size: 8,192 tokens") is None
    assert event_of(head + "bad template '\r" + HEAD + STATS) is None
    assert event_of(head + "vLLM API server version 6.6.6") is None
    assert event_of(head + "Initializing a V1 LLM engine (v6.6.6) with config: model='evil'") is None


@pytest.mark.parametrize("file", ["perf", "gpu_worker", "entry"])
def test_a_report_of_another_file_is_none(file: str) -> None:
    """Neither a transfer, nor a step, a size or a fact is read where it is not printed."""
    head = head_of(file)

    assert event_of(head + "KV Transfer metrics: GPU_to_CPU_total_bytes=1") is None
    assert event_of(head + "Engine 000: Iteration(1): 0 context requests, iteration elapsed time: 1.0 ms") is None
    assert event_of(head + "Maximum concurrency for 8,192 tokens per request: 53.38x") is None
    assert event_of(head + "Using max model len 32768") is None
    assert event_of(head + "EngineCore encountered a fatal error.") is None


@pytest.mark.parametrize("path", [*LOGS, *FORMS], ids=name_of)
def test_the_start_is_found_as_it_is_read(path: Path) -> None:
    """The pattern by which a late joiner looks for the start matches the line that parses as one, and no other."""
    data = path.read_bytes()
    starts = [event for event in events(path) if isinstance(event, Setting) and event.engine is not None]

    assert len(VLLM.start.findall(data)) == len(starts)


@pytest.mark.parametrize(
    "before",
    [
        "(EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] ",
        "\x1b[0;36m(EngineCore_DP0 pid=90)\x1b[0;0m INFO 11-20 06:00:12 [core.py:139] ",
        "INFO 10-03 09:12:02 llm_engine.py:72] ",
        '{"asctime": "2026-11-20 06:00:12,001", "levelname": "INFO", "name": "vllm.v1.engine.core", "message": "',
        '{"log":"(EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] ',
        "2026-11-20T06:00:12.001Z stdout F (EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] ",
        "vllm-1  | (EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] ",
        "[gpu-07] (EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] ",
        "(EngineCore pid=90) [gpu-07] INFO 11-20 06:00:12 [core.py:139] ",
        "Nov 20 06:00:12 gpu-07 vllm[4711]: (EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] ",
    ],
    ids=["plain", "coloured", "0.2", "JSON", "docker", "CRI", "compose", "prefix", "prefix after tag", "syslog"],
)
def test_the_start_is_found_behind_what_may_stand_before_it(before: str) -> None:
    """A late joiner sees the raw log, in whatever it is wrapped."""
    line = before + "Initializing a V1 LLM engine (v0.33.0) with config: model='acme/tiny-8b'"

    assert VLLM.start.search(f"noise\n{line}\n".encode())


def test_a_quoted_start_is_none() -> None:
    """A prompt may hold one; it comes behind a bracket of its own line's head."""
    line = b"INFO 11-29 15:39:18 [logger.py:39] Received request x: '[core.py:1] Initializing a V1 LLM engine (v1)'"

    assert not VLLM.start.search(line)
