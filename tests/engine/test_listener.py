"""From raw lines to what they report: the dialect is recognised, kept to, and fed out of any wrapping."""

import json
from pathlib import Path

import pytest

from solpi_exporter.engine.dialects.dialect import Capacity, Preemption, Stats, Trouble
from solpi_exporter.engine.dialects.table import AUTO, chosen
from solpi_exporter.engine.listener import Heard, Listener

LOGLINES = Path(__file__).parent.parent / "loglines"
NAME = "/var/log/engine.log"

VLLM = (
    "(APIServer pid=1) INFO 11-20 06:05:{:02} [loggers.py:335] Engine 000: Avg prompt throughput: 4012.7 tokens/s, "
    "Avg generation throughput: 1640.1 tokens/s, Running: {} reqs, Waiting: 9 reqs, GPU KV cache usage: 93.5%"
)
SGLANG = "[2026-10-30 09:01:05] Decode batch, #running-req: 16, token usage: 0.31, #queue-req: 3"
TENSORRT = (
    "[07/22/2026-00:00:00] [TRT-LLM] [I] iter = 26, num_scheduled_requests = 8, host_step_time = 5.00ms, states = {}"
)
ACCESS = 'INFO:     10.20.0.14:51532 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
LINES = {"vllm": VLLM.format(5, 44), "sglang": SGLANG, "tensorrt-llm": TENSORRT}
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB."
NCCL = (
    "[rank0]:[E1120 09:14:21.426415540 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout"
    ": WorkNCCL(SeqNum=64214, OpType=ALLREDUCE) ran for 600081 milliseconds before timing out."
)
TIME = 1795154705.0  # 2026-11-20T06:05:05Z


def listener(name: str = AUTO, envelope: str = "auto") -> Listener:
    return Listener(chosen(name), envelope)


def heard(one: Listener, *lines: str) -> list[Heard]:
    return list(one.hear("".join(line + "\n" for line in lines).encode(), NAME))


def running(one: Heard) -> float:
    assert isinstance(one.said.event, Stats)
    return one.said.event.values["running"]


def name_of(one: Listener) -> str | None:
    return None if one.dialect is None else one.dialect.name


@pytest.mark.parametrize("name", LINES)
def test_an_engine_is_recognised_by_its_first_report(name: str) -> None:
    """Before it, nothing is known; a line of somebody else's does not tell."""
    one = listener()

    assert (heard(one, ACCESS), name_of(one)) == ([], None)
    assert len(heard(one, ACCESS, LINES[name])) == 1
    assert name_of(one) == name


@pytest.mark.parametrize(
    ("pattern", "name"), [("vllm-v*.log", "vllm"), ("sglang-*.log", "sglang"), ("tensorrt-llm.log", "tensorrt-llm")]
)
def test_each_log_is_recognised_by_its_own_lines(pattern: str, name: str) -> None:
    """And read as by a listener that was told whose it is."""
    paths = sorted(LOGLINES.glob(pattern))

    assert paths
    for path in paths:
        data = path.read_bytes()
        one = listener()
        reports = list(one.hear(data, NAME))

        assert name_of(one) == name
        assert reports
        assert reports == list(listener(name).hear(data, NAME))


@pytest.mark.parametrize("name", LINES)
def test_a_recognised_engine_is_kept_to(name: str) -> None:
    """In the same block and in the next ones: a server does not change its engine."""
    others = [line for other, line in LINES.items() if other != name]
    one = listener()

    assert len(heard(one, LINES[name], *others)) == 1
    assert heard(one, *others) == []
    assert len(heard(one, *others, LINES[name])) == 1
    assert name_of(one) == name


@pytest.mark.parametrize("name", LINES)
def test_a_named_engine_needs_no_recognition(name: str) -> None:
    """It is known from the beginning, and no other is listened to."""
    one = listener(name)

    assert name_of(one) == name
    assert len(heard(one, *LINES.values())) == 1


def test_trouble_without_a_head_is_heard_and_does_not_tell() -> None:
    """CUDA's errors are everybody's: the next report says whose log it is."""
    one = listener()

    assert [heard_.said.event for heard_ in heard(one, OOM)] == [Trouble("out_of_memory")]
    assert name_of(one) is None
    assert len(heard(one, TENSORRT)) == 1
    assert name_of(one) == "tensorrt-llm"


