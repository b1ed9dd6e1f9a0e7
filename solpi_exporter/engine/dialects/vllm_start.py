"""What vLLM tells at its start: version, model, settings, the size of its KV cache."""

import re

from solpi_exporter.engine.dialects.dialect import Capacity, Setting
from solpi_exporter.engine.dialects.vllm_head import Head
from solpi_exporter.engine.dialects.vllm_repr import parts

CAPACITY_FILES = frozenset(
    {"kv_cache_utils", "executor_base", "llm_engine", "gpu_executor", "distributed_gpu_executor", "loggers"}
)
SETTING_FILES = frozenset(
    {
        *("api_server", "api_utils", "utils", "launcher", "serve", "core", "llm_engine", "async_llm_engine"),
        *("cli_args", "startup", "config", "model", "scheduler", "vllm", "arg_utils"),
    }
)

_TOKENS = re.compile(r"[A-Z]+(?: \+ host)? KV cache size: (?P<tokens>[\d,]{1,20}) tokens", re.ASCII)
_BLOCKS = re.compile(r"# (?:GPU|cuda|cpu) blocks: (?P<blocks>\d{1,12})(?!\d)", re.ASCII)  # 0.7 to 0.10 in lower case
_LATE_BLOCKS = re.compile(
    r"Engine (?P<engine>\d{1,4}): vllm cache_config_info with initialization after num_gpu_blocks is: "
    r"(?P<blocks>\d{1,12})$",
    re.ASCII,
)
_CONCURRENCY = re.compile(
    r"Maximum concurrency for [\d,]{1,20} tokens per request: (?P<requests>\d{1,9}(?:\.\d{1,9})?)x", re.ASCII
)

_VERSION = re.compile(r"(?:vLLM API server|vLLM server|[ ▄█▀]+) version (?P<version>\d[\w.+]{0,40})", re.ASCII)
_START = re.compile(
    r"Initializing an? (?:V\d )?LLM engine (?:\(v(?P<version>[\w.+]{1,40})\) )?with config: (?P<config>.*)", re.ASCII
)
_ARGUMENTS = re.compile(r"(?:non-default )?args: (?:Namespace\(|\{)(?P<arguments>.*)")
_MODEL = re.compile(r"model='(?P<model>[ -&(-~]{1,200})'", re.ASCII)
_SERVED = re.compile(r", served_model_name=(?P<model>[\w./:@+-]{1,200}),", re.ASCII)
_CHUNKED = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(?P<tokens>\d{1,12})\.", re.ASCII)
_LENGTH = re.compile(r"Using max model len (?P<tokens>\d{1,12})$", re.ASCII)
_ASYNC = re.compile(r"Asynchronous scheduling is (?P<state>enabled|disabled)\.")
_EAGER = re.compile(r"Enforce eager set, |Cudagraph is disabled under eager mode")

# Settings that are published, by the names they have had: a label may hold what stands on these lists, no more.
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
ARGUMENTS = ("block_size", "max_num_seqs", "max_num_batched_tokens")
_SETTING = re.compile(rf"\b(?P<key>{'|'.join(SETTINGS)})=(?P<value>\w{{1,40}})\b", re.ASCII)
_ARGUMENT = re.compile(rf"'?(?P<key>{'|'.join(ARGUMENTS)})'?(?:=|: )(?P<value>\d{{1,12}})", re.ASCII)


def capacity(message: str, head: Head) -> Capacity | None:
    """Return what a line tells of the KV cache's size."""
    if match := _LATE_BLOCKS.match(message):
        return Capacity(str(int(match["engine"])), blocks=float(match["blocks"]))
    if head.rank is None:
        return None
    concurrency = _CONCURRENCY.search(message)
    requests = None if concurrency is None else float(concurrency["requests"])
    if match := _TOKENS.match(message):
        return Capacity(head.rank, tokens=float(match["tokens"].replace(",", "") or 0) or None, concurrency=requests)
    if match := _BLOCKS.match(message):
        return Capacity(head.rank, blocks=float(match["blocks"]))
    if concurrency is not None and concurrency.start() == 0:
        return Capacity(head.rank, concurrency=requests)
    return None


def setting(message: str, head: Head) -> Setting | None:
    """Return what a line tells of version, model and settings."""
    if match := _VERSION.match(message):
        return Setting({"version": match["version"]}, server=True)
    if match := _START.match(message):
        version = {"version": match["version"]} if match["version"] else {}
        return Setting({**version, **_configuration(match["config"])}, engine=head.rank)
    values = _arguments(message) or _remark(message)
    return Setting(values) if values else None


def _arguments(message: str) -> dict[str, str]:
    """Read the listed arguments, of which the rest may hold secrets."""
    match = _ARGUMENTS.match(message)
    found = () if match is None else map(_ARGUMENT.fullmatch, parts(match["arguments"]))
    return {argument["key"]: argument["value"] for argument in found if argument is not None}


def _remark(message: str) -> dict[str, str]:
    """Read the sentences that tell one thing each."""
    if match := _CHUNKED.match(message):
        return {"enable_chunked_prefill": "True", "max_num_batched_tokens": match["tokens"]}
    if match := _LENGTH.match(message):
        return {"max_seq_len": match["tokens"]}
    if match := _ASYNC.match(message):
        return {"async_scheduling": str(match["state"] == "enabled")}
    return {"enforce_eager": "True"} if _EAGER.match(message) else {}


def _configuration(config: str) -> dict[str, str]:
    """Read the listed keys out of a Python repr with nested parts: by name, since its commas separate nothing."""
    settings: dict[str, str] = {}
    if model := _SERVED.search(config) or _MODEL.match(config):
        settings["model"] = model["model"]
    for match in _SETTING.finditer(config):
        settings.setdefault(SETTINGS[match["key"]], match["value"])
    return settings
