"""vLLM's dialect: every recorded log, and the forms that its lines take."""

from collections import Counter
from pathlib import Path

import pytest

from solpi_exporter.engine.dialect import Capacity, Event, Setting, Stats
from solpi_exporter.engine.vllm import VLLM, parse
from tests.fakes import RECORDINGS, SHIPPED

# What each recorded log reports: stats lines, capacities, settings. Counted by hand (grep) and not from the parser.
EXPECTED = {
    "vllm-0.8.5/kv-pressure.log": (19, 1, 3),
    "vllm-0.11.2/kv-pressure.log": (14, 1, 2),
    "vllm-0.24.0-h200/a-before.log": (11, 1, 2),
    "vllm-0.24.0-h200/b-after.log": (16, 1, 2),
    "vllm-0.24.0-h200/c-kv-pressure.log": (6, 1, 2),
    "vllm-0.24.0-h200/d-kv-offload.log": (6, 1, 2),
    "vllm-0.32.0/calm.log": (13, 1, 2),
    "vllm-0.32.0/crash.log": (2, 1, 2),
    "vllm-0.32.0/debug.log": (5, 1, 2),
    "vllm-0.32.0/dp2-one-api-server.log": (12, 2, 2),
    "vllm-0.32.0/dp2.log": (0, 2, 2),
    "vllm-0.32.0/iteration-details.log": (3, 1, 2),
    "vllm-0.32.0/kv-offload.log": (0, 1, 2),
    "vllm-0.32.0/kv-pressure-quiet.log": (10, 1, 2),
    "vllm-0.32.0/kv-pressure.log": (17, 1, 2),
    "vllm-0.32.0/max-num-seqs-8.log": (3, 1, 2),
    "vllm-0.32.0/no-stats.log": (0, 1, 2),
    "vllm-0.32.0/spec-ngram.log": (11, 1, 2),
}

HEAD = "(APIServer pid=800) INFO 11-29 15:45:33 [loggers.py:273] "
STATS = (
    "Engine 000: Avg prompt throughput: 46.6 tokens/s, Avg generation throughput: 47.6 tokens/s, Running: 1 reqs, "
    "Waiting: 2 reqs, GPU KV cache usage: 43.0%, Prefix cache hit rate: 12.5%"
)


def log_path(name: str) -> Path:
    shipped = SHIPPED / name
    return shipped if shipped.exists() else RECORDINGS / name


def events(name: str) -> list[Event]:
    lines = log_path(name).read_bytes().decode(errors="replace").split("\n")
    return [event for event in map(event_of, lines) if event is not None]


def event_of(line: str) -> Event | None:
    said = parse(line)
    return None if said is None else said.event


def stats(line: str) -> Stats:
    event = event_of(line)
    assert isinstance(event, Stats)
    return event


def test_every_plain_log_is_in_the_table() -> None:
    """A recording that is added must have its expected counts."""
    found = {str(path.relative_to(root)) for root in (RECORDINGS, SHIPPED) for path in root.rglob("*.log")}

    assert found == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_recorded_logs_are_read_completely(name: str) -> None:
    """Every line that reports something is recognised as what it is, and nothing else is."""
    counts = Counter(event.kind for event in events(name))

    assert (counts["stats"], counts["capacity"], counts["setting"]) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_every_part_of_a_recorded_stats_line_is_known(name: str) -> None:
    """Throughputs, running, waiting and KV usage are in each of them, whatever the release called them."""
    for event in events(name):
        if isinstance(event, Stats):
            assert event.values.keys() >= {
                "prompt_tokens_per_second",
                "generation_tokens_per_second",
                "running",
                "waiting",
                "kv_cache_usage_ratio",
            }
            assert 0 <= event.values["kv_cache_usage_ratio"] <= 1


@pytest.mark.parametrize("name", EXPECTED)
def test_the_prefilter_lets_every_report_through(name: str) -> None:
    """Of a whole log it yields every line that parses, once, in order; the source passes over all others undecoded."""
    data = log_path(name).read_bytes()
    reports = [line for line in data.split(b"\n") if parse(line.decode(errors="replace")) is not None]

    assert [line for line in VLLM.candidates(data) if parse(line.decode(errors="replace")) is not None] == reports


def test_the_prefilter_looks_at_whole_lines() -> None:
    """A marker counts in the line of a gate only, and a line with many gates is one."""
    report = b"x] ] ] throughput: 1"
    assert list(VLLM.candidates(b"throughput: 1\n]\n" + report + b"\n[a] no\n" + report + b"\n")) == [report, report]


