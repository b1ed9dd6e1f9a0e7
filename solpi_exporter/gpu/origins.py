"""What a row of the table is made of: where NVML has a quantity, how often it is asked, how it becomes base units."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from solpi_exporter.metric import Metric

BLANK = 1 << 62  # values from here on are NVML's sentinels for "none"
BLANK_INT = 0xFFFFFFFF  # and its sentinel where the value is an unsigned int

Values = Iterator[tuple[tuple[str, ...], float]]
Convert = Callable[[Any], Values]
Unit = Callable[[float], float | None]


class Tier(Enum):
    """How often a row is asked; docs/performance.md has what each call costs."""

    FAST = "every poll"
    MEAN = "every 5 s"
    DEAR = "every 15 s"
    SLOW = "every minute"
    RARE = "every hour"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of NVML with further arguments."""

    name: str
    args: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A field of nvmlDeviceGetFieldValues, of which many are asked in one call."""

    id: int
    scope: int = 0

    def __str__(self) -> str:
        return f"field value {self.id}"


@dataclass(frozen=True, slots=True)
class Activity:
    """A metric of GPM, the mean since the poll before."""

    id: int

    def __str__(self) -> str:
        return f"GPM metric {self.id}"


Origin = Call | FieldValue | Activity


@dataclass(frozen=True, slots=True, eq=False)  # as a key it is looked up in every poll
class Field:
    """A quantity: `convert` turns what its origin answers into (further label values, value) pairs.

    `since` is the first architecture that has it, by NVML's documentation; `instances` says that a MIG instance has it.
    """

    metric: Metric
    origin: Origin
    convert: Convert
    tier: Tier = Tier.FAST
    since: str = "any"
    instances: bool = False


def percent(value: float) -> float | None:
    """Percent to ratio; divided, not multiplied, so that 57 becomes 0.57. More than all is an error, not a value."""
    return value / 100 if 0 <= value <= 100 else None


def milli(value: float) -> float:
    """Thousandths (mW, mJ) to the base unit."""
    return value / 1000


def mega(value: float) -> float:
    """MHz to Hz."""
    return value * 1e6


def nano(value: float) -> float:
    """Nanoseconds to seconds."""
    return value / 1e9


def number(unit: Unit = float, *labels: str) -> Convert:
    """Take the answer itself."""

    def convert(answer: Any) -> Values:
        value = unit(answer) if answer < BLANK and answer != BLANK_INT else None
        if value is not None:
            yield labels, value

    return convert


def member(key: str | int, unit: Unit = float, *labels: str) -> Convert:
    """Take one member of a struct, or one element of a list."""

    def convert(answer: Any) -> Values:
        yield from number(unit, *labels)(answer[key])

    return convert
