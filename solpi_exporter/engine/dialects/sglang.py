"""SGLang's dialect: one line of its log to what it reports, for every release from 0.2 on.

A line is recognised by its logger's head, which names ranks and no level; its message is then read as `key: value`
parts by name, since they come, go and change place between releases. The last line of a traceback has no head.
"""

import re
from collections.abc import Iterator

from solpi_exporter.engine.dialects.dialect import (
    ANSI,
    NEWLINE,
    WRAPPED,
    Capacity,
    Dialect,
    Event,
    Preemption,
    Said,
    Setting,
    Stats,
    Trouble,
)

_HEAD = re.compile(
    r"\[(?:gpu_id=\d{1,4}"  # 0.2
    r"|(?:\d\d:\d\d:\d\d|(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{3})?)"  # 0.3 had no date yet
    r"(?P<ranks>(?: DP(?P<dp>\d{1,4}))?(?: PP(?P<pp>\d{1,4}))?(?: ATTN_CP(?P<cp>\d{1,4}))?(?: MOE_DP\d{1,4})?"
    r"(?: TP(?P<tp>\d{1,4}))?(?: EP\d{1,4})?))\] "
    r"(?:[A-Z]{4,8} \w{1,64}\.py:\d{1,6}: )?",  # before the logger is configured, and under sglang.Engine
    re.ASCII,
)

_BATCH = re.compile(
    r"(?:Decode|Prefill) batch(?:\(mixed #running-req: \d{1,9}\))?(?: \[\d{1,18}\])?[.,] (?P<parts>#.*)", re.ASCII
)
_VALUE = re.compile(r"(?P<number>-?\d{1,12}(?:\.\d{1,9})?)(?P<percent>%?)", re.ASCII)
_RETRACTION = re.compile(
    r"(?:Decode out of memory happened\. |KV cache pool is full\. Retract requests\. |Testing retraction\. )"
    r"#retracted_reqs: (?P<count>\d{1,9})(?:, |$)",
    re.ASCII,
)

_TOTAL = re.compile(r"max_total_num_tokens=(?P<tokens>\d{1,12})(?P<facts>, .*)", re.ASCII)
_ALLOCATED = re.compile(r"KV Cache is allocated\. (?:dtype: [\w.]{1,40}, )?#tokens: (?P<tokens>\d{1,12}),", re.ASCII)
_ARGUMENTS = re.compile(  # a dataclass up to 0.5, a dict after; of the rest, which may hold a key, little is read
    r"server_args=(?:ServerArgs\(model_path=|\{'model_path': )(?:'(?P<model>[ -&(-~]{1,200})')?(?P<rest>.*)", re.ASCII
)

COUNTS = {
    "#running-req": "running",
    "#queue-req": "waiting",
    "input throughput (token/s)": "prompt_tokens_per_second",
    "gen throughput (token/s)": "generation_tokens_per_second",
    "accept len": "acceptance_length",
}
RATIOS = {
    "token usage": "kv_cache_usage_ratio",
    "full token usage": "kv_cache_usage_ratio",  # hybrid models: of the layers that attend to everything
    "gpu token usage": "kv_cache_usage_ratio",  # HiSparse, beside the host's
    "cache hit rate": "prefix_hit_ratio",
    "accept rate": "acceptance_ratio",
}
FACTS = {
    "chunked_prefill_size": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "max_running_requests": "max_num_seqs",
    "context_len": "max_seq_len",
}
SETTINGS = {
    "tp_size": "tensor_parallel_size",
    "dp_size": "data_parallel_size",
    "kv_cache_dtype": "kv_cache_dtype",
}
_FACT = re.compile(rf", (?P<key>{'|'.join(FACTS)})=(?P<value>-?\d{{1,12}})(?=,|$)", re.ASCII)
_SETTING = re.compile(rf", '?(?P<key>{'|'.join(SETTINGS)})'?(?:=|: )'?(?P<value>\w{{1,40}})'?(?=[,)}}])", re.ASCII)

