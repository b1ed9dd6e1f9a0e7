"""TensorRT-LLM's dialect: each line of the recorded forms, the ranks, and what must not be believed."""

from pathlib import Path

import pytest

from solpi_exporter.engine.dialects.dialect import Iteration, Said, Stats
from solpi_exporter.engine.dialects.tensorrt_llm import TENSORRT_LLM, parse

LOG = (Path(__file__).parents[2] / "loglines" / "tensorrt-llm.log").read_bytes()
LINES = LOG.decode(errors="replace").split("\n")[:-1]

# Each line reports something.
EXPECTED = [
    Said(Iteration("0", 50.5 / 1000, {"running": 3}), "2026-01-16 06:20:17"),
    Said(Iteration("0", 12.114763259887695 / 1000, {"running": 3}), "2026-05-10 00:00:00"),
    Said(Iteration("0", 5.03 / 1000, {"running": 8, "kv_cache_usage_ratio": 0.412}), "2026-07-22 00:00:00"),
    Said(Iteration("0", None, {"running": 0}), "2026-07-22 00:00:01"),  # an empty step has waited
    Said(Stats("0", {"running": 1, "kv_cache_usage_ratio": 33 / 513}), "12-18 03:35:37"),
]

HEAD = "[07/22/2026-00:00:00] [TRT-LLM] [I] "
STEP = "iter = 26, num_scheduled_requests = 8, kv_cache_util = 0.412, host_step_time = 5.00ms, states = {}"
TRITON = "I1218 03:35:37.688135 20559 libtensorrtllm.cc:1205] "
STATE = (
    '{"Active Request Count":249,"Context Requests":8,"Max KV cache blocks":2448,"Scheduled Requests":239,'
    '"Timestamp":"12-13-2023 14:55:14","Used KV cache blocks":1224}'
)


def step_of(message: str) -> Iteration:
    said = parse(HEAD + message)
    assert said is not None
    assert isinstance(said.event, Iteration)
    return said.event


def state_of(line: str) -> dict[str, float]:
    said = parse(line)
    assert said is not None
    assert isinstance(said.event, Stats)
    return dict(said.event.values)


def test_every_line_of_the_log_is_read_as_expected() -> None:
    """Every form since 2025: fields in any order, `:` or `=`, `N/A` left out."""
    assert [parse(line) for line in LINES] == EXPECTED


def test_no_line_that_reports_is_passed_over() -> None:
    """The gate and the markers let through every line that the parser makes something of."""
    assert list(TENSORRT_LLM.candidates(LOG)) == LOG.split(b"\n")[:-1]


@pytest.mark.parametrize("version", ["TensorRT-LLM version: 0.20.0", "TensorRT LLM version: 1.3.0rc25"])
def test_a_start_is_found(version: str) -> None:
    """By the line that importing the library prints."""
    assert TENSORRT_LLM.start.search(f"noise\n[TensorRT-LLM] {version}\n".encode())


@pytest.mark.parametrize(
    "tags",
    ["[I] ", "[RANK 0] [I] ", "[I] [RANK 0] ", "[I] [_torch][RANK 0] ", "[I] [_torch] "],
)
def test_every_head_is_known(tags: str) -> None:
    """The rank stands before the level or after it, or nowhere."""
    said = parse(f"\x1b[38;20m[07/22/2026-00:00:00] [TRT-LLM] {tags}{STEP}\x1b[0m\r\n")

    assert said == Said(Iteration("0", 0.005, {"running": 8, "kv_cache_usage_ratio": 0.412}), "2026-07-22 00:00:00")


