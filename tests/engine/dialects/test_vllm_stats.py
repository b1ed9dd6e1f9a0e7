"""vLLM's periodic lines: the state of every release, its parts in any order, companions, steps."""

from itertools import permutations

import pytest

from solpi_exporter.engine.dialects.dialect import Iteration, Stats
from solpi_exporter.engine.dialects.vllm import parse
from solpi_exporter.engine.dialects.vllm_stats import COUNTS, FRACTIONS, RATIOS
from tests.engine.dialects.lines import HEAD, STATS, event_of, head_of, log_line

METRICS = head_of("metrics")
RUST = "(RustFrontend pid=44) INFO 11-20 06:05:05 [log_stats.rs:291] "
V0 = "INFO 11-29 15:39:34 [metrics.py:486] "


def stats(line: str) -> Stats:
    event = event_of(line)
    assert isinstance(event, Stats)
    return event


def test_a_stats_line_in_full() -> None:
    """Percent becomes a ratio; the stamp is kept as it is, since it has no year."""
    assert stats(HEAD + STATS) == Stats(
        "0",
        {
            "prompt_tokens_per_second": 46.6,
            "generation_tokens_per_second": 47.6,
            "running": 1.0,
            "waiting": 2.0,
            "kv_cache_usage_ratio": 0.43,
            "prefix_hit_ratio": 0.125,
        },
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "vllm-v0-0.2.0-0.4.2.log",
            "Running: 28 reqs",
            Stats(
                "0",
                {
                    "prompt_tokens_per_second": 0.0,
                    "generation_tokens_per_second": 96.3,
                    "running": 28.0,
                    "swapped": 7.0,
                    "waiting": 19.0,
                    "kv_cache_usage_ratio": 1.0,
                    "swap_usage_ratio": 0.225,
                },
                {"preemptions_at_least": 0.0},
            ),
        ),
        (
            "vllm-v0-0.8-0.10.2.log",
            "Swapped: 1 reqs",
            Stats(
                "0",
                {
                    "prompt_tokens_per_second": 0.0,
                    "generation_tokens_per_second": 88.1,
                    "running": 3.0,
                    "swapped": 1.0,
                    "waiting": 2.0,
                    "kv_cache_usage_ratio": 0.995,
                    "swap_usage_ratio": 0.04,
                },
                {"preemptions_at_least": 0.0},
            ),
        ),
        (
            "vllm-v1-0.6.6-0.8.2.log",
            "Running: 64 reqs",
            Stats(
                "0",
                {
                    "prompt_tokens_per_second": 3021.4,
                    "generation_tokens_per_second": 812.0,
                    "running": 64.0,
                    "waiting": 9.0,
                    "kv_cache_usage_ratio": 0.427,
                    "prefix_hit_ratio": 0.183,
                },
            ),
        ),
        (
            "vllm-v1-0.8.3-0.10.0.log",
            "Engine 001",
            Stats(
                "1",
                {
                    "prompt_tokens_per_second": 190.4,
                    "generation_tokens_per_second": 91.5,
                    "running": 6.0,
                    "waiting": 0.0,
                    "kv_cache_usage_ratio": 0.034,
                    "prefix_hit_ratio": 0.102,
                },
            ),
        ),
        (
            "vllm-v1-0.10.1-0.11.2-ansi-prefix.log",
            "MM cache hit rate",
            Stats(
                "0",
                {
                    "prompt_tokens_per_second": 83.6,
                    "generation_tokens_per_second": 1700.8,
                    "running": 30.0,
                    "waiting": 2.0,
                    "kv_cache_usage_ratio": 0.129,
                    "prefix_hit_ratio": 0.969,
                    "external_hit_ratio": 0.125,
                    "multimodal_hit_ratio": 0.333,
                },
            ),
        ),
        (
            "vllm-v1-0.31-0.33.log",
            "KV fetch",
            Stats(
                "0",
                {
                    "prompt_tokens_per_second": 4012.7,
                    "generation_tokens_per_second": 1640.1,
                    "running": 44.0,
                    "waiting": 9.0,
                    "deferred": 4.0,
                    "fetch_waiting": 3.0,
                    "fetch_in_progress": 2.0,
                    "fetch_completed": 1.0,
                    "kv_cache_usage_ratio": 0.935,
                    "prefix_hit_ratio": 0.12,
                    "external_hit_ratio": 0.401,
                    "multimodal_hit_ratio": 0.25,
                },
            ),
        ),
        (
            "vllm-v1-0.31-0.33.log",
            "Corrupted",
            Stats(
                "0",
                {
                    "prompt_tokens_per_second": 0.0,
                    "generation_tokens_per_second": 1210.4,
                    "running": 44.0,
                    "waiting": 9.0,
                    "kv_cache_usage_ratio": 1.0,
                    "prefix_hit_ratio": 0.12,
                },
            ),
        ),
        (
            "vllm-v1-dp-and-aggregated.log",
            "4 Engines Aggregated",
            Stats(
                "all",
                {
                    "prompt_tokens_per_second": 1612.5,
                    "generation_tokens_per_second": 640.2,
                    "running": 17.0,
                    "waiting": 2.0,
                    "kv_cache_usage_ratio": 0.134,
                    "prefix_hit_ratio": 0.1,
                },
            ),
        ),
        (
            "vllm-rust-frontend-0.22-0.33.log",
            "Reqs Running: 9",
            Stats(
                "",
                {
                    "prompt_tokens_per_second": 812.4,
                    "generation_tokens_per_second": 401.2,
                    "running": 9.0,
                    "waiting": 0.0,
                    "kv_cache_usage_ratio": 0.41,
                    "prefix_hit_ratio": 0.125,
                },
            ),
        ),
        (
            "vllm-rust-frontend-0.22-0.33.log",
            "Preemptions: 6",
            Stats(
                "",
                {
                    "prompt_tokens_per_second": 4012.7,
                    "generation_tokens_per_second": 1640.1,
                    "running": 44.0,
                    "waiting": 9.0,
                    "deferred": 4.0,
                    "kv_cache_usage_ratio": 0.992,
                    "prefix_hit_ratio": 0.125,
                    "external_hit_ratio": 0.401,
                },
                {"preemptions": 6.0},
            ),
        ),
        ("vllm-v1-0.6.6-0.8.2.log", "RUNNING: 306", Stats("0", {"running": 306.0, "waiting": 628.0})),
        ("vllm-v1-0.6.6-0.8.2.log", "Running: 12 reqs", Stats("0", {"running": 12.0, "waiting": 3.0})),
        (
            "vllm-v0-0.8-0.10.2.log",
            "CPU: 90.00%",
            Stats("", {"prefix_hit_ratio": 0.0, "cpu_hit_ratio": 0.9}, partial=True),
        ),
        (
            "vllm-v0-0.2.0-0.4.2.log",
            "Speculative metrics",
            Stats("", {"acceptance_ratio": 0.713}, partial=True),
        ),
        (
            "vllm-v1-0.8.3-0.10.0.log",
            "SpecDecoding",
            Stats("", {"acceptance_ratio": 0.713, "acceptance_length": 3.14}, partial=True),
        ),
        (
            "vllm-v1-0.31-0.33.log",
            "SpecDecoding",
            Stats("", {"acceptance_ratio": 0.536, "acceptance_length": 2.87}, partial=True),
        ),
        (
            "vllm-rust-frontend-0.22-0.33.log",
            "SpecDecoding",
            Stats("", {"acceptance_ratio": 0.536, "acceptance_length": 2.87}, partial=True),
        ),
        ("vllm-hostile.log", "Draft acceptance rate: nan%", Stats("", {"acceptance_length": 1.0}, partial=True)),
    ],
)
def test_the_lines_of_each_release(name: str, text: str, expected: Stats) -> None:
    """All that a line says, and nothing that it does not say."""
    assert stats(log_line(name, text)) == expected


