"""vLLM's trouble: each sentence from a line that says it, each file that says it, and those that quote."""

import pytest

from solpi_exporter.engine.dialects.dialect import TROUBLES, Preemption, Trouble
from solpi_exporter.engine.dialects.vllm import VLLM
from solpi_exporter.engine.dialects.vllm_trouble import SENTENCES
from tests.engine.dialects.lines import event_of, head_of, log_line
from tests.fakes import RECORDINGS

TROUBLE = "vllm-trouble.log"
ULIMIT = (
    "Found ulimit of 20000 and failed to automatically increase with error current limit exceeds maximum limit. This "
    "can cause fd limit errors like `OSError: [Errno 24] Too many open files`. Consider increasing with ulimit -n"
)
CORE = head_of("core", "ERROR", "(EngineCore pid=90) ")
V0_CORE = "ERROR 03-19 09:05:00 [core.py:340] "

# A line for each of SENTENCES, in their order; from the logs where one has it.
LINES = (
    log_line(TROUBLE, "EngineCore encountered a fatal error."),
    V0_CORE + "EngineCore hit an exception: Traceback (most recent call last):\r",
    log_line(TROUBLE, "EngineCore failed to start."),
    log_line(TROUBLE, "Engine core proc EngineCore_DP0 died unexpectedly"),
    log_line(TROUBLE, "MPClient: engine core exited"),
    log_line(TROUBLE, "AsyncLLM output_handler failed."),
    "ERROR 05-25 06:50:33 async_llm_engine.py:663] Engine iteration timed out. This should never happen!",
    "ERROR 05-25 06:50:33 [async_llm_engine.py:67] Background loop has errored already.",
    log_line(TROUBLE, "Worker proc VllmWorker-1 died unexpectedly (exit code: -9)"),
    log_line(TROUBLE, "WorkerProc hit an exception."),
    "ERROR 05-25 06:50:33 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 412 died, exit code: -9",
    log_line(TROUBLE, "No available shared memory broadcast block"),
    log_line(TROUBLE, "Failing 2 request(s)"),
    log_line(TROUBLE, "Recovered from KV load failure"),
    log_line(TROUBLE, "[Watchdog]Dumped stack"),
    "WARNING 11-29 15:38:59 [utils.py:2267] " + ULIMIT,
    "(APIServer pid=1921) WARNING 11-29 15:54:20 [system_utils.py:299] " + ULIMIT,
    log_line(TROUBLE, "Watchdog caught collective operation timeout"),
    log_line(TROUBLE, "torch.OutOfMemoryError"),
    CORE + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
    "initializing the engine.",
    log_line(TROUBLE, "Free memory on device"),
    log_line(TROUBLE, "To serve at least one request"),
    CORE + "RuntimeError: CUDA error: an illegal memory access was encountered\r",
    log_line(TROUBLE, "TimeoutError: RPC call"),
    CORE + "ValueError: Counters can only be incremented by non-negative amounts.",
)
OTHER_FORMS = (
    (log_line(TROUBLE, "died unexpectedly, shutting down executor"), "worker_died"),  # before 0.26
    (log_line("vllm-v1-0.8.3-0.10.0.log", "fatal error"), "engine_dead"),
    (log_line("vllm-json.log", "fatal error"), "engine_dead"),
    (V0_CORE + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB.", "out_of_memory"),
    (CORE + "torch.AcceleratorError: CUDA error: device-side assert triggered", "cuda_error"),
    (CORE + "TimeoutError: RPC call to execute_model timed out.", "step_timeout"),
    (head_of("multiproc_executor", "ERROR") + "WorkerProc hit an exception: %s", "worker_died"),
)
PREEMPTED = (
    "WARNING 05-25 06:50:33 [scheduler.py:1768] Sequence group {} is preempted by PreemptionMode.{} mode because there "
    "is not enough KV cache space. This can affect the end-to-end performance. Increase gpu_memory_utilization or "
    "tensor_parallel_size to provide more KV cache memory. total_num_cumulative_preemption={}"
)


@pytest.mark.parametrize(
    ("line", "what"),
    [*zip(LINES, (what for _, _, what in SENTENCES), strict=True), *OTHER_FORMS],
)
def test_each_sentence_is_trouble(line: str, what: str) -> None:
    """As the release that says it prints it, with its head."""
    assert event_of(line) == Trouble(what)


@pytest.mark.parametrize("line", [*LINES, *(line for line, _ in OTHER_FORMS), PREEMPTED.format("a", "SWAP", 1)])
def test_no_trouble_is_passed_over(line: str) -> None:
    """The prefilter lets each of them through, where it stands alone."""
    assert list(VLLM.candidates(line.encode() + b"\n")) == [line.encode()]


def test_every_sentence_speaks_of_a_trouble_that_is_listed() -> None:
    """A label holds what is on the list; V0's preemption is the one that no sentence of these tells."""
    assert {what for _, _, what in SENTENCES} == set(TROUBLES) - {"preemption"}


@pytest.mark.parametrize(("sentence", "line"), [*zip(SENTENCES, LINES, strict=True)], ids=lambda value: value[1][:30])
def test_a_sentence_from_another_file_is_none(sentence: tuple[str | None, str, str], line: str) -> None:
    """Only the file that says it; a traceback's last line is whose it is, unless it prints what users say."""
    message = line.partition("] ")[2]

    assert event_of(head_of("chat_utils" if sentence[0] else "request_logger", "ERROR") + message) is None


@pytest.mark.parametrize("line", LINES)
def test_a_sentence_counts_at_the_beginning_only(line: str) -> None:
    """Within a sentence it is quoted."""
    before, bracket, message = line.partition("] ")

    assert event_of(f"{before}{bracket}He said: {message}") is None


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING"])
def test_a_tracebacks_last_line_is_an_error(level: str) -> None:
    """At another level it is an example, or a remark."""
    for (file, _, _), line in zip(SENTENCES, LINES, strict=True):
        if file is None:
            assert event_of(line.replace("ERROR", level)) is None


@pytest.mark.parametrize(
    "file",
    [
        *("request_logger", "logger", "serving", "serving_chat", "serving_completion", "serving_engine"),
        *("serving_responses", "serving_pooling", "serving_embedding", "serving_tokenization"),
    ],
)
def test_a_traceback_of_a_file_that_quotes_is_no_trouble(file: str) -> None:
    """It may hold a user's text at the beginning of a line; vLLM repeats its head before each."""
    assert event_of(head_of(file, "ERROR") + "RuntimeError: CUDA error: says the user") is None
    assert event_of(head_of(file, "ERROR") + "torch.OutOfMemoryError: CUDA out of memory, I said") is None


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Engine core process EngineCore died unexpectedly.",
        "RuntimeError: Engine core initialization failed.",
        "NCCL WARN",
        "NVRM: Xid",
        "Request chatcmpl-1 failed (engine dead).",
        "EngineDeadError",
        "Dumping scheduler stats",
        "raise TimeoutError",
    ],
)
def test_what_only_echoes_trouble_is_none(text: str) -> None:
    """One crash is seen many times; what has no head, or is told by others already, is not counted again."""
    assert event_of(log_line(TROUBLE, text)) is None


