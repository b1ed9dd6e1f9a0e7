"""vLLM's dialect: one line of its log to what it reports, for every release from 0.2 on."""

import re

from solpi_exporter.engine.dialects import vllm_start, vllm_stats, vllm_transfer, vllm_trouble
from solpi_exporter.engine.dialects.dialect import Dialect, Event, Said, Shutdown
from solpi_exporter.engine.dialects.vllm_head import Head, split

_SHUTDOWN = re.compile(r"(?:\[shutdown\] API server: s|S)hutting down FastAPI HTTP server\b")


def parse(line: str) -> Said | None:
    """Return what one line reports, None for the many that report nothing of ours."""
    parts = split(line)
    if parts is None:
        return None
    head, message = parts
    event = _event(message, head)
    return None if event is None else Said(event, head.stamp, head.role, head.pid)


def _event(message: str, head: Head) -> Event | None:
    event: Event | None = None
    if head.file in vllm_stats.FILES:
        event = vllm_stats.parse(message, head)
    if event is None and head.file in vllm_transfer.FILES:
        event = vllm_transfer.parse(message)
    if event is None and head.file in vllm_start.CAPACITY_FILES:
        event = vllm_start.capacity(message, head)
    if event is None and head.file in vllm_start.SETTING_FILES:
        event = vllm_start.setting(message, head)
    if event is None and head.file == "launcher" and _SHUTDOWN.match(message):
        event = Shutdown()
    return vllm_trouble.parse(message, head) if event is None else event


VLLM = Dialect(
    "vllm",
    b"]",
    (
        *(b"throughput: ", b"KV cache size: ", b" blocks: ", b"blocks is: ", b" version ", b"LLM engine ", b"args: "),
        *(b" tput: ", b"Running: ", b"RUNNING: ", b"cache hit rate: ", b"metrics: ", b"Iteration("),
        *(b"Maximum concurrency ", b"Chunked prefill ", b"Asynchronous scheduling ", b"max model len ", b" eager "),
        *(b"EngineCore ", b" died", b"exited unexpectedly", b"failed.", b"timed out", b"errored", b" hit an exception"),
        *(b"broadcast block", b"KV load failure", b"[Watchdog]", b"ulimit of", b"operation timeout", b"Error: "),
        *(b"cumulative_preemption=", b"hutting down FastAPI"),
    ),
    # No bracket but the head's own, and a prefix's, stands before it: a prompt that quotes this comes behind others.
    re.compile(
        rb"^(?:(?:[^\[\]\n]{0,120}\[(?![\w/.-]{0,60}\.py:\d)[\w./:-]{1,64}\] ?)?[^\]\n]{0,120}\] "
        rb"|\{[^\n]{0,400}message\\?\": ?\\?\")Initializing an? (?:V\d )?LLM engine ",
        re.MULTILINE,
    ),
    parse,
    (b"LLM engine ",),
    structured=b'"vllm.',
)
