"""vLLM's dialect: one line of its log to what it reports, for every release that prints plain text.

A line is recognised by its logger's head; its message is then read as `key: value` parts by name, in any order,
since parts come and go between releases. Text quoted inside a message has no head of its own and is never read.
"""

import re
from collections.abc import Iterator, Mapping

from solpi_exporter.engine.dialect import Capacity, Dialect, Event, Said, Setting, Stats

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HEAD = re.compile(
    r"(?:\((?P<process>[A-Za-z]\w*) pid=(?P<pid>\d{1,10})\) )?"  # every process from 0.10.1 on, workers before
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?(?:[\w.-]+/)*(?P<file>[\w-]+)\.py:\d+\] ?",  # the bracket is closed only, up to 0.7
    re.ASCII,
)
# The files that print what is read here. vLLM repeats the head on each line of a message, so that a user's text in a
# message of another file may look like a report to the letter.
_STATS_FILES = {"loggers", "metrics", "llm_engine"}
_CAPACITY_FILES = {"kv_cache_utils", "executor_base", "llm_engine", "gpu_executor", "distributed_gpu_executor"}
_SETTING_FILES = {"api_server", "api_utils", "utils", "launcher", "serve", "core", "llm_engine", "async_llm_engine"}
_RANK = re.compile(r"_DP(?P<rank>\d{1,4})", re.ASCII)

_STATS = re.compile(r"(?:Engine (?P<engine>\d{1,4}): )?(?P<parts>Avg prompt throughput: .*)", re.ASCII)
_PART = re.compile(  # a whole one, between commas
    r"(?:^|(?<=, ))([A-Za-z ]+): (-?\d{1,12}(?:\.\d{1,9})?)(%?)(?: [a-z/]+)? ?\.?(?=, |$)", re.ASCII
)
_KV_USAGE = re.compile(r"[A-Z]+ KV cache usage", re.ASCII)

_CAPACITY = re.compile(r"[A-Z]+ KV cache size: (?P<tokens>[\d,]{1,20}) tokens", re.ASCII)
_BLOCKS = re.compile(r"# (?:GPU|cuda|cpu) blocks: (?P<blocks>\d{1,12})", re.ASCII)  # 0.7 to 0.10 in lower case

_VERSION = re.compile(r"(?:vLLM API server|vLLM server|[ ▄█▀]+) version (?P<version>\d[\w.+]{0,40})", re.ASCII)
_START = re.compile(
    r"Initializing an? (?:V\d )?LLM engine (?:\(v(?P<version>[\w.+]{1,40})\) )?with config: (?P<config>.*)", re.ASCII
)
_ARGUMENTS = re.compile(r"args: Namespace\(.*\bblock_size=(?P<block_size>\d{1,6})\b", re.ASCII)
_MODEL = re.compile(r"model='(?P<model>[ -&(-~]{1,200})'", re.ASCII)
_SERVED = re.compile(r", served_model_name=(?P<model>[\w./:@+-]{1,200}),", re.ASCII)

COUNTS = {
    "Avg prompt throughput": "prompt_tokens_per_second",
    "Avg generation throughput": "generation_tokens_per_second",
    "Running": "running",
    "Waiting": "waiting",
    "Pending": "waiting",
    "Deferred": "deferred",
    "Swapped": "swapped",
}
RATIOS = {
    "Prefix cache hit rate": "prefix_hit_ratio",
    "External prefix cache hit rate": "external_hit_ratio",
}
# Settings that are published, by the names they have had: a label may hold what stands on this list, no more.
SETTINGS = {
    "max_seq_len": "max_seq_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": "enable_prefix_caching",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "enable_chunked_prefill": "enable_chunked_prefill",
}
_SETTING = re.compile(rf"\b(?P<key>{'|'.join(SETTINGS)})=(?P<value>\w{{1,40}})\b", re.ASCII)


def parse(line: str) -> Said | None:
    """Return what one line reports, None for the many that report nothing of ours."""
    text = line.rstrip("\r\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    head = _HEAD.match(text)
    if head is None:  # a progress bar, which has no head, may stand before a record
        text = text.rpartition("\r")[2]
        head = _HEAD.match(text)
    event = None if head is None else _message(text[head.end() :], head)
    if head is None or event is None:
        return None
    return Said(event, head["process"] or "", None if head["pid"] is None else int(head["pid"]))


def _message(message: str, head: re.Match[str]) -> Event | None:
    if head["file"] in _STATS_FILES and (match := _STATS.match(message)):
        return Stats(str(int(match["engine"] or 0)), head["stamp"], _Parts(match["parts"]))
    rank = _RANK.search(head["process"] or "")
    engine = rank["rank"] if rank else "0"
    if head["file"] in _CAPACITY_FILES and (match := _CAPACITY.match(message)):
        return Capacity(engine, tokens=float(match["tokens"].replace(",", "")))
    if head["file"] in _CAPACITY_FILES and (match := _BLOCKS.match(message)):
        return Capacity(engine, blocks=float(match["blocks"]))
    return _setting(message, engine) if head["file"] in _SETTING_FILES else None


class _Parts(Mapping[str, float]):
    """The parts of a report, read when somebody asks: of many reports in a block, only the last one matters."""

    __slots__ = ("_text", "_values")

    def __init__(self, text: str) -> None:
        self._text = text
        self._values: dict[str, float] | None = None

    def __getitem__(self, attribute: str) -> float:
        return self._read()[attribute]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, float]:
        if self._values is None:
            self._values = dict(_parts(self._text))
        return self._values


def _parts(text: str) -> Iterator[tuple[str, float]]:
    """Yield the parts that have a place in an EngineReading; others, and values that cannot be true, pass by.

    V0 prints two devices, of which the second is the swap space: yielded in reverse, the first one counts.
    """
    for key, number, percent in reversed(_PART.findall(text)):
        value = float(number) + 0.0  # -0.0, which is printed at times, is 0
        if percent:
            attribute = "kv_cache_usage_ratio" if _KV_USAGE.fullmatch(key) else RATIOS.get(key)
            value /= 100
        else:
            attribute = COUNTS.get(key)
        if attribute is not None and value >= 0 and not (percent and value > 1):
            yield attribute, value


def _setting(message: str, engine: str) -> Setting | None:
    if match := _VERSION.match(message):
        return Setting({"version": match["version"]}, server=True)
    if match := _ARGUMENTS.match(message):
        return Setting({"block_size": match["block_size"]})
    if match := _START.match(message):
        version = {"version": match["version"]} if match["version"] else {}
        return Setting({**version, **_configuration(match["config"])}, engine=engine)
    return None


def _configuration(config: str) -> dict[str, str]:
    """Read the listed keys out of a Python repr with nested parts: by name, since its commas separate nothing."""
    settings: dict[str, str] = {}
    if model := _SERVED.search(config) or _MODEL.match(config):
        settings["model"] = model["model"]
    for match in _SETTING.finditer(config):
        settings.setdefault(SETTINGS[match["key"]], match["value"])
    return settings


VLLM = Dialect(
    "vllm",
    b"]",
    (b"throughput: ", b"KV cache size: ", b" blocks: ", b" version ", b"LLM engine ", b"args: Namespace("),
    # No bracket but the head's own stands before it: a prompt that quotes this comes behind one.
    re.compile(rb"^[^\]\n]{0,120}\] Initializing an? (?:V\d )?LLM engine ", re.MULTILINE),
    parse,
)