def test_a_recorded_crash_is_seen() -> None:
    """0.32.0 on a host with few open files, whose engine was killed."""
    lines = (RECORDINGS / "vllm-0.32.0/crash.log").read_bytes().decode(errors="replace").split("\n")
    told = [event.what for event in map(event_of, lines) if isinstance(event, Trouble)]

    assert told == ["ulimit", "engine_dead", "engine_dead"]


@pytest.mark.parametrize("mode", ["RECOMPUTE", "SWAP"])
def test_v0_tells_of_one_preemption_in_50(mode: str) -> None:
    """It tells the total since the start, which is at least so many."""
    assert event_of(PREEMPTED.format("cmpl-1", mode, 51)) == Preemption("0", at_least=51.0)


def test_a_logged_preemption_is_read() -> None:
    """As 0.8.5 prints it."""
    line = log_line("vllm-v0-0.8-0.10.2.log", "is preempted")

    assert event_of(line) == Preemption("0", at_least=1.0)


@pytest.mark.parametrize(
    "name",
    [
        "total_num_cumulative_preemption=9",
        "x total_num_cumulative_preemption=9",
        "a is preempted by PreemptionMode.SWAP mode because of me total_num_cumulative_preemption=9",
        "a is preempted by PreemptionMode.SWAP mode because of me total_num_cumulative_preemption=9 ",
        "] (APIServer pid=1) [scheduler.py:1] total_num_cumulative_preemption=9",
    ],
)
def test_a_request_is_named_by_a_user(name: str) -> None:
    """The number is the one at the line's end, whatever the request is called."""
    assert event_of(PREEMPTED.format(name, "SWAP", 51)) == Preemption("0", at_least=51.0)


@pytest.mark.parametrize(
    "line",
    [
        PREEMPTED.format("a", "SLEEP", 1),
        PREEMPTED.format("a", "SWAP", "1x"),
        PREEMPTED.format("a", "SWAP", "9" * 400),
        PREEMPTED.format("", "SWAP", 1).replace("group  is", "group is"),
        PREEMPTED.format("a", "SWAP", 1).replace("scheduler.py", "logger.py"),
    ],
    ids=["mode", "number", "digits", "name", "file"],
)
def test_what_is_no_preemption_is_none(line: str) -> None:
    """The sentence is whole, and its file's."""
    assert event_of(line) is None
