"""vLLM's dialect: one line of its log to what it reports, for every release that prints plain text.

A line is recognised by its logger's head; its message is then read as `key: value` parts by name, in any order,
since parts come and go between releases. Text quoted inside a message has no head of its own and is never read.
"""

import re
from collections.abc import Iterator

from solpi_exporter.engine.dialect import Capacity, Dialect, Event, Setting, Stats

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HEAD = re.compile(
    r"(?:\((?P<process>[A-Za-z]\w*) pid=\d+\) )?"  # every process from 0.10.1 on, workers before
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?[\w./-]+\.py:\d+\] ?",  # the bracket is closed only, up to 0.7
    re.ASCII,
)
_RANK = re.compile(r"_DP(?P<rank>\d+)", re.ASCII)

_STATS = re.compile(r"(?:Engine (?P<engine>\d+): )?(?P<parts>Avg prompt throughput: .*)", re.ASCII)
_PART = re.compile(r"(?P<key>[A-Za-z ]+): (?P<value>\d+(?:\.\d+)?)(?P<percent>%?)(?: [a-z/]+)? ?\.?", re.ASCII)
_KV_USAGE = re.compile(r"[A-Z]+ KV cache usage", re.ASCII)

_CAPACITY = re.compile(r"[A-Z]+ KV cache size: (?P<tokens>[\d,]+) tokens", re.ASCII)
_BLOCKS = re.compile(r"# (?:GPU|cuda|cpu) blocks: (?P<blocks>\d+)", re.ASCII)  # the device of 0.7 to 0.10, lower case

_VERSION = re.compile(r"(?:vLLM API server|vLLM server|[ ▄█▀]+) version (?P<version>\d[\w.+]*)", re.ASCII)
_START = re.compile(
    r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[\w.+]+)\) with config: (?P<config>.*)", re.ASCII
)
_ARGUMENTS = re.compile(r"args: Namespace\(.*\bblock_size=(?P<block_size>\d+)", re.ASCII)
_NAME = re.compile(r"\b(?P<key>served_model_name|model)='?(?P<value>[\w./:@+-]{1,200})'?[,)]", re.ASCII)

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


def parse(line: str) -> Event | None:
    """Return what one line reports, None for the many that report nothing of ours."""
    text = _ANSI.sub("", line.rstrip("\r\n").rpartition("\r")[2])  # a progress bar may stand before a record
    head = _HEAD.match(text)
    if head is None:
        return None
    message = text[head.end() :]
    return _stats(message, head["stamp"]) or _capacity(message, head["process"] or "") or _setting(message)


def _stats(message: str, stamp: str) -> Stats | None:
    match = _STATS.match(message)
    if match is None:
        return None
    values: dict[str, float] = {}
    for attribute, value in _parts(match["parts"]):
        values.setdefault(attribute, value)
    return Stats(str(int(match["engine"] or 0)), stamp, values)


def _parts(text: str) -> Iterator[tuple[str, float]]:
    """Yield the parts that have a place in an EngineReading; others, and values that are no number, pass by."""
    for part in text.split(", "):
        match = _PART.fullmatch(part)
        if match is None:
            continue
        key, value = match["key"], float(match["value"])
        if match["percent"] and value <= 100:
            # V0 prints two devices, of which the second is the swap space: the first one counts.
            attribute = "kv_cache_usage_ratio" if _KV_USAGE.fullmatch(key) else RATIOS.get(key)
            value /= 100
        else:
            attribute = COUNTS.get(key)
        if attribute is not None:
            yield attribute, value


def _capacity(message: str, process: str) -> Capacity | None:
    rank = _RANK.search(process)
    engine = rank["rank"] if rank else "0"
    if match := _CAPACITY.match(message):
        return Capacity(engine, tokens=float(match["tokens"].replace(",", "")))
    if match := _BLOCKS.match(message):
        return Capacity(engine, blocks=float(match["blocks"]))
    return None


def _setting(message: str) -> Setting | None:
    if match := _VERSION.match(message):
        return Setting({"version": match["version"]})
    if match := _ARGUMENTS.match(message):
        return Setting({"block_size": match["block_size"]})
    if match := _START.match(message):
        return Setting({"version": match["version"], **_configuration(match["config"])}, restart=True)
    return None


def _configuration(config: str) -> dict[str, str]:
    """Read the listed keys out of a Python repr with nested parts: by name, since its commas separate nothing."""
    names: dict[str, str] = {}
    for match in _NAME.finditer(config):
        names.setdefault(match["key"], match["value"])
    settings: dict[str, str] = {}
    for match in _SETTING.finditer(config):
        settings.setdefault(SETTINGS[match["key"]], match["value"])
    model = names.get("served_model_name") or names.get("model")
    return settings if model is None else {"model": model, **settings}


VLLM = Dialect(
    "vllm",
    (b"throughput: ", b"KV cache size: ", b" blocks: ", b" version ", b"LLM engine (v", b"args: Namespace("),
    parse,
)
