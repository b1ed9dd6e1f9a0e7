"""Takes an engine's lines out of the records that a container runtime or the journal keeps them in.

Stands between the follower, which yields blocks of complete raw lines, and the dialect, whose prefilter it applies to
the raw block where that is as good: then only the few records that may report something are decoded. Prefixes of lines
are the matter of `prefixes`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from solpi_exporter.engine.prefixes import unix_time
from solpi_exporter.follow.message import message

ENVELOPES = ("auto", "none", "docker", "cri", "journald")
MAX_BYTES = 1 << 20  # of one line that came in pieces: a longer one is passed over

Origin = tuple[str, str]  # a log and a stream
Candidates = Callable[[bytes], Iterator[bytes]]

FIRST_BYTES = frozenset(b"%c" % byte for byte in b"{0123456789")  # of any record
_STREAMS = ("stdout", "stderr")
_CRI = re.compile(
    rb"(?P<time>[\d:.TZ+-]{20,40}) (?P<stream>stdout|stderr) (?P<tag>[FP])(?::[^ ]{0,200})?(?: (?P<text>.*))?",
    re.DOTALL,
)
_MICROSECONDS = re.compile(r"\d{1,17}", re.ASCII)
# As Docker writes it. A user's quotes are escaped, so a user's text cannot hold this; a backslash before it would make
# the newline a user's backslash and n.
_DOCKER_END = b'\\n","stream":"'


class Line(NamedTuple):  # made for every line that may report something
    """One line of the engine, without its newline. `time` is that of the envelope (Unix), None where it has none."""

    text: bytes
    time: float | None


class _Piece(NamedTuple):
    """What one record holds: a line, or a part of one whose end is in a later record of the same stream."""

    text: bytes
    ended: bool
    stream: str
    time: str | float


@dataclass(frozen=True, slots=True)
class _Format:
    """How one envelope is read; `are_whole` says whether surely no record of a block holds a mere part of a line."""

    read: Callable[[bytes], _Piece | None]
    are_whole: Callable[[bytes], bool]


class Unwrapper:
    """Takes the lines out of the blocks of one server's log.

    In a block of an envelope, a line that is no such record is passed over. The start of a line whose end has not come
    yet is kept in memory, by log and stream. Of those that a predecessor had there, `unfinished`, the rest is passed
    over: it is no line, though it may look like one.
    """

    def __init__(self, envelope: str = "auto", unfinished: Iterable[Origin] = ()) -> None:
        self._envelope = envelope
        self._unfinished: dict[str, dict[str, bytearray]] = {}
        self._cut = set(unfinished)
        self._forms: dict[str, _Format] = {}

    @property
    def unfinished(self) -> list[Origin]:
        """Log and stream of every line of which the start has come, and not the end."""
        here = ((name, stream) for name, streams in self._unfinished.items() for stream in streams)
        return sorted({*self._cut, *here})

    def pass_over(self, name: str, unfinished: Iterable[Origin]) -> None:
        """Let the rest of lines of a log be passed over, and of no others of it."""
        self._cut = {*(one for one in self._cut if one[0] != name), *unfinished}

    def lines(self, data: bytes, name: str, candidates: Candidates) -> Iterator[Line]:
        """Yield those lines of a block of complete raw lines that may report something. To be read to its end.

        `name` is the log that all of the block is of. What `candidates` looks for must read the same inside JSON text:
        ASCII without quotes (but a first one), backslashes, and `<>&`.
        """
        form = self._form(data, name)
        if form is None:
            for line in candidates(data):
                yield Line(line, None)
            return
        is_in_pieces = name in self._unfinished or any(log == name for log, _ in self._cut)
        is_fast = not is_in_pieces and form.are_whole(data)
        records = candidates(data) if is_fast else data.split(b"\n")
        for piece in filter(None, map(form.read, records)):
            if text := self._join(piece, name):
                yield from (Line(one, _seconds(piece.time)) for one in candidates(text + b"\n"))

    def _form(self, data: bytes, name: str) -> _Format | None:
        """Return the envelope of a block; one whose first line is damaged is in that of the blocks before."""
        if self._envelope != "auto":
            return FORMATS.get(self._envelope)
        form = _recognised(data)
        if form is None and name in self._forms:
            last = data[data.rfind(b"\n", 0, -1) + 1 : -1]
            form = None if self._forms[name].read(last) is None else self._forms[name]
        if form is not None:
            self._forms[name] = form
        return form

    def _join(self, piece: _Piece, name: str) -> bytes | None:
        """Return the line that a piece ends; None for a piece that ends none, or one that is too long or cut."""
        if (name, piece.stream) in self._cut:
            self._cut -= {(name, piece.stream)} if piece.ended else set()
            return None
        streams = self._unfinished.setdefault(name, {})
        text = streams.setdefault(piece.stream, bytearray())
        text += piece.text[: MAX_BYTES + 1 - len(text)]  # the one byte more tells that it is too long
        if not piece.ended:
            return None
        del streams[piece.stream]
        if not streams:
            del self._unfinished[name]
        return bytes(text).replace(b"\n", b" ") if len(text) <= MAX_BYTES else None


def _recognised(data: bytes) -> _Format | None:
    """Return the envelope that a block's first line is in, None for a plain one."""
    if data[:1] not in FIRST_BYTES:
        return None
    first = data[: data.find(b"\n")]
    return next((form for form in FORMATS.values() if form.read(first) is not None), None)


def _seconds(time: str | float) -> float | None:
    return unix_time(time) if isinstance(time, str) else time


def _docker(line: bytes) -> _Piece | None:
    record = _object(line)
    log, stream, time = record.get("log"), record.get("stream"), record.get("time")
    if not isinstance(log, str) or not isinstance(time, str) or stream not in _STREAMS:
        return None
    return _Piece(_encode(log.removesuffix("\n")), log.endswith("\n"), stream, time)


def _docker_whole(data: bytes) -> bool:
    """Whether each line has exactly one end of an ended record: other orders and spacings are read the slow way."""
    _, *ends = data.split(_DOCKER_END)
    if b"\\" + _DOCKER_END in data or len(ends) != data.count(b"\n"):
        return False
    return all(b"\n" in end for end in ends)  # so many newlines, and one at least behind each


def _cri(line: bytes) -> _Piece | None:
    match = _CRI.fullmatch(line)
    if match is None:
        return None
    return _Piece(match["text"] or b"", match["tag"] == b"F", match["stream"].decode(), match["time"].decode())


def _cri_whole(data: bytes) -> bool:
    return b" stdout P" not in data and b" stderr P" not in data


def _journald(line: bytes) -> _Piece | None:
    entry = _object(line)
    time = entry.get("__REALTIME_TIMESTAMP")
    if not isinstance(time, str) or _MICROSECONDS.fullmatch(time) is None:
        return None
    return _Piece(message(entry.get("MESSAGE")), True, "", int(time) / 1e6)


def _journald_whole(data: bytes) -> bool:
    """No: in a message that is an array of bytes, nothing can be looked for."""
    return False


def _object(line: bytes) -> Mapping[str, Any]:
    """Return a line's JSON object, an empty one for any other line."""
    if not line.startswith(b"{"):
        return {}
    try:
        value = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _encode(text: str) -> bytes:
    return text.encode(errors="replace")  # JSON may hold half a surrogate pair


FORMATS: Mapping[str, _Format] = {
    "docker": _Format(_docker, _docker_whole),
    "cri": _Format(_cri, _cri_whole),
    "journald": _Format(_journald, _journald_whole),
}