@pytest.mark.parametrize(
    "line",
    [
        f"[07/22/2026-00:00:00] [TRT-LLM] [RANK 1] [I] {STEP}",
        f"[07/22/2026-00:00:00] [TRT-LLM] [I] [_torch][RANK 3] {STEP}",
        HEAD + STEP.replace("iter = 26, ", "iter = 26, global_rank = 1, rank = 0, "),
        HEAD + STEP.replace("iter = 26, ", "iter = 26, global_rank = 0, rank = 1, "),
    ],
)
def test_other_ranks_report_nothing(line: str) -> None:
    """All ranks run the same step: its time must not be counted twice."""
    assert parse(line) is None


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("elapsed_time = 0.01s", 0.01),
        ("host_step_time = 5e-05s", 0.00005),
        ("host_step_time = 12ms", 0.012),
        ("host_step_time = N/A", None),
        ("host_step_time = -3.00ms", None),
        ("host_step_time = 3.00", None),
        ("host_step_time = nanms", None),
        ("host_step_time = 1e400ms", None),
        (f"host_step_time = {'9' * 10**4}ms", None),
        ("prev_device_step_time = 4.7ms", None),
    ],
)
def test_a_steps_time_is_in_seconds(time: str, seconds: float | None) -> None:
    """The host's own time, with its unit; the device's is of the step before and holds idle time."""
    assert step_of(f"iter = 1, {time}, num_scheduled_requests: 1, states = {{}}") == Iteration(
        "0", seconds, {"running": 1}
    )


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "1e400", "9" * 10**4, "", "N/A", "1ms", "\u0663", "0x1"])
def test_a_value_that_cannot_be_true_is_left_out(number: str) -> None:
    """The rest of its line is read."""
    message = f"iter = 1, num_scheduled_requests = {number}, kv_cache_util = {number}, host_step_time = 5ms, states = "

    assert step_of(message) == Iteration("0", 0.005)


def test_a_ratio_above_one_is_left_out() -> None:
    """A cache cannot be fuller than full."""
    assert step_of("iter = 1, kv_cache_util = 1.01, num_scheduled_requests = 70000") == Iteration(
        "0", None, {"running": 70000}
    )


def test_states_are_not_read_as_parts() -> None:
    """Their dict has commas of its own."""
    message = "iter = 1, host_step_time = 5ms, states = {'a': 1, num_scheduled_requests = 9, rank = 4}"

    assert step_of(message) == Iteration("0", 0.005)


def test_running_is_what_the_last_step_held() -> None:
    """Requests that were taken and not scheduled are not running; this form is told outside Triton, without a time."""
    said = parse("[TensorRT-LLM][INFO] " + STATE)

    assert said == Said(Stats("0", {"running": 239, "kv_cache_usage_ratio": 0.5}))


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        (":239", ":-1", {"kv_cache_usage_ratio": 0.5}),
        (":239", ":NaN", {"kv_cache_usage_ratio": 0.5}),
        (":239", ":" + "9" * 10**4, {"kv_cache_usage_ratio": 0.5}),
        (":2448", ":0", {"running": 239}),
        (":1224", ":2449", {"running": 239}),
        (":1224", ":1e400", {"running": 239}),
        (":8,", ":" + "[" * 10**5 + ",", {"running": 239, "kv_cache_usage_ratio": 0.5}),
    ],
)
def test_a_number_of_the_runtime_that_cannot_be_true_is_left_out(old: str, new: str, values: dict[str, float]) -> None:
    """The others are read, whatever stands between them."""
    assert state_of(TRITON + STATE.replace(old, new)) == values


@pytest.mark.parametrize(
    "line",
    [
        f"{HEAD}prompt: {HEAD}{STEP}",
        HEAD + HEAD + STEP,
        f"user: {HEAD}{STEP}",
        " " + HEAD + STEP,
        STEP,
        HEAD + "iter = ",
        HEAD + "iter = x, host_step_time = 5ms",
        HEAD + f"iter = {'1' * 10**4}, host_step_time = 5ms",
        HEAD.replace("[I]", "[W]") + STEP,
        STATE,
        f"prompt {TRITON}{STATE}",
        TRITON + "prompt " + STATE,
        TRITON + STATE[:-1],
        TRITON + '{"Active Request Count":',
        '[TensorRT-LLM][INFO] {"text":"[TensorRT-LLM][INFO] {"Active Request Count":1}"}',
        "[TensorRT-LLM][INFO] Engine version 0.9.0 found in the config file",
        "",
        "\x00" * 100,
        "\ufffd" * 100,
        "[" * 100000,
        "\x1b[" + "1;" * 100000,
    ],
    ids=lambda line: repr(line[:60]),
)
def test_a_quotation_or_garbage_reports_nothing(line: str) -> None:
    """Only what stands right behind a head is TensorRT-LLM's own word."""
    assert parse(line) is None