@pytest.mark.parametrize(
    ("name", "version", "model", "capacities"),
    [
        ("vllm-0.8.5/kv-pressure.log", "0.8.5", "tiny", [Capacity("0", blocks=192.0)]),
        ("vllm-0.11.2/kv-pressure.log", "0.11.2", "tiny", [Capacity("0", tokens=3072.0)]),
        ("vllm-0.24.0-h200/a-before.log", "0.24.0", "llama-8b-shape", [Capacity("0", tokens=934096.0)]),
        ("vllm-0.32.0/dp2.log", "0.32.0", "tiny", [Capacity("1", tokens=3072.0), Capacity("0", tokens=3072.0)]),
    ],
)
def test_start_up_facts(name: str, version: str, model: str, capacities: list[Capacity]) -> None:
    """Version, served model and KV capacity of each engine, from releases two years apart."""
    all_events = events(name)
    facts: dict[str, str] = {}
    for event in all_events:
        if isinstance(event, Setting):
            facts.update(event.values)

    assert (facts["version"], facts["model"]) == (version, model)
    assert [event for event in all_events if isinstance(event, Capacity)] == capacities


def test_the_engines_settings_are_read_by_name() -> None:
    """Those on the list, out of a Python repr that nests and holds commas of its own."""
    start = next(
        event for event in events("vllm-0.24.0-h200/a-before.log") if isinstance(event, Setting) and event.engine
    )

    assert dict(start.values) == {
        "version": "0.24.0",
        "model": "llama-8b-shape",
        "max_seq_len": "4096",
        "tensor_parallel_size": "1",
        "pipeline_parallel_size": "1",
        "data_parallel_size": "1",
        "quantization": "None",
        "enforce_eager": "True",
        "kv_cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "enable_chunked_prefill": "True",
    }


def test_a_stats_line_in_full() -> None:
    """Percent becomes a ratio; the stamp is kept as it is, since it has no year."""
    assert stats(HEAD + STATS) == Stats(
        "0",
        "11-29 15:45:33",
        {
            "prompt_tokens_per_second": 46.6,
            "generation_tokens_per_second": 47.6,
            "running": 1.0,
            "waiting": 2.0,
            "kv_cache_usage_ratio": 0.43,
            "prefix_hit_ratio": 0.125,
        },
    )


def test_parts_are_read_in_any_order_and_with_parts_missing() -> None:
    """What a release adds, moves or leaves out changes nothing else."""
    line = HEAD + (
        "Engine 003: Avg prompt throughput: 1.0 tokens/s, KV fetch: 3 waiting to start, 2 in progress, "
        "Brand new: 7 reqs, Deferred: 4 reqs, XPU KV cache usage: 5.0%, Running: 2 reqs"
    )

    assert stats(line) == Stats(
        "3",
        "11-29 15:45:33",
        {"prompt_tokens_per_second": 1.0, "deferred": 4.0, "kv_cache_usage_ratio": 0.05, "running": 2.0},
    )


def test_v0_has_two_devices_of_which_the_first_counts() -> None:
    """V0's CPU column is the swap space; its final full stop is not part of a number."""
    values = stats(
        "INFO 11-29 15:39:34 [metrics.py:486] Avg prompt throughput: 76.7 tokens/s, Avg generation throughput: 134.3 "
        "tokens/s, Running: 1 reqs, Swapped: 3 reqs, Pending: 5 reqs, GPU KV cache usage: 9.4%, "
        "CPU KV cache usage: 50.0%."
    ).values

    assert values["kv_cache_usage_ratio"] == 0.094
    assert (values["waiting"], values["swapped"]) == (5.0, 3.0)


@pytest.mark.parametrize(
    "line",
    [
        HEAD + STATS,
        "\x1b[1;36m(APIServer pid=335)\x1b[0;0m INFO 11-29 15:45:33 [loggers.py:236] " + STATS,
        "(APIServer pid=1) \x1b[32mINFO\x1b[0m \x1b[90m11-29 15:45:33\x1b[0m \x1b[90m[loggers.py:335]\x1b[0m " + STATS,
        "INFO 11-29 15:45:33 metrics.py:455] " + STATS,
        "(APIServer pid=32248) INFO 11-29 15:45:33 [v1/metrics/loggers.py:335] " + STATS,
        "Capturing CUDA graphs:  51%|█████ | 26/51\r" + HEAD + STATS,
        HEAD + STATS + "\r",
    ],
    ids=["plain", "coloured process", "coloured level", "one bracket", "path", "progress bar before", "CR LF"],
)
def test_heads_of_all_releases(line: str) -> None:
    """The same message behind every head that vLLM has printed is the same report."""
    assert stats(line).values["running"] == 1.0
    assert stats(line).stamp == "11-29 15:45:33"


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


@pytest.mark.parametrize("value", ["nan%", "-0.5%", "inf%", "150.0%", "1e9%", "%", "1.2.3%", "٣%"])
def test_what_is_no_ratio_is_not_known(value: str) -> None:
    """A value that cannot be true is left out; the rest of the line stands."""
    event = stats(
        HEAD + f"Engine 000: Avg prompt throughput: 1.0 tokens/s, GPU KV cache usage: {value}, Running: 2 reqs"
    )

    assert event.values == {"prompt_tokens_per_second": 1.0, "running": 2.0}


