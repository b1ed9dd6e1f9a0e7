"""What vLLM says periodically: the state line of every release, and the lines that accompany it.

Each is read as `key: value` parts by name, in any order, since parts come and go between releases.
"""

import re
from collections.abc import Iterator, Mapping

from solpi_exporter.engine.dialects.dialect import ALL, Iteration, Stats
from solpi_exporter.engine.dialects.vllm_head import Head

FILES = frozenset({"loggers", "metrics", "llm_engine", "log_stats", "core"})

_STATS = re.compile(
    r"(?:Engine (?P<engine>\d{1,4}): |(?P<all>\d{1,4} Engines Aggregated: ))?(?P<parts>Avg prompt throughput: .*)",
    re.ASCII,
)
_RUST = "Avg prompt tput: "
_FIRST = re.compile(r"Running: \d{1,9} reqs, Waiting: \d{1,9} reqs ?$", re.ASCII)  # all that 0.7.0 says
_UPPER_CASE = re.compile(r"RUNNING: (\d{1,9}) \| WAITING: (\d{1,9})$", re.ASCII)  # 0.6
_CACHES = re.compile(r"Prefix cache hit rate: GPU: (\d{1,3}\.\d{1,4})%, CPU: (\d{1,3}\.\d{1,4})%$", re.ASCII)  # V0
_SPECULATION = re.compile(r"(?:SpecDecoding|Speculative) metrics: (?P<parts>.*)")
_ITERATION = re.compile(
    r"(?:Engine (?P<engine>\d{1,4}): )?Iteration\(\d{1,12}\): [\w ,]{1,200}iteration elapsed time: "
    r"(?P<milliseconds>\d{1,9}(?:\.\d{1,9})?) ms(?P<dummy> \(dummy\))?(?:, (?P<parts>.*))?",
    re.ASCII,
)

_PART = re.compile(  # a whole one, between commas
    r"(?:^|(?<=, ))([A-Za-z -]+): (-?\d{1,12}(?:\.\d{1,9})?)(%?)(?: [a-z/]+)? ?\.?(?=, |$)", re.ASCII
)
_KV_USAGE = re.compile(r"[A-Z]+ KV cache (?:usage|used)", re.ASCII)
_PREEMPTED = re.compile(r", Preemptions: (\d{1,9})(?=, |$)", re.ASCII)
_FETCH = re.compile(
    r"KV fetch: (\d{1,9}) waiting to start, (\d{1,9}) in progress, (\d{1,9}) completed waiting", re.ASCII
)

COUNTS = {
    "Avg prompt throughput": "prompt_tokens_per_second",
    "Avg prompt tput": "prompt_tokens_per_second",
    "Avg generation throughput": "generation_tokens_per_second",
    "Avg generation tput": "generation_tokens_per_second",
    "Running": "running",
    "Reqs Running": "running",
    "Waiting": "waiting",
    "Pending": "waiting",
    "Deferred": "deferred",
    "Swapped": "swapped",
    "Corrupted": "corrupted",
    "Mean acceptance length": "acceptance_length",
}
RATIOS = {
    "Prefix cache hit rate": "prefix_hit_ratio",
    "External prefix cache hit rate": "external_hit_ratio",
    "MM cache hit rate": "multimodal_hit_ratio",
    "Draft acceptance rate": "acceptance_ratio",
    "Avg Draft acceptance rate": "acceptance_ratio",
}
FRACTIONS = {"Draft acceptance rate": "acceptance_ratio"}  # V0 prints it from 0 to 1


def parse(message: str, head: Head) -> Stats | Iteration | None:
    """Return what a periodic line reports."""
    if match := _STATS.match(message):
        engine, several, parts = match.groups()
        return Stats(ALL if several else (engine or "").lstrip("0") or "0", Parts(parts), _counted(parts))
    if message.startswith(_RUST):
        return Stats("", Parts(message), _counted(message))
    return _companion(message) or _early(message) or _iteration(message, head)


def _counted(parts: str) -> dict[str, float]:
    """Return what a report adds to counters: V0's, which tells of one preemption in 50, that there were 0 at least."""
    if ", Pending: " in parts:
        return {"preemptions_at_least": 0.0}
    preempted = _PREEMPTED.search(parts) if ", Preemptions: " in parts else None
    return {} if preempted is None else {"preemptions": float(preempted[1])}


def _companion(message: str) -> Stats | None:
    """Return what a line adds that follows an engine's state line, without its name."""
    if match := _SPECULATION.match(message):
        return Stats("", Parts(match["parts"]), partial=True)
    if match := _CACHES.match(message):
        hits = {"prefix_hit_ratio": float(match[1] + "e-2"), "cpu_hit_ratio": float(match[2] + "e-2")}
        return Stats("", {name: hit for name, hit in hits.items() if hit <= 1}, partial=True)
    return None


def _early(message: str) -> Stats | None:
    """Return the little that V1 said before 0.7.3."""
    if match := _UPPER_CASE.match(message):
        return Stats("0", {"running": float(match[1]), "waiting": float(match[2])})
    return Stats("0", Parts(message.rstrip())) if _FIRST.match(message) else None


def _iteration(message: str, head: Head) -> Iteration | None:
    match = _ITERATION.match(message)
    if match is None:
        return None
    engine = (head.rank or "") if match["engine"] is None else str(int(match["engine"]))
    seconds = None if match["dummy"] else float(match["milliseconds"] + "e-3")  # a dummy step keeps others in step
    return Iteration(engine, seconds, Parts(match["parts"] or ""))


class Parts(Mapping[str, float]):
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
            values: dict[str, float] = {}
            for attribute, value in (*_parts(self._text), *_fetches(self._text)):
                values.setdefault(attribute, value)
            self._values = values
        return self._values


def _parts(text: str) -> Iterator[tuple[str, float]]:
    """Yield the parts that have a place in an EngineReading; others, and values that cannot be true, pass by."""
    for key, number, percent in _PART.findall(text):
        attribute: str | None
        if percent and _KV_USAGE.fullmatch(key):
            is_swap = key.startswith("CPU") and "GPU KV cache" in text  # V0 prints two devices
            attribute = "swap_usage_ratio" if is_swap else "kv_cache_usage_ratio"
        else:
            attribute = RATIOS.get(key) if percent else COUNTS.get(key) or FRACTIONS.get(key)
        value = float(number + "e-2" if percent else number) + 0.0  # -0.0, which is printed at times, is 0
        if key == "Corrupted" and not value:
            continue  # which is all that V1 can say: it resets its count before it prints it
        is_share = percent or key in FRACTIONS
        if attribute is not None and value >= 0 and not (is_share and value > 1):
            yield attribute, value


def _fetches(text: str) -> Iterator[tuple[str, float]]:
    """Yield the one part that has commas of its own."""
    if match := _FETCH.search(text):
        yield from zip(
            ("fetch_waiting", "fetch_in_progress", "fetch_completed"), map(float, match.groups()), strict=True
        )
