"""What NVML answered over a while, as a file: made by `solpi-exporter record`, played by `gpu/replay.py`.

A file is JSON: {"format": 1, "frames": [{"t": seconds, "answers": {"0 nvmlDeviceGetPowerUsage": 80145, ...}}, ...]}. A
frame holds what has changed since the one before, and every GPM metric. A key is the device ("0", "0/1" for the second
MIG instance, "-" for none), then the call and its arguments; field values, GPM metrics and sample buffers go by
`field ID SCOPE`, `gpm ID` and `samples KIND`. An answer that was an error is {"error": NVML's code}; what GPM's first
call leaves open is the error NO_DATA.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from solpi_exporter.gpu.driver import Device

FORMAT = 1
LATEST = 1e12  # seconds

Answers = Mapping[str, Any]
Frame = tuple[float, Answers]


class NotARecording(Exception):
    """A file cannot be played; the message is one line and says why."""


def key_of(device: Device | None, what: str, *args: int) -> str:
    """Return the key of an answer."""
    place = () if device is None else (device.gpu,) if device.instance is None else (device.gpu, device.instance)
    return " ".join(["/".join(map(str, place)) or "-", what, *map(str, args)])


@dataclass(frozen=True, slots=True)
class Track:
    """One key's answers in the order of time."""

    times: tuple[float, ...]
    answers: tuple[Any, ...]

    def at(self, time: float) -> Any:
        """Return the last answer that is not in the future; before the first one, the first."""
        return self.answers[max(0, bisect_right(self.times, time) - 1)]

    def between(self, start: float, end: float) -> tuple[Any, ...]:
        """Return the answers of (start, end], at least the one that holds at the end."""
        first, last = bisect_right(self.times, start), bisect_right(self.times, end)
        return self.answers[first:last] or (self.at(end),)


@dataclass(frozen=True, slots=True)
class Recording:
    """A track a key, and the seconds at which it begins and ends."""

    start: float
    end: float
    tracks: Mapping[str, Track]

    @property
    def answers(self) -> int:
        """How many answers there are in all."""
        return sum(len(track.times) for track in self.tracks.values())


def recording_of(frames: Iterable[Frame]) -> Recording:
    """Return frames in the order of time as a recording."""
    columns: dict[str, tuple[list[float], list[Any]]] = {}
    times: list[float] = []
    for time, answers in frames:
        times.append(time)
        for key, answer in answers.items():
            column = columns.setdefault(key, ([], []))
            column[0].append(time)
            column[1].append(answer)
    tracks = {key: Track(tuple(at), tuple(answers)) for key, (at, answers) in columns.items()}
    return Recording(min(times, default=0.0), max(times, default=0.0), tracks)


def load(text: str) -> Recording:
    """Return a file's recording; raise NotARecording."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise NotARecording(f"not JSON: {error}") from error
    except RecursionError as error:
        raise NotARecording("not a recording: nested too deeply") from error
    match content:
        case {"format": 1, "frames": [*frames]} if frames:
            return recording_of(_frames(frames))
        case {"format": other} if other != FORMAT:
            raise NotARecording(f"format {other!r}: expected {FORMAT}, it is of another release")
    raise NotARecording('expected {"format": 1, "frames": [...]}')


def dump(frames: Iterable[Frame]) -> str:
    """Return the text of a file, one frame a line, each with what differs from the one before.

    GPM's metrics stand in every frame: they are means over the time since the frame before.
    """
    lines: list[str] = []
    last: dict[str, Any] = {}
    for time, answers in frames:
        changed = {
            key: answer
            for key, answer in answers.items()
            if key not in last or last[key] != answer or key.split(" ")[1] == "gpm"
        }
        last.update(changed)
        lines.append(json.dumps({"t": round(time, 3), "answers": changed}, separators=(",", ":")))
    return f'{{"format": {FORMAT}, "frames": [\n' + ",\n".join(lines) + "\n]}\n"


def _frames(frames: Iterable[Any]) -> Iterator[Frame]:
    last = -LATEST
    for frame in frames:
        match frame:
            case {"t": (int() | float()) as time, "answers": dict(answers)} if last <= time <= LATEST:
                yield time, answers
                last = time
            case {"t": int() | float(), "answers": {}}:
                raise NotARecording("a frame is of before the one that it follows, or of no time at all")
            case _:
                raise NotARecording('a frame is {"t": seconds, "answers": {...}}')
