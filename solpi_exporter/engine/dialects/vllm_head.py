"""The head that vLLM's logger writes before each line: which process, when, which file of its source.

Only what has such a head is the engine's own word. The file counts too: vLLM repeats the head on each line of a
message, so that a user's text in a message of another file may look like a report to the letter.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from solpi_exporter.engine.dialects.dialect import ANSI

_HEAD = re.compile(
    r"(?:\((?P<role>[A-Za-z]\w{0,63})(?: rank=\d{1,5})? pid=(?P<pid>\d{1,10})\) )?"  # every process from 0.10.1 on
    r"(?:\[[\w./:-]{1,64}\] ?)?"  # VLLM_LOGGING_PREFIX, which up to 0.30 stood here
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?(?:[\w.-]{1,64}/){0,16}(?P<file>[\w-]{1,64})\.(?:py|rs):\d{1,6}\] ?",  # one bracket only, up to 0.7
    re.ASCII,
)
_TORCH = re.compile(  # the C++ half of torch, whose head has a severity and the month first
    r"(?:\(\w{1,64} pid=\d{1,10}\) )?\[rank\d{1,5}\]:\[(?P<level>[EF])(?P<month>\d\d)(?P<day>\d\d) "
    r"(?P<time>\d\d:\d\d:\d\d)\.\d{1,12} (?P<file>\w{1,64})\.cpp:\d{1,6}\] ",
    re.ASCII,
)
_BAR = re.compile(r"[^\r\n\[]{0,200}\[\d\d:\d\d<[^\]\r\n]{1,40}\]")  # a progress bar, which ends without a newline
_NEXT = re.compile(  # of a record that another process has written into the same line
    r"(?:\(\w{1,64} (?:rank=\d{1,5} )?pid=\d{1,10}\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"\d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{1,300}:\d{1,6}\] ",
    re.ASCII,
)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)", re.ASCII)
_RANK = re.compile(r"_DP(\d{1,4})|^EngineCore_(\d{1,4})$", re.ASCII)  # the second one up to 0.10.1
_LOGGER = re.compile(r"vllm(?:\.\w{1,64}){1,16}", re.ASCII)

ERROR = "ERROR"
RAY_ENGINE = "DPEngineCoreActor"


class Head(NamedTuple):  # made for every line that may report something
    """Who says a line, and when; `file` is the module's name without its folders and ending."""

    file: str
    level: str
    stamp: str
    role: str = ""
    pid: int | None = None

    @property
    def rank(self) -> str | None:
        """The engine that the process belongs to, "0" where it is the only one; None for Ray's, which do not say."""
        if self.role == RAY_ENGINE:
            return None
        rank = _RANK.search(self.role)
        return str(int(rank[1] or rank[2])) if rank else "0"


def split(line: str) -> tuple[Head, str] | None:
    """Return a line's head and message, None for one without the engine's head."""
    text = line.rstrip("\r\n")
    if text.startswith("{"):
        return _structured(text)
    if "\x1b" in text:
        text = ANSI.sub("", text)
    return _split(text) or _split(_after_bars(text))


def _split(text: str) -> tuple[Head, str] | None:
    if head := _HEAD.match(text):
        role, pid, level, stamp, file = head.groups()
        after = _NEXT.search(text, head.end()) if text.find("] ", head.end()) >= 0 else None
        message = text[head.end() : after.start() if after else None]
        return Head(file, level, stamp, role or "", None if pid is None else int(pid)), message
    if head := _TORCH.match(text):
        stamp = f"{head['month']}-{head['day']} {head['time']}"
        return Head(head["file"], ERROR, stamp), text[head.end() :]
    return None


def _after_bars(text: str) -> str:
    """Return what stands behind progress bars: they go back to the line's start, or a record is glued to the last."""
    last = text.rpartition("\r")[2]
    bar = _BAR.match(last)
    return last[bar.end() :] if bar else last


def _structured(text: str) -> tuple[Head, str] | None:
    """Split a record of a logger that writes JSON: vLLM's own, or a usual one of a user's configuration."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    name, message = _text(record, "name", "logger"), _text(record, "message")
    if not _LOGGER.fullmatch(name):
        return None
    level = _text(record, "levelname", "level").upper()
    stamp = _ISO.match(_text(record, "asctime", "time", "timestamp"))
    pid = record.get("process")
    return (
        Head(
            file=name.rpartition(".")[2],
            level=level,
            stamp=f"{stamp[1]} {stamp[2]}" if stamp else "",
            role=_text(record, "processName", "vllm_process_name"),
            pid=pid if type(pid) is int and 0 < pid < 1 << 32 else None,
        ),
        message.partition("\n")[0],
    )


def _text(record: Mapping[str, Any], *keys: str) -> str:
    """Return the first of the values that is text."""
    return next((value for key in keys if isinstance(value := record.get(key), str)), "")
