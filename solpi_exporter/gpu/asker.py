"""Asks one device for many quantities at the least cost: each call once, all field values in one, all of GPM in one.

What a device has refused is left alone for as long as asking again is of no use: a refusal may cost a millisecond.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import Any, TypeVar

from solpi_exporter.gpu.driver import NO_PERMISSION, Device, Driver, Unavailable
from solpi_exporter.gpu.origins import Activity, Call, FieldValue, Origin

Kind = TypeVar("Kind", Call, FieldValue, Activity)
Kinds = tuple[tuple[Call, ...], tuple[FieldValue, ...], tuple[Activity, ...]]

RETRY_SECONDS = 60.0  # for what is not permitted, which may change, and for field values without an answer


@dataclass(slots=True)
class Asker:
    """One device's refusals.

    `has_gpm` is None until GPM has answered or has been refused for good. Of what was asked last, `has_means` says that
    GPM was asked with success, and `is_mute` that nothing was answered, though not all of it has been refused for good.
    """

    driver: Driver
    has_gpm: bool | None = None
    has_means: bool = False
    is_mute: bool = False
    _silent_until: dict[Origin, float] = field(default_factory=dict)

    def answers(self, device: Device, origins: Iterable[Origin], now: float) -> dict[Origin, Any]:
        """Return what the device answers at `now` (monotonic seconds); raise GpuLost or DriverFailed."""
        calls, fields, activities = _by_kind(tuple(origins))
        answers: dict[Origin, Any] = {}
        self.has_means = False
        for call in self._answering(calls, now):
            self._call(device, call, now, answers)
        if asked := self._answering(fields, now):
            self._fields(device, asked, now, answers)
        if means := self._answering(activities, now):
            self._activities(device, means, now, answers)
        self.is_mute = not answers and (any(map(self.may_answer, calls)) or any(map(self.may_answer, fields)))
        return answers

    def may_answer(self, origin: Origin) -> bool:
        """Whether it has not been refused for good."""
        return self._silent_until.get(origin, 0.0) < inf

    def _answering(self, origins: Sequence[Kind], now: float) -> Sequence[Kind]:
        """Return those that have not been refused for longer than now."""
        if not self._silent_until:
            return origins
        return [origin for origin in origins if now >= self._silent_until.get(origin, 0.0)]

    def _call(self, device: Device, call: Call, now: float, answers: dict[Origin, Any]) -> None:
        try:
            answers[call] = self.driver.ask(device, call.name, *call.args)
        except Unavailable as error:
            self._refused(call, error, now)

    def _fields(self, device: Device, fields: Sequence[FieldValue], now: float, answers: dict[Origin, Any]) -> None:
        try:
            values = self.driver.fields(device, [(one.id, one.scope) for one in fields])
        except Unavailable as error:
            for one in fields:
                self._refused(one, error, now)
            return
        for one in fields:
            if (one.id, one.scope) in values:
                answers[one] = values[one.id, one.scope]
            else:
                self._silent_until[one] = now + RETRY_SECONDS

    def _activities(self, device: Device, wanted: Sequence[Activity], now: float, answers: dict[Origin, Any]) -> None:
        try:
            means = self.driver.activity(device, [one.id for one in wanted])
        except Unavailable as error:
            if self.has_gpm is None and (error.lasting or error.code == NO_PERMISSION):
                self.has_gpm = False
            for one in wanted:
                self._refused(one, error, now)
            return
        self.has_gpm = self.has_means = True
        answers.update({one: means[one.id] for one in wanted if one.id in means})

    def _refused(self, origin: Origin, error: Unavailable, now: float) -> None:
        if error.lasting:
            self._silent_until[origin] = inf
        elif error.code == NO_PERMISSION:
            self._silent_until[origin] = now + RETRY_SECONDS


@lru_cache(64)  # a poll asks for one of a few sets
def _by_kind(origins: tuple[Origin, ...]) -> Kinds:
    """Sort out what goes into one call each, each origin once."""
    once = tuple(dict.fromkeys(origins))
    return (
        tuple(one for one in once if isinstance(one, Call)),
        tuple(one for one in once if isinstance(one, FieldValue)),
        tuple(one for one in once if isinstance(one, Activity)),
    )
