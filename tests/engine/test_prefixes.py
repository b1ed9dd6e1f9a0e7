"""The prefixes of collectors: what is taken off, what is an engine's own, and the times."""

from itertools import product
from pathlib import Path

import pytest

from solpi_exporter.engine.prefixes import MOST, unix_time, unwrap

LOGLINES = Path(__file__).parent.parent / "loglines"

STATS = (
    "(APIServer pid=1) INFO 11-20 06:05:05 [loggers.py:335] Engine 000: Avg prompt throughput: 4012.7 tokens/s, "
    "Avg generation throughput: 1640.1 tokens/s, Running: 44 reqs, Waiting: 9 reqs, GPU KV cache usage: 93.5%, "
    "Prefix cache hit rate: 12.0%"
)
UNTAGGED = "INFO 07-08 15:17:34 metrics.py:295] Avg prompt throughput: 1.0 tokens/s"
COLOURED = "\x1b[1;36m(APIServer pid=20)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m10-14 17:00:48\x1b[0m [loggers.py:123] x"

TIME = 1795154705.0  # 2026-11-20T06:05:05Z

WRAPPED = {
    "compose": ("vllm-1  | ", None),
    "compose, coloured": ("\x1b[36mvllm-1  | \x1b[0m", None),
    "compose 1": ("\x1b[36mvllm_1  |\x1b[0m ", None),
    "RFC 5424": ("<30>1 2026-11-20T06:05:05.5Z gpu-07 vllm 4711 - - ", TIME + 0.5),
    "RFC 5424 with data": ('<30>1 2026-11-20T06:05:05Z h a 1 ID7 [x@1 k="a\\]b"][y@2 k="c"] ', TIME),
    "RFC 5424 without a time": ("<30>1 - gpu-07 vllm 4711 - - ", None),
    "syslog": ("<30>Nov 20 06:05:05 gpu-07 vllm[4711]: ", None),
    "syslog without a host": ("<30>Nov  2 06:05:05 docker/0a1b2c[7]: ", None),
    "journald short": ("Nov 20 06:05:05 gpu-07 vllm[4711]: ", None),
    "journald short-precise": ("Nov 20 06:05:05.001234 gpu-07 vllm[4711]: ", None),
    "journald short-iso": ("2026-11-20T07:05:05+0100 gpu-07 vllm[4711]: ", TIME),
    "journald short-iso-precise": ("2026-11-20T07:05:05.25+01:00 gpu-07 vllm[4711]: ", TIME + 0.25),
    "docker -t": ("2026-11-20T06:05:05.500000000Z ", TIME + 0.5),
    "kubectl --timestamps": ("2026-11-20T07:05:05.75+01:00 ", TIME + 0.75),
    "kubectl --prefix": ("[pod/vllm-0/server] ", None),
    "date": ("[2024-07-08 15:17:34] ", None),
    "Ray replica": ("(ServeReplica:default:LLM pid=999) ", None),
    "Ray actor elsewhere": ("(AsyncLLM pid=1001, ip=10.0.0.4) ", None),
    "Ray, coloured": ("\x1b[36m(AsyncLLM pid=1001, ip=10.0.0.4)\x1b[0m ", None),
    "VLLM_LOGGING_PREFIX": ("[gpu-07] ", None),
    "VLLM_LOGGING_PREFIX without a blank": ("[gpu-07]", None),
}

OWN = {
    "vLLM": STATS,
    "vLLM, coloured": COLOURED,
    "vLLM without a tag": UNTAGGED,
    "vLLM's core": "(EngineCore_DP0 pid=88) ERROR 11-20 06:05:05 [core.py:1586] EngineCore encountered a fatal error.",
    "vLLM's worker": "\x1b[1;36m(VllmWorker rank=0 pid=311)\x1b[0;0m INFO 07-10 12:30:31 [gpu_model_runner.py:1801] x",
    "vLLM up to 0.30": "(APIServer pid=1) [gpu-07] INFO 11-20 06:05:05 [loggers.py:335] x",
    "uvicorn": 'INFO:     10.0.0.1:51532 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "SGLang": "[2026-10-30 09:01:05 DP0 TP0] Decode batch, #running-req: 16",
    "SGLang on one GPU": "[2026-10-30 09:01:05] Decode batch, #running-req: 16",
    "SGLang with milliseconds": "[2026-10-30 09:01:05.123] Prefill batch, #new-seq: 4",
    "SGLang's uvicorn": '[2026-10-30 09:01:05] INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK',
    "SGLang 0.2": "[gpu_id=0] Decode batch. #running-req: 1",
    "TensorRT-LLM": "[07/22/2026-00:00:00] [TRT-LLM] [I] iter = 12, global_rank = 0",
    "TensorRT-LLM in C++": "[TensorRT-LLM][INFO] x",
    "torch": "[rank0]:[E1120 09:14:21.426415540 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught",
    "torch in vLLM": "(EngineCore pid=90) [rank0]:[E1120 09:14:21.426415540 ProcessGroupNCCL.cpp:685] x",
    "LMCache": "[2026-03-06 00:08:43,982] LMCache INFO: Reqid: chatcmpl-8c24",
    "TGI": "2026-01-08T15:02:49.123456Z  INFO text_generation_launcher: Using attention flashinfer",
    "TGI's error": "2026-01-08T15:05:10.123456Z ERROR text_generation_launcher: Shard 0 crashed",
    "llama.cpp": "slot print_timing: id  0 | task 12 | prompt eval time = 120.55 ms",
    "llama.cpp of 2026": "0.36.500.001 I slot print_timing: id  0 | task 12 | eval time",
    "first V1": "INFO 01-04 17:21:02 core.py:316] RUNNING: 306 | WAITING: 628",
    "JSON": '{"asctime": "2026-11-20 06:05:05,001", "message": "Engine 000: x"}',
    "nothing": "",
}