def test_parts_are_read_in_any_order_and_with_parts_missing() -> None:
    """What a release adds, moves or leaves out changes nothing else."""
    line = HEAD + (
        "Engine 003: Avg prompt throughput: 1.0 tokens/s, KV fetch: 3 waiting to start, 2 in progress, "
        "Brand new: 7 reqs, Deferred: 4 reqs, XPU KV cache usage: 5.0%, Running: 2 reqs"
    )

    assert stats(line) == Stats(
        "3",
        {"prompt_tokens_per_second": 1.0, "deferred": 4.0, "kv_cache_usage_ratio": 0.05, "running": 2.0},
    )


@pytest.mark.parametrize(("key", "attribute"), COUNTS.items())
def test_each_count_is_read(key: str, attribute: str) -> None:
    """By its name, wherever it stands; with a percent sign it is another thing."""
    line = HEAD + "Engine 000: Avg prompt throughput: x, {}: 3{}, Brand new: 1 reqs"

    assert stats(line.format(key, " reqs")).values == {attribute: 3.0}
    assert stats(line.format(key, "%")).values == {}


@pytest.mark.parametrize(("key", "attribute"), RATIOS.items())
def test_each_ratio_is_read(key: str, attribute: str) -> None:
    """From percent."""
    line = HEAD + f"Engine 000: Avg prompt throughput: x, {key}: 25.0%, Brand new: 1 reqs"

    assert stats(line).values == {attribute: 0.25}


