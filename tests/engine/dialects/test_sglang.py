"""SGLang's dialect: each line of its releases' logs, the ranks, the start, and what must not be believed."""

from pathlib import Path

import pytest

from solpi_exporter.engine.dialects.dialect import (
    TROUBLES,
    Capacity,
    Event,
    Preemption,
    Setting,
    Stats,
    Trouble,
)
from solpi_exporter.engine.dialects.sglang import SGLANG, parse

LOGLINES = Path(__file__).parents[2] / "loglines"
NONE_PREEMPTED = {"preemptions": 0.0}

Expected = dict[int, tuple[str, Event] | None]

# Line number: stamp and event, or None for what is weights, memory, an access, the middle of a traceback.
OLD: Expected = {
    **dict.fromkeys((3, 4, 5, 6, 8, 9), None),
    1: ("", Stats("0", {"prefix_hit_ratio": 0.1071, "running": 0, "waiting": 0}, partial=True)),
    2: (
        "",
        Stats(
            "0",
            {"running": 1, "kv_cache_usage_ratio": 0, "generation_tokens_per_second": 91.2, "waiting": 0},
            partial=True,
        ),
    ),
    7: (
        "2025-02-10 08:00:50",
        Capacity(
            "0",
            tokens=444500,
            facts={
                "chunked_prefill_size": "8192",
                "max_prefill_tokens": "16384",
                "max_num_seqs": "2049",
                "max_seq_len": "131072",
            },
        ),
    ),
    10: (
        "2025-02-10 08:01:00",
        Stats(
            "0",
            {"prefix_hit_ratio": 0.1111, "kv_cache_usage_ratio": 0.31, "running": 12, "waiting": 3},
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    11: (
        "2025-02-10 08:01:05",
        Stats(
            "0",
            {"running": 16, "kv_cache_usage_ratio": 0.31, "generation_tokens_per_second": 812.45, "waiting": 3},
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    12: (
        "2025-02-10 08:01:06",
        Stats(
            "0",
            {
                "running": 16,
                "kv_cache_usage_ratio": 0.31,
                "acceptance_length": 2.41,
                "generation_tokens_per_second": 1312.45,
                "waiting": 3,
            },
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    13: ("2025-02-10 08:02:00", Preemption("0", 2)),
}
NEW: Expected = {
    **dict.fromkeys((1, 3, 5, 12, 14, 16, 18), None),  # 18 is of the same event as 17
    2: ("2026-10-30 09:00:42", Capacity("0", tokens=444500)),
    4: (
        "2026-10-30 09:00:50",
        Capacity(
            "0",
            tokens=444500,
            facts={
                "chunked_prefill_size": "8192",
                "max_prefill_tokens": "16384",
                "max_num_seqs": "2048",
                "max_seq_len": "131072",
            },
        ),
    ),
    6: (
        "2026-10-30 09:01:00",
        Stats(
            "0",
            {"kv_cache_usage_ratio": 0.31, "running": 12, "waiting": 3, "prompt_tokens_per_second": 10342.11},
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    7: (
        "2026-10-30 09:01:05",
        Stats(
            "0",
            {"running": 16, "kv_cache_usage_ratio": 0.31, "generation_tokens_per_second": 812.45, "waiting": 3},
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    8: (
        "2026-10-30 09:01:06",
        Stats(
            "0",
            {
                "running": 16,
                "kv_cache_usage_ratio": 0.31,
                "acceptance_length": 2.41,
                "acceptance_ratio": 0.47,
                "generation_tokens_per_second": 812.45,
                "waiting": 3,
            },
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    9: (
        "2026-10-30 09:01:07",
        Stats(
            "0",
            {"running": 3, "kv_cache_usage_ratio": 0.02, "generation_tokens_per_second": 99.1, "waiting": 0},
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    10: (
        "2026-10-30 09:01:07",
        Stats(
            "0",
            {"running": 3, "kv_cache_usage_ratio": 0.92, "generation_tokens_per_second": 99.1, "waiting": 0},
            NONE_PREEMPTED,
            partial=True,
        ),
    ),
    11: ("2026-10-30 09:02:00", Preemption("0", 2)),
    13: ("2026-10-30 09:03:00", Trouble("engine_dead")),
    15: ("", Trouble("out_of_memory")),
    17: ("2026-10-30 09:03:00", Trouble("worker_died")),
}
LOGS = {"sglang-0.2-0.4.3.log": OLD, "sglang-0.5.8-0.5.23.log": NEW}

STAMP = "2026-10-30 09:01:05"
DECODE = "Decode batch, #running-req: 16, token usage: 0.31, gen throughput (token/s): 812.45, #queue-req: 3"
RETRACTION = "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.5961 -> 0.8812"


def log(name: str) -> bytes:
    return (LOGLINES / name).read_bytes()


def lines(name: str) -> list[str]:
    return log(name).decode(errors="replace").split("\n")[:-1]


def event_of(message: str, ranks: str = "") -> Event | None:
    said = parse(f"[{STAMP}{ranks}] {message}")
    return None if said is None else said.event


def values_of(parts: str) -> dict[str, float]:
    event = event_of(f"Decode batch, #token: 1, {parts}")
    assert isinstance(event, Stats)
    return dict(event.values)


@pytest.mark.parametrize("name", LOGS)
def test_every_line_of_a_log_is_read_as_expected(name: str) -> None:
    """Every form that the releases print has a row in the tables above."""
    said = [parse(line) for line in lines(name)]

    assert {number: each and (each.stamp, each.event) for number, each in enumerate(said, 1)} == LOGS[name]


@pytest.mark.parametrize("name", LOGS)
def test_no_line_that_reports_is_passed_over(name: str) -> None:
    """The markers let through every line that the parser makes something of."""
    passed = [line.decode(errors="replace") for line in SGLANG.candidates(log(name))]

    assert [line for line in lines(name) if parse(line)] == [line for line in passed if parse(line)]


@pytest.mark.parametrize(
    ("name", "number"), [("sglang-0.2-0.4.3.log", 7), ("sglang-0.5.8-0.5.23.log", 4)], ids=["old", "new"]
)
def test_a_start_is_found(name: str, number: int) -> None:
    """Facts are looked for around the line that tells the size of the KV cache."""
    matches = list(SGLANG.start.finditer(log(name)))

    assert [log(name).count(b"\n", 0, match.start()) + 1 for match in matches] == [number]


@pytest.mark.parametrize("end", ["", ", ", ",", "\r\n", ", \r\n", "\x1b[0m\n"])
@pytest.mark.parametrize("batch", ["batch.", "batch,", "batch [1234],", "batch [1234]."])
def test_every_spelling_of_a_batch_line_is_read(batch: str, end: str) -> None:
    """Dot or comma, with or without the step's number, and with what 0.4.10 to 0.5.7 left at the end."""
    assert event_of(DECODE.replace("batch,", batch) + end) == event_of(DECODE)


def test_a_mixed_prefill_is_a_prefill() -> None:
    """0.3 names the running requests in its head; they are not among its parts."""
    message = "Prefill batch(mixed #running-req: 7). #new-seq: 1, cache hit rate: 0.00%, #queue-req: 2"

    assert event_of(message) == Stats("0", {"prefix_hit_ratio": 0, "waiting": 2}, NONE_PREEMPTED, partial=True)


@pytest.mark.parametrize(
    ("head", "stamp"),
    [
        ("[2026-10-30 09:01:05] ", STAMP),
        ("[2026-10-30 09:01:05.123 TP0] ", STAMP),
        ("[2026-10-30 09:01:05] INFO metrics.py:12: ", STAMP),
        ("\x1b[32m[2026-10-30 09:01:05]\x1b[0m ", STAMP),
        ("[09:01:05 TP0] ", ""),
        ("[gpu_id=0] ", ""),
    ],
)
def test_every_head_is_known(head: str, stamp: str) -> None:
    """The date came with 0.4, milliseconds and a level on request; 0.2 prints its GPU alone."""
    said = parse(head + DECODE)

    assert said is not None
    assert said.stamp == stamp


@pytest.mark.parametrize(
    ("ranks", "engine"),
    [("", "0"), (" TP0", "0"), (" DP3 TP3", "3"), (" DP1 PP0 ATTN_CP0 MOE_DP0 TP2 EP2", "1"), (" PP1 TP0", "0")],
)
def test_an_engine_is_a_data_parallel_rank(ranks: str, engine: str) -> None:
    """Other ranks are parts of one engine."""
    event = event_of(DECODE, ranks)

    assert isinstance(event, Stats)
    assert event.engine == engine


@pytest.mark.parametrize(
    ("ranks", "is_counted"),
    [
        ("", True),
        (" TP0", True),
        (" TP1", False),
        (" PP1 TP0", False),
        (" ATTN_CP1 TP0", False),
        (" DP1 TP0", True),
        (" DP1 TP1 EP1", True),
        (" DP1 TP2 EP2", False),
    ],
)
def test_a_retraction_is_counted_of_one_rank(ranks: str, is_counted: bool) -> None:
    """Each rank prints it; an engine whose rank is not counted reports no preemptions rather than none at all."""
    stats = event_of(DECODE, ranks)

    assert isinstance(stats, Stats)
    assert (event_of(RETRACTION, ranks) is not None, "preemptions" in stats.counted) == (is_counted, is_counted)


@pytest.mark.parametrize(
    "message",
    [
        "Decode out of memory happened. #retracted_reqs: 4, #new_token_ratio: 0.5961 -> 0.8812",
        "KV cache pool is full. Retract requests. #retracted_reqs: 4, #new_tokens_gained: -4096",
        "KV cache pool is full. Retract requests. #retracted_reqs: 4, #aborted_retracted_reqs: 1, #new_token_ratio: 1",
        "Testing retraction. #retracted_reqs: 4, #new_tokens_gained: 4096",
        "Testing retraction. #retracted_reqs: 4",
    ],
)
def test_every_spelling_of_a_retraction_is_read(message: str) -> None:
    """Also the debug mode that forces it: the requests are put back all the same."""
    assert event_of(message, " DP2 TP0") == Preemption("2", 4)


@pytest.mark.parametrize(
    "message", ["Testing retraction.", "Retract requests. #retracted_reqs: 1", "#retracted_reqs: 1"]
)
def test_a_retraction_without_its_form_is_none(message: str) -> None:
    """A count alone proves nothing."""
    assert event_of(message) is None


@pytest.mark.parametrize(
    "message",
    [
        "server_args=ServerArgs(model_path='org/model-7B', tokenizer_path='x', kv_cache_dtype='fp8_e5m2', tp_size=8, "
        "api_key='sk-secret', dp_size=2, json_model_override_args='{}')",
        "server_args={'model_path': 'org/model-7B', 'model_loader_extra_config': {'tp_size': 99}, 'tp_size': 8, "
        "'kv_cache_dtype': 'fp8_e5m2', 'api_key': 'sk-secret', 'dp_size': 2}",
        "INFO engine.py:177: server_args=ServerArgs(model_path='org/model-7B', dp_size=2, tp_size=8, api_key=None, "
        "kv_cache_dtype='fp8_e5m2')",
    ],
    ids=["dataclass", "dict", "level"],
)
def test_a_start_tells_the_model_and_its_shape(message: str) -> None:
    """As a dataclass or as a dict; nothing else of it is read, since it may hold a key."""
    settings = {
        "model": "org/model-7B",
        "tensor_parallel_size": "8",
        "data_parallel_size": "2",
        "kv_cache_dtype": "fp8_e5m2",
    }

    assert event_of(message) == Setting(settings, server=True)
    assert SGLANG.start.search(f"[{STAMP}] {message}".encode())


def test_a_model_that_cannot_be_read_is_left_out() -> None:
    """A server starts all the same."""
    assert event_of("server_args=ServerArgs(model_path=None, tp_size=1)") == Setting(
        {"tensor_parallel_size": "1"}, server=True
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"[{STAMP} TP3] Scheduler hit an exception: Traceback (most recent call last):", "engine_dead"),
        (f"[{STAMP}] DetokenizerManager hit an exception: Traceback (most recent call last):", "worker_died"),
        (f"[{STAMP}] Received sigquit from a child proces. It usually means the child failed.", "worker_died"),
        (f"[{STAMP}] Subprocess scheduler_0 (pid=4711) crashed with exit code -6. Triggering", "worker_died"),
        (f"[{STAMP} TP0] Watchdog timeout (self.watchdog_timeout=300)", "step_timeout"),
        (f"[{STAMP}] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "step_timeout"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB.", "out_of_memory"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB.", "out_of_memory"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error"),
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", "cuda_error"),
    ],
)
def test_trouble_is_told_by_kind(line: str, what: str) -> None:
    """By the sentences that SGLang has for it, and by the last line of a traceback."""
    said = parse(line)

    assert what in TROUBLES
    assert said is not None
    assert said.event == Trouble(what)
    assert list(SGLANG.candidates(line.encode() + b"\n")) == [line.encode()]


@pytest.mark.parametrize(
    "line",
    [
        f"[{STAMP}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        f"[{STAMP}] User: RuntimeError: CUDA error: what is that?",
        " RuntimeError: CUDA error: indented",
        "Scheduler hit an exception: without a head",
        f"[{STAMP}] A Scheduler hit an exception: no",
    ],
)
def test_what_only_looks_like_trouble_is_none(line: str) -> None:
    """A signal that follows is the same event, and a quotation is no event."""
    assert parse(line) is None


@pytest.mark.parametrize(
    "line",
    [
        f"[{STAMP}] Receive: obj=GenerateReqInput(text='[{STAMP}] {DECODE}')",
        f"[{STAMP}] INFO:     127.0.0.1:55110 - [{STAMP}] {RETRACTION}",
        f"[{STAMP} TP0] [{STAMP} TP0] {DECODE}",
        f"user: [{STAMP}] {DECODE}",
        f" [{STAMP}] {DECODE}",
        DECODE,
        RETRACTION,
        f"[{STAMP} TP0 DP0] {DECODE}",
        f"[{STAMP} TP99999] {DECODE}",
        f"[{STAMP}]{DECODE}",
        "server_args=ServerArgs(model_path='x', tp_size=1)",
        f"[{STAMP}] text='server_args=ServerArgs(model_path=0)'",
        f"[{STAMP}] MLX stub: initialized minimal pools (max_total_num_tokens=1, max_running_requests=1)",
        f"[{STAMP}] KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.",
        f"[{STAMP}] max_total_num_tokens={'9' * 10000}, context_len=1",
        f"[{STAMP}] max_total_num_tokens=-5, context_len=1",
        f"[{STAMP}] {RETRACTION.replace(': 2,', ': -2,')}",
        f"[{STAMP}] {RETRACTION.replace(': 2,', ': ' + '2' * 10000 + ',')}",
        "",
        "\x00" * 100,
        "\ufffd" * 100,
        "[" * 100000,
        "\x1b[" + "1;" * 100000,
    ],
    ids=lambda line: repr(line[:60]),
)
def test_a_quotation_or_garbage_reports_nothing(line: str) -> None:
    """Only what stands right behind a head is SGLang's own word."""
    assert parse(line) is None


@pytest.mark.parametrize(
    "number",
    ["nan", "inf", "-inf", "1e400", "-1", "-0.01", "9" * 10**4, "", " ", "1,2", "0x1", "\u0663", "1 2", "None"],
)
def test_a_value_that_cannot_be_true_is_left_out(number: str) -> None:
    """The rest of its line is read."""
    assert values_of(f"token usage: {number}, #running-req: {number}, #queue-req: 3") == {"waiting": 3}


def test_a_ratio_above_one_is_left_out() -> None:
    """Counts may be as large as they like."""
    assert values_of("token usage: 1.01, accept rate: 101.00%, cache hit rate: 100.00%, accept len: 2.50") == {
        "prefix_hit_ratio": 1,
        "acceptance_length": 2.5,
    }


def test_minus_zero_is_zero() -> None:
    """Rounding prints it at times."""
    assert str(values_of("token usage: -0.00")["kv_cache_usage_ratio"]) == "0.0"


def test_parts_of_other_names_pass_by() -> None:
    """Names are compared whole: these end in ones that are known."""
    parts = "mamba usage: 0.05, swa token usage: 0.40, cpu token usage: 0.41, block accept len: 3.10, cap len: 2.00"

    assert values_of(parts) == {}


def test_settings_of_the_capacity_line_are_numbers() -> None:
    """What a fork prints instead is left out, since a fact becomes a label."""
    message = "max_total_num_tokens=10, chunked_prefill_size=-1, max_prefill_tokens=None, context_len=9'\"\\, other=3"

    assert event_of(message) == Capacity("0", tokens=10, facts={"chunked_prefill_size": "-1"})
