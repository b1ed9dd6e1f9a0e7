"""What vLLM's KV connectors have moved: the line `KV Transfer metrics:` of every connector whose keys are known.

Its values are numbers, or a Python dict of numbers for each of several connectors; its keys hold blanks, brackets and
tuples.
"""

import re
from collections.abc import Iterator, Mapping

from solpi_exporter.engine.dialects.dialect import Transfer
from solpi_exporter.engine.dialects.vllm_repr import parts

FILES = frozenset({"metrics"})

_LINE = re.compile(r"KV Transfer metrics: (?P<parts>.{1,20000})")
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,18})?(?:e[+-]?\d{1,2})?", re.ASCII)
_MEBIBYTE = 1 << 20

# Where a release prints a quantity under its old and its new name, the new one, which stands first here, is taken.
MOVED = {
    "vllm:kv_offload_store_bytes": "stored_bytes",
    "vllm:kv_offload_store_time": "stored_seconds",
    "vllm:kv_offload_load_bytes": "loaded_bytes",
    "vllm:kv_offload_load_time": "loaded_seconds",
    "vllm:kv_offload_total_bytes:('GPU_to_CPU',)": "stored_bytes",
    "vllm:kv_offload_total_time:('GPU_to_CPU',)": "stored_seconds",
    "vllm:kv_offload_total_bytes:('CPU_to_GPU',)": "loaded_bytes",
    "vllm:kv_offload_total_time:('CPU_to_GPU',)": "loaded_seconds",
    "GPU_to_CPU_total_bytes": "stored_bytes",
    "GPU_to_CPU_total_time": "stored_seconds",
    "CPU_to_GPU_total_bytes": "loaded_bytes",
    "CPU_to_GPU_total_time": "loaded_seconds",
    "Num failed transfers": "failed_transfers",
}
USAGE = "vllm:kv_offload_cpu_cache_usage_perc"
# NIXL prints means; what was moved is their product with the number of transfers.
TRANSFERS = "Num successful transfers"
MEANS = {
    "Avg MB per transfer": ("received_bytes", _MEBIBYTE),
    "Avg xfer time (ms)": ("received_seconds", 1e-3),
}


def parse(message: str) -> Transfer | None:
    """Return what the line reports; what no connector is known to print passes by."""
    match = _LINE.match(message)
    if match is None:
        return None
    numbers = dict(_numbers(match["parts"]))
    usage = numbers.get(USAGE, 2.0)
    return Transfer("", _moved(numbers), {"offload_usage_ratio": usage} if usage <= 1 else {})


def _moved(numbers: Mapping[str, float]) -> dict[str, float]:
    moved: dict[str, float] = {}
    for key, attribute in MOVED.items():
        if key in numbers:
            moved.setdefault(attribute, numbers[key])
    for key, (attribute, unit) in MEANS.items():
        if key in numbers and TRANSFERS in numbers:
            moved[attribute] = numbers[TRANSFERS] * numbers[key] * unit
    return moved


def _numbers(text: str) -> Iterator[tuple[str, float]]:
    """Yield keys and numbers, those of a connector's dict as well."""
    for part in parts(text):
        key, _, value = part.partition("=")
        if value.startswith("{") and value.endswith("}"):
            yield from _entries(value[1:-1])
        elif _NUMBER.fullmatch(value):
            yield key, float(value)


def _entries(text: str) -> Iterator[tuple[str, float]]:
    for part in parts(text):
        key, _, value = part.rpartition(": ")
        if _NUMBER.fullmatch(value):
            yield key[1:-1], float(value)