@pytest.mark.parametrize(("key", "attribute"), FRACTIONS.items())
@pytest.mark.parametrize(("number", "known"), [("0.25", True), ("1.000", True), ("1.001", False), ("25", False)])
def test_each_fraction_is_read(key: str, attribute: str, number: str, known: bool) -> None:
    """Without a percent sign it is from 0 to 1."""
    assert stats(METRICS + f"Speculative metrics: {key}: {number}").values == (
        {attribute: float(number)} if known else {}
    )


def test_a_part_is_read_once() -> None:
    """Of one that is repeated, the first is meant."""
    assert stats(HEAD + STATS + ", Running: 9 reqs, GPU KV cache usage: 99.0%").values == stats(HEAD + STATS).values


def test_v0_has_two_devices() -> None:
    """V0's CPU column is the swap space; its final full stop is not part of a number."""
    values = stats(
        "INFO 11-29 15:39:34 [metrics.py:486] Avg prompt throughput: 76.7 tokens/s, Avg generation throughput: 134.3 "
        "tokens/s, Running: 1 reqs, Swapped: 3 reqs, Pending: 5 reqs, GPU KV cache usage: 9.4%, "
        "CPU KV cache usage: 50.0%."
    ).values

    assert (values["kv_cache_usage_ratio"], values["swap_usage_ratio"]) == (0.094, 0.5)
    assert (values["waiting"], values["swapped"]) == (5.0, 3.0)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ("GPU KV cache usage: nan%, CPU KV cache usage: 50.0%.", {"swap_usage_ratio": 0.5}),
        ("GPU KV cache usage: 150.0%, CPU KV cache usage: 50.0%.", {"swap_usage_ratio": 0.5}),
        (
            "CPU KV cache usage: 50.0%, GPU KV cache usage: 9.4%.",
            {"swap_usage_ratio": 0.5, "kv_cache_usage_ratio": 0.094},
        ),
    ],
)
def test_the_swap_space_is_never_taken_for_the_kv_cache(parts: str, expected: dict[str, float]) -> None:
    """Beside a GPU, the CPU's column is the swap space, whatever is printed for the GPU, and wherever."""
    assert stats(V0 + f"Avg prompt throughput: x, Pending: y, {parts}").values == expected