def test_trouble_behind_torchs_head_does_not_tell() -> None:
    """NCCL's watchdog is torch's, which every engine runs on."""
    one = listener()

    assert [heard_.said.event for heard_ in heard(one, NCCL)] == [Trouble("nccl_timeout")]
    assert name_of(one) is None
    assert len(heard(one, SGLANG)) == 1
    assert name_of(one) == "sglang"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("(EngineCore pid=90) ERROR 11-20 09:05:00 [core.py:1586] EngineCore encountered a fatal error.", "vllm"),
        ("[2026-10-30 09:03:00] Scheduler hit an exception: Traceback (most recent call last):", "sglang"),
    ],
)
def test_trouble_with_a_head_tells(line: str, name: str) -> None:
    """The head is the engine's own."""
    one = listener()

    assert [heard_.said.event for heard_ in heard(one, line)] == [Trouble("engine_dead")]
    assert name_of(one) == name


def test_a_report_without_a_stamp_tells() -> None:
    """SGLang's first releases had no date."""
    one = listener()
    line = "[09:02:00 TP0] Decode out of memory happened. #retracted_reqs: 2, #new_token_ratio: 0.5961 -> 0.8812"

    assert [heard_.said.event for heard_ in heard(one, line)] == [Preemption("0", 2.0)]
    assert name_of(one) == "sglang"


def test_each_line_is_heard_once_and_in_order() -> None:
    """Whether the engine is recognised in this block or was in one before."""
    one = listener()
    block = [line for number in range(20) for line in (ACCESS, VLLM.format(number, number))]

    for _ in range(2):
        assert [running(report) for report in heard(one, *block)] == list(range(20))


def test_of_a_block_its_own_lines_are_heard_only() -> None:
    """What a block before held is not heard again, and an empty one says nothing."""
    one = listener()

    assert [running(report) for report in heard(one, VLLM.format(1, 1))] == [1]
    assert [running(report) for report in heard(one, VLLM.format(2, 2))] == [2]
    assert heard(one, "", "") == []
    assert list(one.hear(b"", NAME)) == []


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize(
    ("before", "time"),
    [
        ("vllm-1  | ", None),
        ("\x1b[36mvllm-1  | \x1b[0m", None),
        ("2026-11-20T06:05:05.500000000Z ", TIME + 0.5),
        ("<30>1 2026-11-20T06:05:05.5Z gpu-07 vllm 4711 - - ", TIME + 0.5),
        ("[pod/vllm-0/server] ", None),
        ("Nov 20 06:05:05 gpu-07 vllm[4711]: ", None),
    ],
)
def test_a_prefixed_line_says_the_same(name: str, before: str, time: float | None) -> None:
    """With the time of whoever collected it, where that has a zone."""
    plain = heard(listener(), LINES[name])
    one = listener()

    assert heard(one, before + LINES[name]) == [Heard(plain[0].said, time)]
    assert name_of(one) == name


@pytest.mark.parametrize("before", ["[gpu-07] ", "[gpu-07]"])
def test_vllms_own_prefix_is_taken_off(before: str) -> None:
    """From 0.31 on it stands first, and has a blank only if the user gave it one."""
    assert heard(listener(), before + LINES["vllm"]) == heard(listener(), LINES["vllm"])


@pytest.mark.parametrize("envelope", ["auto", "explicit"])
@pytest.mark.parametrize("name", LINES)
def test_a_record_of_a_container_says_the_same(name: str, envelope: str) -> None:
    """With the time of the container runtime, or of the journal."""
    plain = heard(listener(), LINES[name])[0].said
    records = {
        "docker": json.dumps({"log": LINES[name] + "\n", "stream": "stdout", "time": "2026-11-20T06:05:05.5Z"}),
        "cri": f"2026-11-20T06:05:05.5Z stdout F {LINES[name]}",
        "journald": json.dumps({"__REALTIME_TIMESTAMP": "1795154705500000", "MESSAGE": LINES[name]}),
    }
    for kind, record in records.items():
        one = listener(AUTO, kind if envelope == "explicit" else "auto")

        assert heard(one, record) == [Heard(plain, TIME + 0.5)]
        assert name_of(one) == name


