"""vLLM's head: every form that it has had, who speaks, and where a message ends that another record is glued to."""

import json

import pytest

from solpi_exporter.engine.dialects.dialect import Capacity, Stats
from solpi_exporter.engine.dialects.vllm import parse
from solpi_exporter.engine.dialects.vllm_head import Head, split
from tests.engine.dialects.lines import HEAD, STATS, event_of, log_line

STAMP = "11-29 15:45:33"
SIZE = "GPU KV cache size: 1,005,648 tokens"

NATIVE = {
    "asctime": "2026-11-20 06:05:05,001",
    "levelname": "INFO",
    "name": "vllm.v1.metrics.loggers",
    "processName": "EngineCore_DP1",
    "process": 90,
    "message": STATS,
}
USUAL = {"message": STATS, "level": "info", "time": "2025-10-14T17:00:48Z", "logger": "vllm.v1.metrics.loggers"}


def stats(line: str) -> Stats:
    event = event_of(line)
    assert isinstance(event, Stats)
    return event


def head(line: str) -> Head:
    parts = split(line)
    assert parts is not None
    return parts[0]


def message(line: str) -> str:
    parts = split(line)
    assert parts is not None
    return parts[1]


@pytest.mark.parametrize(
    "line",
    [
        HEAD + STATS,
        "\x1b[1;36m(APIServer pid=335)\x1b[0;0m INFO 11-29 15:45:33 [loggers.py:236] " + STATS,
        "(APIServer pid=1) \x1b[32mINFO\x1b[0m \x1b[90m11-29 15:45:33\x1b[0m \x1b[90m[loggers.py:335]\x1b[0m " + STATS,
        "INFO 11-29 15:45:33 metrics.py:455] " + STATS,
        "INFO 11-29 15:45:33 [loggers.py:118] " + STATS,
        "(APIServer pid=32248) INFO 11-29 15:45:33 [v1/metrics/loggers.py:335] " + STATS,
        "(APIServer pid=1) [gpu-07] INFO 11-29 15:45:33 [loggers.py:271] " + STATS,
        "(APIServer pid=1) [gpu-07]INFO 11-29 15:45:33 [loggers.py:271] " + STATS,
        "[gpu-07] INFO 11-29 15:45:33 [loggers.py:118] " + STATS,
        "Capturing CUDA graphs:  51%|█████ | 26/51\r" + HEAD + STATS,
        "Capturing CUDA graphs:  51%|█████     | 34/67 [00:02<00:02, 13.02it/s]" + HEAD + STATS,
        "Loading: 1%| | 1/67 [00:02<00:02, 13.02it/s]\rLoading: 100%|█| 67/67 [00:05<00:00, 11.7it/s]" + HEAD + STATS,
        HEAD + STATS + "\r",
        HEAD + STATS + "\r\n",
    ],
    ids=[
        "plain",
        "coloured process",
        "coloured level",
        "one bracket",
        "no tag",
        "path",
        "prefix between tag and level",
        "prefix without a blank",
        "prefix before the level",
        "progress bar before",
        "progress bar glued in front",
        "progress bars",
        "CR",
        "CR LF",
    ],
)
def test_heads_of_all_releases(line: str) -> None:
    """The same message behind every head that vLLM has printed is the same report."""
    said = parse(line)

    assert said is not None
    assert said.stamp == STAMP
    assert stats(line).values["running"] == 1.0


@pytest.mark.parametrize(
    ("head", "role", "pid"),
    [
        ("(APIServer pid=800) INFO 11-29 15:45:33 [loggers.py:273] ", "APIServer", 800),
        ("\x1b[0;36m(EngineCore_DP1 pid=4711)\x1b[0;0m INFO 11-29 15:45:33 [loggers.py:273] ", "EngineCore_DP1", 4711),
        ("(VllmWorker rank=0 pid=311) INFO 11-29 15:45:33 [loggers.py:273] ", "VllmWorker", 311),
        ("\x1b[1;36m(VllmWorkerProcess pid=412)\x1b[0;0m INFO 11-29 15:45:33 metrics.py:1] ", "VllmWorkerProcess", 412),
        ("INFO 11-29 15:45:33 [loggers.py:273] ", "", None),
    ],
)
def test_who_says_it_is_told(head: str, role: str, pid: int | None) -> None:
    """The head names role and pid of the process, from 0.10.1 on; a plain head names none."""
    said = parse(head + STATS)

    assert said is not None
    assert (said.role, said.pid) == (role, pid)