# What a process says of itself or of its child. "SIGQUIT received." comes after one of these, and is not another event.
SENTENCES = (
    (re.compile(r"Scheduler hit an exception: "), "engine_dead"),
    (re.compile(r"(?:TokenizerManager|DetokenizerManager|DataParallelController) hit an exception: "), "worker_died"),
    (re.compile(r"Received sigquit from a child proces"), "worker_died"),  # so spelled in 0.4
    (re.compile(r"Subprocess \S{1,64} \(pid=\d{1,10}\) crashed with exit code ", re.ASCII), "worker_died"),
    (re.compile(r"(?:Watchdog|\w{1,40} watchdog) timeout \(", re.ASCII), "step_timeout"),
)
# Last lines of tracebacks.
ERRORS = (
    (re.compile(r"torch\.(?:cuda\.)?OutOfMemoryError: CUDA out of memory"), "out_of_memory"),
    (re.compile(r"(?:RuntimeError|torch\.AcceleratorError): CUDA error:"), "cuda_error"),
)


def parse(line: str) -> Said | None:
    """Return what one line reports, None for the many that report nothing of ours."""
    text = ANSI.sub("", line).rstrip("\r\n")
    head = _HEAD.match(text)
    event = _trouble(text, ERRORS) if head is None else _event(text[head.end() :], head)
    return None if event is None else Said(event, "" if head is None else head["stamp"] or "")


def _event(message: str, head: re.Match[str]) -> Event | None:
    engine = str(int(head["dp"] or 0))
    if match := _BATCH.match(message):
        counted = {"preemptions": 0.0} if _tells_retractions(head) else {}
        return Stats(engine, dict(_parts(match["parts"])), counted, partial=True)
    if match := _RETRACTION.match(message):
        return Preemption(engine, float(match["count"])) if _tells_retractions(head) else None
    return _capacity(message, engine) or _setting(message) or _trouble(message, SENTENCES)


def _tells_retractions(head: re.Match[str]) -> bool:
    """Say whether this rank's retractions are counted: every rank of an engine prints each, and 0.2 prints no rank.

    Counted is TP0; with data-parallel attention, where ranks go on from one engine to the next, the one numbered as
    its engine, which is right for engines of one GPU.
    """
    first_stage = not int(head["pp"] or 0) and not int(head["cp"] or 0)
    return first_stage and head["ranks"] is not None and int(head["tp"] or 0) in (0, int(head["dp"] or 0))


def _parts(text: str) -> Iterator[tuple[str, float]]:
    """Yield the parts that have a place in an EngineReading; others, and values that cannot be true, pass by."""
    for part in text.rstrip(", ").split(", "):
        key, _, written = part.partition(": ")
        match = _VALUE.fullmatch(written)
        attribute = COUNTS.get(key) or RATIOS.get(key)
        if match is not None and attribute is not None:
            value = float(match["number"] + ("e-2" if match["percent"] else "")) + 0.0  # -0.00 is 0
            if value >= 0 and (key in COUNTS or value <= 1):
                yield attribute, value


def _capacity(message: str, engine: str) -> Capacity | None:
    if match := _TOTAL.match(message):
        facts = {FACTS[fact["key"]]: fact["value"] for fact in _FACT.finditer(match["facts"])}
        return Capacity(engine, tokens=float(match["tokens"]), facts=facts)
    match = _ALLOCATED.match(message)
    return None if match is None else Capacity(engine, tokens=float(match["tokens"]))


def _setting(message: str) -> Setting | None:
    match = _ARGUMENTS.match(message)
    if match is None:
        return None
    settings = {} if match["model"] is None else {"model": match["model"]}
    for setting in _SETTING.finditer(match["rest"]):
        settings.setdefault(SETTINGS[setting["key"]], setting["value"])
    return Setting(settings, server=True)


def _trouble(text: str, sentences: tuple[tuple[re.Pattern[str], str], ...]) -> Trouble | None:
    return next((Trouble(what) for sentence, what in sentences if sentence.match(text)), None)


SGLANG = Dialect(
    "sglang",
    NEWLINE,  # a traceback's last line has nothing of a logger's
    (
        *(b" batch", b"#retracted_reqs: ", b"max_total_num_tokens=", b"#tokens: ", b"server_args="),
        *(b" hit an exception: ", b"Received sigquit", b" crashed with exit code ", b"atchdog timeout ("),
        b"Error: CUDA ",
    ),
    re.compile(
        WRAPPED + rb"\[[^\]\n]{6,80}\] (?:[A-Z]{4,8} \w{1,64}\.py:\d{1,6}: )?(?:server_args=|max_total_num_tokens=)",
        re.MULTILINE,
    ),
    parse,
    (b"server_args=", b"max_total_num_tokens="),
)