def test_a_container_is_prefixed_inside_too() -> None:
    """The envelope's time is nearer to the truth than a prefix's within it."""
    record = json.dumps(
        {"log": f"2026-11-20T07:00:00Z {LINES['vllm']}\n", "stream": "stdout", "time": "2026-11-20T06:05:05.5Z"}
    )

    assert [report.time for report in heard(listener(), record)] == [TIME + 0.5]


def test_without_an_envelope_there_is_no_time() -> None:
    """The line's own stamp is all there is, and it is kept."""
    (report,) = heard(listener(), LINES["vllm"])

    assert report.time is None
    assert report.said.stamp == "11-20 06:05:05"


def test_a_line_in_pieces_is_heard_when_it_ends() -> None:
    """Of the block that ends it, and of that log only."""
    one = listener()
    line = LINES["vllm"]

    assert heard(one, f"2026-11-20T06:05:05.5Z stdout P {line[:100]}") == []
    assert list(one.hear(f"2026-11-20T06:05:05.5Z stdout F {line[100:]}\n".encode(), "another")) == []
    assert len(heard(one, f"2026-11-20T06:05:05.5Z stdout F {line[100:]}")) == 1


@pytest.mark.parametrize("name", LINES)
def test_a_quoted_line_is_not_heard(name: str) -> None:
    """In a prompt, with its head and all; and nothing is recognised by it."""
    one = listener()
    for quoted in (LINES[name], "vllm-1  | " + LINES[name], f"2026-11-20T06:05:05Z {LINES[name]}"):
        assert heard(one, f"INFO 09-18 11:00:00 logger.py:36] Received request x: prompt: {quoted!r}, params: x") == []
        assert heard(one, f"(APIServer pid=1) INFO 11-20 06:07:00 [request_logger.py:66] Received {quoted!r}") == []
    assert name_of(one) is None


def test_bytes_that_are_no_text_are_replaced() -> None:
    """They are somewhere in a log, and no error."""
    one = listener()

    assert [
        running(report) for report in one.hear(b"\xff\xfe\x00\n" + VLLM.format(1, 7).encode() + b"\xff\n", NAME)
    ] == [7]


def test_an_engine_that_is_replaced_by_another_one_is_recognised() -> None:
    """Under the same unit, or behind the same name: it tells so at its start."""
    one = listener()
    heard(one, LINES["vllm"])
    assert name_of(one) == "vllm"

    start, batch = heard(
        one,
        "[2026-10-30 09:00:50] max_total_num_tokens=444500, chunked_prefill_size=8192",
        "[2026-10-30 09:01:05] Decode batch, #running-req: 16, #token: 138112, token usage: 0.31, #queue-req: 3",
    )

    assert name_of(one) == "sglang"
    assert start.said.event == Capacity("0", tokens=444500.0, facts={"chunked_prefill_size": "8192"})
    assert running(batch) == 16.0


def test_what_came_before_a_log_was_joined_tells_what_is_a_rest() -> None:
    """A prompt that stands in pieces around the join: its second one may look like a report, and is none."""
    record = "2026-11-20T06:05:05Z stdout {} {}\n"
    one = listener()
    before = record.format("P", "INFO 11-20 06:05:05 [request_logger.py:66] Received request x")

    assert list(one.hear_before(before.encode(), NAME)) == []
    assert one.unfinished == [(NAME, "stdout")]
    assert heard(one, record.format("F", LINES["vllm"]).rstrip()) == []
    assert running(*heard(one, record.format("F", LINES["vllm"]).rstrip())) > 0


def test_a_block_of_before_that_ends_a_line_leaves_nothing_over() -> None:
    """Only the last one of them ends where the log is joined."""
    record = "2026-11-20T06:05:05Z stdout {} {}\n"
    one = listener()
    list(one.hear_before(record.format("P", "half").encode(), NAME))
    list(one.hear_before(record.format("F", "whole").encode(), NAME))

    assert one.unfinished == []
    assert running(*heard(one, record.format("F", LINES["vllm"]).rstrip())) > 0