@pytest.mark.parametrize("device", ["GPU", "CPU", "XPU", "TPU"])
def test_the_one_device_holds_the_kv_cache(device: str) -> None:
    """From 0.30 on it has its own name; a CPU that stands alone is no swap space."""
    assert stats(HEAD + STATS.replace("GPU KV", f"{device} KV")) == stats(HEAD + STATS)


def test_v0_tells_of_no_preemption_by_its_silence() -> None:
    """It tells of one in 50, so that a counter begins with its first state line; V1 tells of none at all."""
    v0 = log_line("vllm-v0-0.2.0-0.4.2.log", "Pending: 12 reqs")

    assert stats(v0).counted == {"preemptions_at_least": 0.0}
    assert stats(HEAD + STATS).counted == {}


@pytest.mark.parametrize(("parts", "counted"), [("Preemptions: 1", {"preemptions": 1.0}), ("Preemptions: x", {})])
def test_rust_counts_preemptions_since_its_last_line(parts: str, counted: dict[str, float]) -> None:
    """They are no state: what is counted is added."""
    line = RUST + f"Avg prompt tput: 1.0 toks/s, {parts}, GPU KV cache used: 10.0%"

    assert stats(line) == Stats("", {"prompt_tokens_per_second": 1.0, "kv_cache_usage_ratio": 0.1}, counted)


def test_rust_without_preemptions_counts_none() -> None:
    """Before 0.25 it did not print them."""
    assert stats(log_line("vllm-rust-frontend-0.22-0.33.log", "Reqs Running: 9")).counted == {}


@pytest.mark.parametrize(
    "message",
    [
        "Prefix cache hit rate: GPU: 12.50%",
        "Prefix cache hit rate: GPU: 12.50%, CPU: nan%",
        "Prefix cache hit rate: GPU: -1.00%, CPU: -1.00%",
        "EC Transfer metrics: k=1",
        "DiffusionDecoding metrics: Committed token throughput: 812.40 tokens/s, Mean acceptance length: 5.24",
        "Engine 000: MFU: 412.3 TF/s/GPU 1890.4 GB/s/GPU",
        "Engine 00000: Avg prompt throughput: 1.0 tokens/s",
        "Engine 0x1: Avg prompt throughput: 1.0 tokens/s",
        "Engines Aggregated: Avg prompt throughput: 1.0 tokens/s",
        "RUNNING: 306 | WAITING: 628 x",
        "Running: 12 reqs, Waiting: 3 reqs  ",
        "Running: 12 reqs",
        "AsyncLLM created with api_server_count more than 1; disabling stats logging to avoid incomplete stats.",
    ],
)
def test_what_is_no_periodic_line_of_ours_is_not_read(message: str) -> None:
    """The file's other lines look much alike."""
    assert event_of(head_of("loggers") + message) is None


def test_a_hit_rate_that_cannot_be_true_is_left_out() -> None:
    """The one beside it stands."""
    assert stats(V0 + "Prefix cache hit rate: GPU: 100.01%, CPU: 100.00%").values == {"cpu_hit_ratio": 1.0}


@pytest.mark.parametrize("value", ["nan%", "-0.5%", "inf%", "150.0%", "1e9%", "%", "1.2.3%", "٣%"])
def test_what_is_no_ratio_is_not_known(value: str) -> None:
    """A value that cannot be true is left out; the rest of the line stands."""
    event = stats(
        HEAD + f"Engine 000: Avg prompt throughput: 1.0 tokens/s, GPU KV cache usage: {value}, Running: 2 reqs"
    )

    assert event.values == {"prompt_tokens_per_second": 1.0, "running": 2.0}


@pytest.mark.parametrize("value", ["nan", "-1", "inf", "1e9", "", "1.2.3", "٣", "9" * 400])
def test_what_is_no_count_is_not_known(value: str) -> None:
    """A count that cannot be one is left out; the rest of the line stands."""
    event = stats(HEAD + f"Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: {value} reqs, Waiting: 2 reqs")

    assert event.values == {"prompt_tokens_per_second": 1.0, "waiting": 2.0}


