"""vLLM's trouble: the sentences that it says when something is wrong, by the file that says them."""

import re

from solpi_exporter.engine.dialects.dialect import Preemption, Trouble
from solpi_exporter.engine.dialects.vllm_head import ERROR, Head

# Sentences of one file each. None for the file: a traceback, which is told by whoever caught it, at level ERROR.
SENTENCES: tuple[tuple[str | None, str, str], ...] = (
    ("core", r"EngineCore encountered a fatal error\.", "engine_dead"),
    ("core", r"EngineCore hit an exception", "engine_dead"),
    ("core", r"EngineCore failed to start\.", "start_failed"),
    ("core_client", r"Engine core proc \S{1,64} died unexpectedly", "engine_dead"),
    ("core_client", r"\[shutdown\] MPClient: engine core exited unexpectedly", "engine_dead"),
    ("async_llm", r"AsyncLLM output_handler failed\.", "engine_dead"),
    ("async_llm_engine", r"Engine iteration timed out\. This should never happen!", "step_timeout"),
    ("async_llm_engine", r"Background loop has errored already", "engine_dead"),
    ("multiproc_executor", r"Worker proc \S{1,64} died unexpectedly", "worker_died"),
    ("multiproc_executor", r"WorkerProc hit an exception", "worker_died"),
    ("multiproc_worker_utils", r"Worker \S{1,64} pid \d{1,10} died, exit code: ", "worker_died"),
    ("shm_broadcast", r"No available shared memory broadcast block found", "broadcast_wait"),
    ("scheduler", r"Failing \d{1,9} request\(s\) due to KV load failure", "kv_load_failed"),
    ("scheduler", r"Recovered from KV load failure: ", "kv_load_failed"),
    ("watch_dog", r"\[Watchdog\]Dumped stack to ", "step_timeout"),
    ("utils", r"Found ulimit of \d{1,12} and failed", "ulimit"),
    ("system_utils", r"Found ulimit of \d{1,12} and failed", "ulimit"),
    ("ProcessGroupNCCL", r"\[Rank \d{1,5}\] Watchdog caught collective operation timeout", "nccl_timeout"),
    (None, r"torch\.(?:cuda\.)?OutOfMemoryError: CUDA out of memory", "out_of_memory"),
    (None, r"ValueError: No available memory for the cache blocks", "out_of_memory"),
    (None, r"ValueError: Free memory on device ", "out_of_memory"),
    (None, r"ValueError: To serve at least one request with the model", "out_of_memory"),
    (None, r"(?:RuntimeError|torch\.AcceleratorError): CUDA error: ", "cuda_error"),
    (None, r"TimeoutError: RPC call to \w{1,64} timed out", "step_timeout"),
    (None, r"ValueError: Counters can only be incremented by non-negative amounts", "engine_dead"),
)
_SENTENCES = tuple((file, re.compile(sentence, re.ASCII), what) for file, sentence, what in SENTENCES)
# Files that print what users say, by what their names begin with.
_QUOTING = ("request_logger", "logger", "serving")

_PREEMPTED = re.compile(
    r"Sequence group .{1,300} is preempted by PreemptionMode\.(?:RECOMPUTE|SWAP) mode because .{1,500} "
    r"total_num_cumulative_preemption=(?P<total>\d{1,12})$",
    re.ASCII,
)


def parse(message: str, head: Head) -> Trouble | Preemption | None:
    """Return the trouble that a line speaks of; V0's preemption, of which it tells one in 50, is a number as well."""
    if head.file == "scheduler" and (match := _PREEMPTED.match(message)):
        return Preemption("0", at_least=float(match["total"]))
    for file, sentence, what in _SENTENCES:
        is_its = head.level == ERROR and not head.file.startswith(_QUOTING) if file is None else head.file == file
        if is_its and sentence.match(message):
            return Trouble(what)
    return None
