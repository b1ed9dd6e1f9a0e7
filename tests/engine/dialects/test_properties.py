"""What holds of any line, however hostile: a dialect never fails, never invents a label, and never a value.

SOLPI_EXAMPLES says how many lines are tried by each test. Without it they are few, and the same each time.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solpi_exporter.engine.dialects import sglang, vllm_start, vllm_stats, vllm_transfer
from solpi_exporter.engine.dialects.dialect import (
    TROUBLES,
    Capacity,
    Iteration,
    Preemption,
    Said,
    Setting,
    Stats,
    Transfer,
    Trouble,
)
from solpi_exporter.engine.dialects.table import AUTO, DIALECTS, chosen
from solpi_exporter.engine.listener import Listener
from solpi_exporter.engine.reading import EngineReading
from tests.engine.dialects.lines import LOGLINES

EXAMPLES = os.environ.get("SOLPI_EXAMPLES")
TRIED = settings(
    max_examples=int(EXAMPLES or 200),
    deadline=None,
    derandomize=EXAMPLES is None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ANY = pytest.mark.parametrize("name", DIALECTS)

ATTRIBUTES = {field.name for field in fields(EngineReading) if field.type in (float | None, "float | None")}
FACTS = {
    *("version", "model", "async_scheduling"),
    *vllm_start.SETTINGS.values(),
    *vllm_start.ARGUMENTS,
    *sglang.SETTINGS.values(),
    *sglang.FACTS.values(),
}
ENGINE = re.compile(r"\d{1,4}|all|", re.ASCII)
STAMP = re.compile(r"(?:(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d)?", re.ASCII)
FACT = re.compile(r"[ -~]{1,200}", re.ASCII)


# What must hold.


def check(said: Said | None) -> None:
    if said is None:
        return
    assert STAMP.fullmatch(said.stamp)
    assert isinstance(said.role, str)
    assert said.pid is None or (type(said.pid) is int and said.pid >= 0)
    match said.event:
        case Stats(engine, values, counted, _):
            check_engine(engine)
            check_values(values)
            check_values(counted)
        case Iteration(engine, seconds, values):
            check_engine(engine)
            check_values(values)
            check_number(seconds)
        case Preemption(engine, count, at_least):
            check_engine(engine)
            check_number(count)
            check_number(at_least)
        case Transfer(engine, counted, values):
            check_engine(engine)
            check_values(counted)
            check_values(values)
        case Capacity(engine, tokens, blocks, concurrency, facts):
            check_engine(engine)
            for size in (tokens, blocks, concurrency):
                check_number(size)
            check_facts(facts)
        case Setting(facts, _, starting):
            check_engine(starting or "")
            check_facts(facts)
        case Trouble(what):
            assert what in TROUBLES


def check_engine(engine: str) -> None:
    assert ENGINE.fullmatch(engine)


def check_number(number: float | None) -> None:
    assert number is None or (math.isfinite(number) and number >= 0)


def check_values(values: Mapping[str, float]) -> None:
    for name, value in values.items():
        assert name in ATTRIBUTES
        check_number(value)
        assert not name.endswith("_ratio") or value <= 1


def check_facts(facts: Mapping[str, str]) -> None:
    for name, value in facts.items():
        assert name in FACTS
        assert FACT.fullmatch(value)


def check_heard(listener: Listener, data: bytes) -> None:
    for heard in listener.hear(data, "log"):
        check(heard.said)
        assert heard.time is None or math.isfinite(heard.time)


# What is tried.

REAL = [
    line
    for path in sorted(LOGLINES.glob("*.log"))
    for line in path.read_bytes().split(b"\n")
    if 0 < len(line) < 4000  # those that are longer are padding
]
REPORTS = {
    name: [line for line in REAL if dialect.parse(line.decode(errors="replace")) is not None]
    for name, dialect in DIALECTS.items()
}
HEADS = (
    "(APIServer pid=1) INFO 11-20 06:05:05 [loggers.py:335] ",
    "(APIServer pid=1) INFO 11-20 06:05:05 [metrics.py:120] ",
    "\x1b[1;36m(EngineCore_DP0 pid=173)\x1b[0;0m INFO 11-15 08:00:53 [kv_cache_utils.py:1229] ",
    "(EngineCore_DP12345 pid=99999999999999) ERROR 11-20 06:05:05 [core.py:1] ",
    "(RustFrontend pid=44) INFO 11-20 06:05:15 [log_stats.rs:291] ",
    "INFO 02-10 11:22:33 metrics.py:455] ",
    "INFO 02-10 11:22:33 [scheduler.py:1768] ",
    "INFO 05-25 06:49:58 [api_server.py:1043] ",
    "INFO 05-25 06:50:00 [llm_engine.py:240] ",
    "[gpu_id=0] ",
    "[2026-10-30 09:01:05 DP1 TP3] ",
    "[09:01:05 TP0] ",
    "[07/22/2026-00:00:00] [TRT-LLM] [I] [_torch][RANK 0] ",
    "I1218 03:35:37.688135 20559 libtensorrtllm.cc:1205] ",
    "[TensorRT-LLM][INFO] ",
    "",
)
SIGNS = (
    "Engine 000: Avg prompt throughput: 1.0 tokens/s, ",
    "Engine 9999: Avg prompt throughput: 1.0 tokens/s, ",
    "Engine 12345: Avg prompt throughput: 1.0 tokens/s, ",
    "4 Engines Aggregated: Avg prompt throughput: ",
    "Avg prompt throughput: ",
    "Avg prompt tput: ",
    "SpecDecoding metrics: ",
    "Speculative metrics: ",
    "KV Transfer metrics: ",
    "Engine 001: Iteration(7): 1 context requests, iteration elapsed time: 2.00 ms, ",
    "Iteration(7): 1 context requests, iteration elapsed time: ",
    "Prefix cache hit rate: GPU: ",
    "Running: ",
    "RUNNING: ",
    "GPU KV cache size: ",
    "# GPU blocks: ",
    "Maximum concurrency for 8,192 tokens per request: ",
    "Engine 003: vllm cache_config_info with initialization after num_gpu_blocks is: ",
    "Initializing a V1 LLM engine (v0.33.0) with config: model='a', ",
    "non-default args: {",
    "args: Namespace(",
    "Sequence group x is preempted by PreemptionMode.SWAP mode because total_num_cumulative_preemption=",
    "Decode batch, ",
    "Prefill batch. ",
    "KV cache pool is full. Retract requests. #retracted_reqs: ",
    "max_total_num_tokens=",
    "server_args=ServerArgs(model_path='m', ",
    "iter = 7, ",
    '{"Active Request Count":1,',
    "",
)
KEYS = sorted(
    {
        *vllm_stats.COUNTS,
        *vllm_stats.RATIOS,
        *vllm_stats.FRACTIONS,
        *vllm_transfer.MOVED,
        *vllm_transfer.MEANS,
        *(vllm_transfer.TRANSFERS, vllm_transfer.USAGE),
        *vllm_start.SETTINGS,
        *vllm_start.ARGUMENTS,
        *sglang.COUNTS,
        *sglang.RATIOS,
        *sglang.FACTS,
        *sglang.SETTINGS,
        *("GPU KV cache usage", "CPU KV cache usage", "GPU KV cache used", "Preemptions", "KV fetch"),
        *("num_scheduled_requests", "kv_cache_util", "host_step_time", "elapsed_time", "global_rank", "rank"),
        *('"Scheduled Requests"', '"Used KV cache blocks"', '"Max KV cache blocks"', "states"),
    }
)
NUMBERS = (
    *(
        "0",
        "1",
        "12",
        "0.5",
        "43.0",
        "99.9",
        "100.0",
        "100.1",
        "150",
        "1.000",
        "-0.0",
        "-1",
        "nan",
        "inf",
        "-inf",
        "N/A",
    ),
    *("1e9", "1e-05", "1e99", "1e999", "9" * 12, "9" * 18, "9" * 400, "0x1f", "1_0", "1,024", "", ".", "1.", "1.2.3"),
    *("\u0663", "\uff11\uff12", "\u00b2", "None", "3 waiting to start, 2 in progress, 1 completed waiting", "{'a': 1}"),
)
UNITS = ("", "%", " reqs", " tokens/s", " tokens", "ms", "s", " ms", "x", " ms (dummy)", ".", "%.", "}", ")")


def segment(key: str, mark: str, number: str, unit: str) -> str:
    return key + mark + number + unit


numbers = st.sampled_from(NUMBERS) | st.floats().map(str) | st.integers().map(str)
segments = st.builds(
    segment,
    st.sampled_from(KEYS) | st.text(max_size=8),
    st.sampled_from([": ", "=", " = ", ":", ""]),
    numbers,
    st.sampled_from(UNITS),
)
messages = st.builds(
    lambda sign, number, parts, between: sign + number + between.join(parts),
    st.sampled_from(SIGNS),
    numbers | st.just(""),
    st.lists(segments, max_size=8),
    st.sampled_from([", ", ",", " | "]),
)
made = st.builds(lambda head, message: head + message, st.sampled_from(HEADS), messages)
records = st.builds(
    lambda message, name, level, stamp, process: json.dumps(
        {"asctime": stamp, "levelname": level, "name": name, "processName": "EngineCore", "process": process}
        | {"message": message}
    ),
    messages | st.none() | st.integers(),
    st.sampled_from(["vllm.v1.metrics.loggers", "vllm.v1.engine.core", "vllm.v1.spec_decode.metrics", "uvicorn"]),
    st.sampled_from(["INFO", "ERROR", None]),
    st.sampled_from(["2026-11-20 06:05:05,112", "2026-11-20T06:05:05Z", "", "\u0662026-11-20 06:05:05", 7]),
    st.none() | st.integers() | st.booleans() | st.text(max_size=3),
)


@st.composite
def damaged(draw: Callable[[st.SearchStrategy[bytes | int]], bytes | int], lines: list[bytes] = REAL) -> bytes:
    """A real line that is cut anywhere, into which another one is spliced, and of which bytes are flipped."""
    line, other = (bytes(draw(st.sampled_from(lines)) or b"") for _ in range(2))
    begin, end, place = (int(draw(st.integers(0, 4000))) for _ in range(3))
    text = bytearray(line[begin % (len(line) + 1) if begin % 3 == 0 else 0 : end % (len(line) + 1) or None])
    if place % 2:
        at = place % (len(text) + 1)
        text[at:at] = other[place % (len(other) + 1) :]
    for _ in range(int(draw(st.integers(0, 3)))):
        if text:
            text[int(draw(st.integers(0, len(text) - 1)))] ^= 1 << int(draw(st.integers(0, 7)))
    return bytes(text)


whatever = st.one_of(
    made.map(lambda line: line.encode(errors="replace")),
    records.map(str.encode),
    damaged(),
    st.sampled_from(REAL),
    st.binary(max_size=60),
)
wrappers = st.sampled_from(("plain", "compose", "time", "docker", "cri", "journald"))


def wrapped(line: bytes, wrapper: str) -> bytes:
    text = line.decode(errors="replace").replace("\n", " ")
    time = "2026-11-20T06:05:05.5Z"
    return {
        "plain": line,
        "compose": b"vllm-1  | " + line,
        "time": time.encode() + b" " + line,
        "docker": json.dumps({"log": text + "\n", "stream": "stdout", "time": time}).encode(),
        "cri": f"{time} stdout F {text}".encode(),
        "journald": json.dumps({"__REALTIME_TIMESTAMP": "1795241105001234", "MESSAGE": text}).encode(),
    }[wrapper]


@ANY
@TRIED
@given(line=made)
def test_whatever_stands_in_a_report_is_true_or_left_out(name: str, line: str) -> None:
    """Parts in any order, repeated, missing, and of any value."""
    check(DIALECTS[name].parse(line))


@ANY
@TRIED
@given(line=records)
def test_whatever_stands_in_a_record_is_true_or_left_out(name: str, line: str) -> None:
    """JSON of any values."""
    check(DIALECTS[name].parse(line))


@ANY
@TRIED
@given(line=st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_any_text_is_a_line(name: str, line: str) -> None:
    """It is no error, whatever it is."""
    check(DIALECTS[name].parse(line))


@ANY
@TRIED
@given(data=st.data())
def test_a_damaged_line_is_no_error(name: str, data: st.DataObject) -> None:
    """Cut anywhere, spliced with another one, bytes flipped: what is still read can be true."""
    line = data.draw(damaged(REPORTS[name]))

    check(DIALECTS[name].parse(line.decode(errors="replace")))


@ANY
@TRIED
@given(lines=st.lists(whatever, max_size=6))
def test_what_is_read_is_a_candidate(name: str, lines: list[bytes]) -> None:
    """The prefilter passes over no line that reports something, and over none twice or out of its turn."""
    dialect = DIALECTS[name]
    block = b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines)
    every = block.split(b"\n")[:-1]
    candidates = list(dialect.candidates(block))
    reports = [line for line in every if dialect.parse(line.decode(errors="replace")) is not None]

    assert [line for line in candidates if dialect.parse(line.decode(errors="replace")) is not None] == reports
    remaining = iter(every)
    assert all(line in remaining for line in candidates)


@pytest.mark.parametrize("name", [AUTO, *DIALECTS])
@TRIED
@given(blocks=st.lists(st.tuples(wrappers, st.lists(whatever, max_size=4)), max_size=3))
def test_whatever_is_heard_is_true(name: str, blocks: list[tuple[str, list[bytes]]]) -> None:
    """Block after block, in any envelope, of any lines."""
    listener = Listener(chosen(name), "auto")

    for wrapper, lines in blocks:
        check_heard(listener, b"".join(wrapped(line, wrapper) + b"\n" for line in lines))


@pytest.mark.parametrize("envelope", ["auto", "none", "docker", "cri", "journald"])
@TRIED
@given(data=st.binary(max_size=300))
def test_any_bytes_are_a_block(envelope: str, data: bytes) -> None:
    """In each envelope that a configuration may name."""
    check_heard(Listener(chosen(AUTO), envelope), data + b"\n")


GOOD = {
    "Avg generation throughput: {:.1f} tokens/s": "generation_tokens_per_second",
    "Running: {:.0f} reqs": "running",
    "Waiting: {:.0f} reqs": "waiting",
    "Deferred: {:.0f} reqs": "deferred",
    "GPU KV cache usage: {:.1f}%": "kv_cache_usage_ratio",
    "Prefix cache hit rate: {:.1f}%": "prefix_hit_ratio",
    "External prefix cache hit rate: {:.1f}%": "external_hit_ratio",
    "MM cache hit rate: {:.1f}%": "multimodal_hit_ratio",
}
good = st.tuples(st.sampled_from(sorted(GOOD)), st.integers(0, 1000).map(lambda tenths: tenths / 10))


@TRIED
@given(parts=st.lists(good, max_size=12), strange=st.lists(st.sampled_from(["New: 7 reqs", "x", "", "A: nan%"])))
def test_what_is_true_is_read_in_any_order(parts: list[tuple[str, float]], strange: list[str]) -> None:
    """Of each part that is there the first, whatever stands between them; and nothing that is not there."""
    expected: dict[str, float] = {}
    texts = []
    for form, value in parts:
        texts.append(form.format(value))
        number = float(texts[-1].partition(": ")[2].split(" ")[0].rstrip("%"))
        expected.setdefault(GOOD[form], number / 100 if form.endswith("%") else number)
    mixed = [text for pair in zip(texts, chain(strange, [""] * len(texts)), strict=False) for text in pair if text]
    said = DIALECTS["vllm"].parse(
        f"{HEADS[0]}Engine 000: " + ", ".join(["Avg prompt throughput: 1.0 tokens/s", *mixed])
    )

    assert said is not None
    assert isinstance(said.event, Stats)
    assert dict(said.event.values) == pytest.approx({"prompt_tokens_per_second": 1.0, **expected})


QUOTING = (
    "INFO 09-18 11:00:00 logger.py:36] Received request {}: prompt: {!r}, params: SamplingParams(n=1), lora: None.",
    "(APIServer pid=1) INFO 11-20 06:07:00 [request_logger.py:66] Received request {}: prompt: {!r}, params: x",
    "\x1b[1;36m(APIServer pid=1)\x1b[0;0m DEBUG 11-20 06:07:00 [entrypoints/logger.py:39] Request {} prompt: {!r}",
)


@pytest.mark.parametrize("quoting", QUOTING)
@TRIED
@given(prompt=st.lists(whatever, min_size=1, max_size=2), between=st.sampled_from(["", " ", "\n", "\r\n", "\r", "' "]))
def test_a_quoted_line_gives_nothing(quoting: str, prompt: list[bytes], between: str) -> None:
    """A prompt that holds lines of any engine, head and all, says nothing, and tells no dialect."""
    text = between.join(line.decode(errors="replace") for line in prompt)
    line = quoting.format("chatcmpl-1", text)
    listener = Listener(chosen(AUTO), "auto")

    assert [dialect.name for dialect in DIALECTS.values() if dialect.parse(line) is not None] == []
    assert list(listener.hear(line.encode(errors="replace") + b"\n", "log")) == []
    assert listener.dialect is None
