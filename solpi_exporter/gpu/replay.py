"""Plays a recording through the driver interface: the same calls, answered as an NVML of that instant did."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import fsum, inf
from typing import Any

from solpi_exporter.gpu.driver import GONE, NO_DATA, NOT_SUPPORTED, Device, GpuLost, Unavailable, XidEvent
from solpi_exporter.gpu.recording import Recording, Track, key_of

# Answers that are totals: a recording that begins again goes on from where they were.
TOTALS = {"nvmlDeviceGetTotalEnergyConsumption", *(f"field {number} 0" for number in (74, 76, 269, 270, 271))}


class ReplayDriver:
    """The recorded GPUs; `position` says which second of the recording is now, `rounds` how often it has been played.

    Means are taken over what was recorded since they were asked last, and sample buffers hold what has been recorded,
    so that a recording may be polled at any distance.
    """

    epoch = 1

    def __init__(
        self, recording: Recording, position: Callable[[], float], rounds: Callable[[], int] = lambda: 0
    ) -> None:
        self._recording = recording
        self._position = position
        self._rounds = rounds
        self._asked: dict[Device, float] = {}

    def connect(self) -> None:
        """Nothing to attach to."""

    def query(self, call: str, *args: int) -> Any:
        """Answer a system call."""
        return self._answer(key_of(None, call, *args))

    def ask(self, device: Device, call: str, *args: int) -> Any:
        """Answer for a recorded device."""
        return self._answer(key_of(device, call, *args))

    def fields(self, device: Device, wanted: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], float]:
        """Answer the field values that were recorded."""
        values: dict[tuple[int, int], float] = {}
        for one in wanted:
            with suppress(Unavailable):
                values[one] = self._answer(key_of(device, "field", *one))
        return values

    def activity(self, device: Device, wanted: Sequence[int]) -> Mapping[int, float]:
        """Answer with the means since the last call, as GPM does."""
        now = self._position()
        since, self._asked[device] = self._asked.get(device), now
        means: dict[int, float] = {}
        refused: list[Unavailable] = []
        for one in wanted:
            key = key_of(device, "gpm", one)
            try:
                self._answer(key)
                if since is not None:
                    means[one] = _mean(self._track(key), since, now)
            except Unavailable as error:
                refused.append(error)
        if len(refused) == len(wanted) and any(error.code != NO_DATA for error in refused):
            raise refused[0]
        return means

    def samples(self, device: Device, kind: int, since: int) -> list[tuple[int, int]]:
        """Answer with the part of the buffer that is newer than `since`; its clock runs on from round to round."""
        key = key_of(device, "samples", kind)
        self._answer(key)
        rounds = self._rounds()
        before = self._buffer(key, inf, rounds - 1) if rounds else []
        now = self._buffer(key, self._position(), rounds)
        end = before[-1][0] if before else since  # a recording begins with what lay in the buffer
        return [*(one for one in before if one[0] > since), *(one for one in now if one[0] > max(since, end))]

    def wait_xid(self, seconds: float) -> XidEvent | None:
        """Nothing happens: no recording holds events."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""

    def _buffer(self, key: str, until: float, rounds: int) -> list[tuple[int, int]]:
        shift = round(rounds * (self._recording.end - self._recording.start) * 1e6)
        reads = (entries for entries in self._track(key).between(-inf, until) if not _is_error(entries))
        return [(stamp + shift, value) for entries in reads for stamp, value in entries]

    def _track(self, key: str) -> Track:
        if key not in self._recording.tracks:
            raise Unavailable(f"{key}: not in the recording", NOT_SUPPORTED)
        return self._recording.tracks[key]

    def _answer(self, key: str) -> Any:
        """Return what was answered last; raise what was recorded as an error."""
        track = self._track(key)
        answer = track.at(self._position())
        if _is_error(answer):
            message, code = f"{key}: NVML error {answer['error']}, as recorded", answer["error"]
            raise GpuLost(message, code) if code in GONE else Unavailable(message, code)
        if key.partition(" ")[2] in TOTALS:
            answer += self._rounds() * _gained(track)
        return answer


def _is_error(answer: Any) -> bool:
    return isinstance(answer, dict) and "error" in answer


def _numbers(answers: Sequence[Any]) -> list[float]:
    return [answer for answer in answers if isinstance(answer, int | float)]


def _mean(track: Track, since: float, now: float) -> float:
    values = _numbers(track.between(since, now))
    return fsum(values) / len(values)


def _gained(track: Track) -> float:
    values = _numbers(track.answers)
    return max(0.0, values[-1] - values[0])