def test_a_worker_has_its_rank_between_role_and_pid() -> None:
    """As workers had it before 0.10.1; the rank is not the engine."""
    line = log_line("vllm-v1-0.8.3-0.10.0.log", "torch.compile takes")

    assert head(line) == Head("monitor", "INFO", "07-10 12:30:52", "VllmWorker", 311)
    assert head(line).rank == "0"


@pytest.mark.parametrize(
    ("role", "rank"),
    [
        ("EngineCore", "0"),
        ("EngineCore_DP0", "0"),
        ("EngineCore_DP3", "3"),
        ("Worker_DP12_TP1_EP5", "12"),
        ("Worker_TP1", "0"),
        ("", "0"),
        ("EngineCore_0", "0"),
        ("EngineCore_1", "1"),  # 0.8.3 to 0.10.1
        ("DPEngineCoreActor", None),  # Ray's, all of one name
    ],
)
def test_the_engine_that_a_process_belongs_to_is_in_its_role(role: str, rank: str | None) -> None:
    """With data parallelism there are several, and each release that had it numbers them."""
    assert Head("core", "INFO", STAMP, role, 1).rank == rank


def test_an_engine_of_the_first_releases_with_data_parallelism_tells_its_own_size() -> None:
    """Up to 0.10.1 its process is called EngineCore_1."""
    line = f"\x1b[1;36m(EngineCore_1 pid=513)\x1b[0;0m INFO 07-10 12:30:56 [kv_cache_utils.py:716] {SIZE}"

    assert event_of(line) == Capacity("1", tokens=1005648.0)


def test_the_rust_front_end_is_read_in_colour() -> None:
    """Its colours stand between level, time and file, and its files end in `.rs`."""
    line = log_line("vllm-rust-frontend-0.22-0.33.log", "Preemptions: 6")

    assert head(line) == Head("log_stats", "INFO", "11-20 06:05:05", "RustFrontend", 44)
    assert message(line).startswith("Avg prompt tput: 4012.7 toks/s, ")


def test_a_rust_file_has_a_path() -> None:
    """Of the crate; the file's name alone counts."""
    line = log_line("vllm-rust-frontend-0.22-0.33.log", "server/src/lib.rs")

    assert head(line) == Head("lib", "INFO", "11-20 06:00:59", "RustFrontend", 44)


@pytest.mark.parametrize("severity", ["E", "F"])
@pytest.mark.parametrize("tag", ["", "(Worker_TP0 pid=230) "])
def test_torchs_own_head_is_read(tag: str, severity: str) -> None:
    """Month and day have nothing between them; an error is one for us as well; vLLM's tag may stand before it."""
    line = tag + log_line("vllm-trouble.log", "ProcessGroupNCCL").replace(":[E", f":[{severity}")

    assert head(line) == Head("ProcessGroupNCCL", "ERROR", "11-20 09:14:21")
    assert message(line).startswith("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(")


@pytest.mark.parametrize("severity", ["W", "I"])
def test_torchs_warnings_are_not_read(severity: str) -> None:
    """They have the same head, and say nothing of ours."""
    line = log_line("vllm-trouble.log", "ProcessGroupNCCL").replace(":[E", f":[{severity}")

    assert split(line) is None


def test_a_record_of_vllms_own_json_is_split() -> None:
    """The logger's name stands for the file, and the stamp has a year."""
    expected = Head("loggers", "INFO", "2026-11-20 06:05:05", "EngineCore_DP1", 90)

    assert split(json.dumps(NATIVE)) == (expected, STATS)
    assert expected.rank == "1"


def test_a_record_of_a_users_json_is_split() -> None:
    """By the usual keys of python-json-logger; what it lacks is not known."""
    assert split(json.dumps(USUAL)) == (Head("loggers", "INFO", "2025-10-14 17:00:48"), STATS)


@pytest.mark.parametrize("key", ["timestamp", "time", "asctime"])
def test_a_records_time_has_several_names(key: str) -> None:
    """Each of the usual ones is read."""
    record = {"name": "vllm.x", "message": "m", key: "2026-11-20 06:05:05,001"}

    assert head(json.dumps(record)).stamp == "2026-11-20 06:05:05"