@pytest.mark.parametrize("wrapper", WRAPPED)
@pytest.mark.parametrize("line", [STATS, UNTAGGED, COLOURED], ids=["tag", "level", "coloured"])
def test_a_prefix_is_taken_off(wrapper: str, line: str) -> None:
    """What is left begins with the engine's own head; a time counts only with its zone."""
    prefix, time = WRAPPED[wrapper]

    assert unwrap(prefix + line) == (line, time)


def test_two_prefixes_are_taken_off() -> None:
    """Any before any other, but for words and dates in brackets, which are a prefix before vLLM's head or Ray's."""
    outers = [name for name in WRAPPED if not name.startswith(("date", "VLLM"))]
    inners = [name for name in WRAPPED if name.startswith(("Ray", "VLLM"))]
    for outer, inner in (*product(outers, WRAPPED), *product(["date"], inners)):
        (first, first_time), (second, second_time) = WRAPPED[outer], WRAPPED[inner]

        assert unwrap(first + second + STATS) == (STATS, first_time if second_time is None else second_time)


@pytest.mark.parametrize(
    "prefix",
    [
        "vllm-1  | 2026-11-20T06:05:05.500000000Z ",
        "[pod/vllm-0/server] 2026-11-20T06:05:05.500000000Z (ServeReplica:default:LLM pid=999) ",
        "2026-11-20T06:05:05.5Z [2024-07-08 15:17:34] [gpu-07] ",
        "Nov 20 06:05:05 gpu-07 docker[7]: vllm-1  | 2026-11-20T06:05:05.5Z [gpu-07] ",
    ],
)
def test_usual_stacks_are_taken_off(prefix: str) -> None:
    """Up to four: a collector's, a container tool's, Ray's and a user's."""
    assert unwrap(prefix + STATS) == (STATS, TIME + 0.5)


def test_more_prefixes_than_anybody_has_stay() -> None:
    """A line of nothing but prefixes costs no more than a few steps."""
    prefix = "vllm-1  | "

    assert unwrap(prefix * (MOST + 1) + STATS) == (prefix + STATS, None)


@pytest.mark.parametrize("engine", OWN)
def test_an_engine_s_own_head_stays(engine: str) -> None:
    """Tags, dates and words in brackets that an engine writes itself; behind a container's prefix too."""
    assert unwrap(OWN[engine]) == (OWN[engine], None)
    assert unwrap("vllm-1  | " + OWN[engine]) == (OWN[engine], None)


@pytest.mark.parametrize("engine", [engine for engine in OWN if OWN[engine].startswith("[2026-10")])
def test_ray_s_tag_stands_before_a_bracket(engine: str) -> None:
    """A plain tag before a bracket is Ray's, before a level it may be vLLM's own and stays."""
    assert unwrap(f"(SGLangActor pid=7) {OWN[engine]}") == (OWN[engine], None)
    assert unwrap(f"(AsyncLLM pid=7) {STATS}") == (STATS, None)
    assert unwrap(f"(AsyncLLM pid=7) {UNTAGGED}") == (f"(AsyncLLM pid=7) {UNTAGGED}", None)


def test_a_recorded_line_of_each_collector_is_the_same_line() -> None:
    """The times are those of the collectors that tell a zone."""
    lines = (LOGLINES / "wrap-journald-and-others.log").read_text().splitlines()
    plain = [unwrap(line) for line in lines if not line.startswith("{")]

    assert {text for text, _ in plain} == {STATS}
    assert [time for _, time in plain] == [
        *(None, TIME - 3600, TIME - 3600 + 0.001234, TIME + 0.001234, None, None),
        *(TIME + 0.001234, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-20T06:05:05Z", TIME),
        ("2026-11-20T06:05:05.123456789Z", TIME + 0.123456),
        ("2026-11-20T06:05:05.5-05:30", TIME + 0.5 + 19800),
        ("2026-11-20T06:05:05", None),
        ("2026-02-30T06:05:05Z", None),
        ("2026-11-20T25:05:05Z", None),
        ("2026-11-20T06:05:60Z", None),
        ("2026-11-20T06:05:05+99:99", None),
        ("0000-11-20T06:05:05Z", None),
        ("2026-11-20T06:05:05.1234567890Z", None),
        ("２０２６-11-20T06:05:05Z", None),  # noqa: RUF001 - digits, but not ASCII
        ("", None),
    ],
)
def test_a_time_has_a_zone_and_exists(text: str, time: float | None) -> None:
    """To the microsecond, which is what a float holds."""
    assert unix_time(text) == (None if time is None else pytest.approx(time, abs=1e-6))


def test_an_impossible_date_is_a_prefix_without_a_time() -> None:
    """The line is the engine's all the same."""
    assert unwrap(f"2026-13-41T06:05:05Z {STATS}") == (STATS, None)


@pytest.mark.parametrize(
    "unit",
    ["(", "[", " ", "a", "1", "<30>", "\x1b[0m", "a ", "[a] ", "(a pid=1) ", "[a=1]\\", ":", "a | ", "<1>1 - a "],
)
def test_a_long_line_of_anything_is_passed_over(unit: str) -> None:
    """Patterns look at a bounded start of a line: a megabyte of what they are made of ends, and soon."""
    line = unit * (1 << 18)
    data = "<30>1 - h a 1 - [" + "\\" * (1 << 20)

    assert len(line) - len(unwrap(line)[0]) <= MOST * max(len(prefix) for prefix, _ in WRAPPED.values())
    assert unwrap(data) == (data, None)