def test_capacity_with_both_facts_on_one_line() -> None:
    """From 0.28 on, size and concurrency share a line, and the device is whatever it is."""
    line = (
        "(EngineCore_DP1 pid=9) INFO 11-29 15:18:14 [kv_cache_utils.py:2327] CPU KV cache size: 3,072 tokens, Maximum"
    )

    assert event_of(line) == Capacity("1", tokens=3072.0)


def test_a_setting_that_is_not_on_the_list_is_not_read() -> None:
    """Labels hold what is on a list: never a token, a path or whatever else an engine prints."""
    event = event_of(
        "INFO 11-29 15:39:18 [core.py:1] Initializing a V1 LLM engine (v0.1) with config: model='m', hf_token=secret, "
        "enforce_eager=True, download_dir='/home/somebody'"
    )

    assert event == Setting({"version": "0.1", "model": "m", "enforce_eager": "True"}, engine="0")


def test_the_model_is_the_engines_own() -> None:
    """A draft model of speculative decoding stands in the same line; a path may hold blanks."""
    event = event_of(
        "INFO 11-29 15:39:18 [core.py:1] Initializing a V1 LLM engine (v0.1) with config: "
        "model='/data/my models/llama', speculative_config=SpeculativeConfig(model='acme/draft'), seed=0"
    )

    assert isinstance(event, Setting)
    assert event.values["model"] == "/data/my models/llama"


@pytest.mark.parametrize(
    "message",
    [
        "vLLM API server version 0.9.2",
        " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.9.2",
        "vLLM server version 0.9.2, serving x",
    ],
)
def test_a_server_starts_with_its_version(message: str) -> None:
    """In each of the forms that it has had."""
    head = "(APIServer pid=1) INFO 11-20 06:00:01 [launcher.py:367] "

    assert event_of(head + message) == Setting({"version": "0.9.2"}, server=True)


def test_an_engine_of_the_first_releases_tells_no_version() -> None:
    """Before 0.4.1 its start line had none."""
    line = "INFO 10-03 09:12:02 llm_engine.py:72] Initializing an LLM engine with config: model='a', tokenizer='a'"

    assert event_of(line) == Setting({"model": "a"}, engine="0")


@pytest.mark.parametrize("file", ["serving_chat.py", "logger.py", "async_llm.py"])
def test_a_users_text_with_a_real_head_is_no_report(file: str) -> None:
    """vLLM repeats its head on every line of a message: only the file that prints reports can report."""
    head = HEAD.replace("loggers.py", file)

    assert event_of(head + STATS) is None
    assert event_of(head + "GPU KV cache size: 8,192 tokens") is None
    assert event_of(head + "bad template '\r" + HEAD + STATS) is None
    assert event_of(head + "vLLM API server version 6.6.6") is None
    assert event_of(head + "Initializing a V1 LLM engine (v6.6.6) with config: model='evil'") is None


@pytest.mark.parametrize("name", EXPECTED)
def test_the_start_is_found_as_it_is_read(name: str) -> None:
    """The pattern by which a late joiner looks for the start matches the line that parses as one, and no other."""
    data = log_path(name).read_bytes()
    starts = [event for event in events(name) if isinstance(event, Setting) and event.engine is not None]

    assert len(VLLM.start.findall(data)) == len(starts)


def test_a_quoted_start_is_none() -> None:
    """A prompt may hold one; it comes behind a bracket of its own line's head."""
    line = b"INFO 11-29 15:39:18 [logger.py:39] Received request x: '[core.py:1] Initializing a V1 LLM engine (v1)'"

    assert not VLLM.start.search(line)


def test_numbers_without_end_are_no_numbers() -> None:
    """Five thousand digits are not infinitely many requests, and no error."""
    digits = "9" * 5000

    assert "running" not in stats(HEAD + STATS.replace("Running: 1 ", f"Running: {digits} ")).values
    assert parse(HEAD + STATS.replace("Engine 000", f"Engine {digits}")) is None
    assert parse(f"INFO 11-29 15:38:59 [api_server.py:1] args: Namespace(block_size={digits})") is None


def test_minus_zero_is_zero() -> None:
    """vLLM prints -0.0% at times."""
    assert stats(HEAD + STATS.replace("43.0%", "-0.0%")).values["kv_cache_usage_ratio"] == 0.0


@pytest.mark.parametrize(
    ("head", "role", "pid"),
    [
        ("(APIServer pid=800) INFO 11-29 15:45:33 [loggers.py:273] ", "APIServer", 800),
        ("\x1b[0;36m(EngineCore_DP1 pid=4711)\x1b[0;0m INFO 11-29 15:45:33 [loggers.py:273] ", "EngineCore_DP1", 4711),
        ("INFO 11-29 15:45:33 [loggers.py:273] ", "", None),
    ],
)
def test_who_says_it_is_told(head: str, role: str, pid: int | None) -> None:
    """The head names role and pid of the process, from 0.10.1 on; a plain head names none."""
    said = parse(head + STATS)

    assert said is not None
    assert (said.role, said.pid) == (role, pid)