def test_numbers_without_end_are_no_numbers() -> None:
    """Five thousand digits are not infinitely many requests, and no error."""
    digits = "9" * 5000

    assert "running" not in stats(HEAD + STATS.replace("Running: 1 ", f"Running: {digits} ")).values
    assert parse(HEAD + STATS.replace("Engine 000", f"Engine {digits}")) is None


def test_minus_zero_is_zero() -> None:
    """vLLM prints -0.0% at times."""
    value = stats(HEAD + STATS.replace("43.0%", "-0.0%")).values["kv_cache_usage_ratio"]

    assert value == 0.0
    assert str(value) == "0.0"


def test_every_order_of_parts_says_the_same() -> None:
    """The first part is the line's sign; the others may stand anywhere behind it."""
    first, *others = STATS.split(", ")

    for order in permutations(others):
        assert stats(HEAD + ", ".join([first, *order])) == stats(HEAD + STATS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm-v1-0.12-0.15-ansi-prefix.log", Iteration("0", 0.01025)),
        ("vllm-v1-0.31-0.33.log", Iteration("0", 0.01025, {"kv_cache_usage_ratio": 0.051})),
    ],
)
def test_a_step_tells_how_long_it_took(name: str, expected: Iteration) -> None:
    """From the engine's process up to 0.25, from the API server after, which names the engine and its KV usage."""
    assert event_of(log_line(name, "Iteration(")) == expected


STEP = "1 context requests, 128 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: "


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (head_of("core", tag="(EngineCore_DP3 pid=9) ") + f"Iteration(7): {STEP}58.41 ms", Iteration("3", 0.05841)),
        (head_of("loggers") + f"Engine 012: Iteration(7): {STEP}8 ms", Iteration("12", 0.008)),
        (
            head_of("loggers") + f"Engine 001: Iteration(7): {STEP}58.41 ms (dummy), GPU KV cache usage: 5.1%",
            Iteration("1", None, {"kv_cache_usage_ratio": 0.051}),
        ),
        (
            head_of("loggers")
            + f"Engine 001: Iteration(7): {STEP}2.00 ms, GPU KV cache usage: 5.1%, encoder inputs: 2, "
            "encoder output embeddings: 512",
            Iteration("1", 0.002, {"kv_cache_usage_ratio": 0.051}),
        ),
    ],
    ids=["engine's process", "no usage", "dummy", "encoder"],
)
def test_a_step_in_each_form(line: str, expected: Iteration) -> None:
    """A dummy step, which keeps other engines in step, has no time of its own."""
    assert event_of(line) == expected


@pytest.mark.parametrize(
    "message",
    [
        f"Iteration(7): {STEP}nan ms",
        f"Iteration(7): {STEP}-1.0 ms",
        f"Iteration(x): {STEP}1.0 ms",
        f"Iteration(7): {STEP}{'9' * 400} ms",
        f"Iteration(7): {STEP}1.0 s",
        "Iteration(7): iteration elapsed time",
    ],
)
def test_a_step_without_a_time_is_none(message: str) -> None:
    """What cannot be a time is not counted as a step."""
    assert event_of(head_of("core") + message) is None


def test_a_reports_parts_are_a_mapping() -> None:
    """They are read when somebody asks, and each time the same."""
    values = stats(HEAD + "Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 2 reqs").values

    assert len(values) == 2
    assert list(values) == ["prompt_tokens_per_second", "running"]
    assert dict(values) == {"prompt_tokens_per_second": 1.0, "running": 2.0}
    assert "waiting" not in values


def test_corrupted_requests_are_known_only_where_there_are_some() -> None:
    """V1 resets its count before it prints it: 0 says nothing."""
    line = HEAD + STATS + ", Corrupted: {} reqs"

    assert "corrupted" not in stats(line.format(0)).values
    assert stats(line.format(3)).values["corrupted"] == 3.0
