"""TensorRT-LLM's dialect: one line of its log to what it reports.

The PyTorch executor tells of each step where `print_iter_log` is set, the C++ runtime (also under Triton) as JSON.
Both are read by name, since parts change place between releases. Only rank 0 speaks for the engine.
"""

import re
from collections.abc import Iterator, Mapping

from solpi_exporter.engine.dialects.dialect import ANSI, WRAPPED, Dialect, Iteration, Said, Stats

ENGINE = "0"

_HEAD = re.compile(
    r"\[(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4})-(?P<time>\d\d:\d\d:\d\d)\] \[TRT-LLM\] "
    r"(?:\[RANK (?P<early>\d{1,6})\] )?\[I\] (?:\[\w{1,40}\])?(?:\[RANK (?P<late>\d{1,6})\])? ?",
    re.ASCII,
)
_STEP = re.compile(r"iter = \d{1,18}, (?P<parts>.*)", re.ASCII)
_PART = re.compile(r"(?P<key>\w{1,40})(?: =|:) (?P<value>\S{1,40})", re.ASCII)
_VALUE = re.compile(r"(?P<number>-?\d{1,12}(?:\.\d{1,20})?(?:e-\d{1,3})?)(?P<unit>|m?s)", re.ASCII)
STEP_TIMES = ("host_step_time", "elapsed_time")  # the second one in 2025
PER_SECOND = {"s": 1, "ms": 1000}

_RUNTIME = re.compile(
    r"(?:I(?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)\.\d{6} {1,7}\d{1,10} \w{1,40}\.cc:\d{1,6}\] "
    r"|\[TensorRT-LLM\]\[INFO\] )"  # outside Triton
    r"\{(?P<pairs>\"Active Request Count\":.*)\}",
    re.ASCII,
)
_PAIR = re.compile(r'"(?P<key>[\w ]{1,40})":(?P<value>\d{1,12})(?=,|$)', re.ASCII)


def parse(line: str) -> Said | None:
    """Return what one line reports, None for the many that report nothing of ours."""
    text = ANSI.sub("", line).rstrip("\r\n")
    if head := _HEAD.match(text):
        step = _step(text[head.end() :], head)
        return None if step is None else Said(step, f"{head['year']}-{head['month']}-{head['day']} {head['time']}")
    if head := _RUNTIME.fullmatch(text):
        stamp = f"{head['month']}-{head['day']} {head['time']}" if head["time"] else ""
        return Said(Stats(ENGINE, dict(_state(head["pairs"]))), stamp)
    return None


def _step(message: str, head: re.Match[str]) -> Iteration | None:
    match = _STEP.match(message)
    if match is None:
        return None
    parts = dict(_parts(match["parts"]))
    ranks = (head["early"], head["late"], parts.get("global_rank"), parts.get("rank"))
    if any(rank is not None and rank != "0" for rank in ranks):
        return None
    values = dict(_values(parts))
    is_idle = values.get("running") == 0  # then it is the time for which there was nothing to do
    return Iteration(ENGINE, None if is_idle else _seconds(parts), values)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each part; `states`, the last one, is a dict of its own."""
    for part in text.partition(", states = ")[0].split(", "):
        if match := _PART.fullmatch(part):
            yield match["key"], match["value"]


def _seconds(parts: Mapping[str, str]) -> float | None:
    for name in STEP_TIMES:
        match = _VALUE.fullmatch(parts.get(name, ""))
        if match is not None and match["unit"]:
            seconds = float(match["number"]) / PER_SECOND[match["unit"]]
            return seconds if seconds >= 0 else None
    return None


def _values(parts: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """Yield what a step says of the engine's state; `N/A`, and what cannot be true, passes by."""
    running = _plain(parts.get("num_scheduled_requests", ""))
    usage = _plain(parts.get("kv_cache_util", ""))
    if running is not None:
        yield "running", running
    if usage is not None and usage <= 1:
        yield "kv_cache_usage_ratio", usage


def _plain(text: str) -> float | None:
    match = _VALUE.fullmatch(text)
    value = -1.0 if match is None or match["unit"] else float(match["number"])
    return value + 0.0 if value >= 0 else None


def _state(pairs: str) -> Iterator[tuple[str, float]]:
    """Yield the runtime's state: the requests in its last step, as the executor counts them, not all it has taken."""
    numbers = {match["key"]: float(match["value"]) for match in _PAIR.finditer(pairs)}
    running, used, size = map(numbers.get, ("Scheduled Requests", "Used KV cache blocks", "Max KV cache blocks"))
    if running is not None:
        yield "running", running
    if used is not None and size and used <= size:
        yield "kv_cache_usage_ratio", used / size


TENSORRT_LLM = Dialect(
    "tensorrt-llm",
    b"]",
    (b"iter = ", b"Active Request Count"),
    re.compile(WRAPPED + rb"\[TensorRT-LLM\] TensorRT[- ]LLM version: ", re.MULTILINE),
    parse,
    (b" version: ",),
)