def test_the_process_of_a_users_json_is_told_by_vllm() -> None:
    """A configuration without `processName` has vLLM's own name for the process, by which engines are told apart."""
    record = {key: value for key, value in NATIVE.items() if key != "processName"}
    record["vllm_process_name"] = "EngineCore_DP1"

    assert head(json.dumps(record)).role == "EngineCore_DP1"
    assert head(json.dumps(record)).rank == "1"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "uvicorn.access"},
        {"name": "vllm"},
        {"name": "vllm.x/../y"},
        {"name": None},
        {"name": 7},
        {"name": "my.vllm.loggers"},
    ],
    ids=str,
)
def test_a_record_of_another_logger_is_not_split(change: dict[str, object]) -> None:
    """Only vLLM's own modules have a word here."""
    assert split(json.dumps({**NATIVE, **change})) is None


@pytest.mark.parametrize(
    "line",
    ["{", "{}", '{"name": "vllm.v1.metrics.loggers"', "{" * 100_000, '{"a":' * 100_000, '{"name": ' + "9" * 5000],
)
def test_what_is_no_json_is_not_split(line: str) -> None:
    """A brace does not make a record, nor do a hundred thousand."""
    assert split(line) is None


@pytest.mark.parametrize("process", [None, "90", 0, -1, 1 << 32, 9.5])
def test_a_records_process_that_is_no_pid_is_not_known(process: object) -> None:
    """It is a number of a process, or nothing."""
    assert head(json.dumps({**NATIVE, "process": process})).pid is None


@pytest.mark.parametrize("message_", [None, 1, ["x"], {}])
def test_a_record_without_text_says_nothing(message_: object) -> None:
    """A message that is no text is an empty one."""
    assert message(json.dumps({**NATIVE, "message": message_})) == ""


def test_of_a_message_of_several_lines_the_first_is_read() -> None:
    """In JSON a newline is in the message: what follows may be a user's text."""
    assert message(json.dumps({**NATIVE, "message": f"bad template\n{STATS}"})) == "bad template"


def test_a_record_glued_behind_is_not_read() -> None:
    """Two processes write at once; of the first record all is read, of the second nothing."""
    first = HEAD + "Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 7 reqs"
    second = HEAD.replace("pid=800", "pid=900") + STATS
    said = parse(first + second)

    assert said is not None
    assert said.pid == 800
    assert stats(first + second).values == {"prompt_tokens_per_second": 1.0, "running": 7.0}


def test_a_worker_glued_behind_is_not_read() -> None:
    """Its tag has a rank."""
    second = "(VllmWorker rank=1 pid=312) INFO 11-29 15:45:33 [loggers.py:1] , Running: 9 reqs"

    assert message(HEAD + "Running: 7 reqs" + second) == "Running: 7 reqs"


def test_a_record_glued_behind_without_a_tag_is_not_read() -> None:
    """Before 0.10.1 most processes had none: the level and the date begin the second record."""
    plain = "INFO 11-29 15:45:33 [loggers.py:80] "
    first = plain + "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 7 reqs"
    second = plain + STATS.removeprefix("Engine 000: ")

    assert stats(first + second).values == {
        "prompt_tokens_per_second": 1.0,
        "generation_tokens_per_second": 2.0,
        "running": 7.0,
    }


def test_a_torn_record_is_read_up_to_the_tear() -> None:
    """A record that another one tore in two has its beginning on this line only."""
    line = log_line("vllm-hostile.log", "KV cache mem(Worker_TP1")

    assert head(line) == Head("gpu_worker", "INFO", "11-20 11:00:06", "Worker_TP0", 230)
    assert message(line) == "Available KV cache mem"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "INFO 11-29 15:45:33",
        "INFO 11-29 15:45:33 [loggers.py:273]",
        "TRACE 11-29 15:45:33 [loggers.py:273] x",
        "INFO 2026-11-29 15:45:33 [loggers.py:273] x",
        "INFO 11-29 15:45:33 [loggers.txt:273] x",
        "INFO \u0661\u0661-29 15:45:33 [loggers.py:273] x",
        "(APIServer pid=) INFO 11-29 15:45:33 [loggers.py:273] x",
        "( pid=1) INFO 11-29 15:45:33 [loggers.py:273] x",
        " (APIServer pid=1) INFO 11-29 15:45:33 [loggers.py:273] x",
        "14-10-2025 17:00:58 [INFO] loggers.py:123 - log() - " + STATS,
        "Capturing [00:02<00:02, 13.02it/s",
        "Capturing [00:02<00:02, 13.02it/s] x " + HEAD + STATS,
    ],
)
def test_what_has_no_head_is_not_split(line: str) -> None:
    """A head is whole, and stands at the line's beginning or right behind a bar."""
    parts = split(line)

    assert parts is None or parts[1] == ""
