"""Series as promtool reads them: from what is said in each minute to its notation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

Said = Sequence[float | None]  # of each minute; None where the series is not there
Named = tuple[str, Said]


def named(metric: str, **labels: str) -> str:
    """Return a series' name."""
    inner = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inner}}}"


def each(minutes: int, value: Callable[[int], float | None]) -> list[float | None]:
    """Return what a function says of each minute."""
    return [value(minute) for minute in range(minutes)]


def total(steps: Iterable[float | None]) -> list[float | None]:
    """Return a counter of these steps, which begins anew where what counts it has been away."""
    reached: float | None = None
    said: list[float | None] = []
    for step in steps:
        reached = None if step is None else (reached or 0.0) + step
        said.append(reached)
    return said


def hidden(said: Said, shown: Sequence[bool]) -> list[float | None]:
    """Return a series without the minutes in which nobody could read it."""
    return [value if there else None for value, there in zip(said, shown, strict=True)]


def written(said: Said) -> str:
    """Return promtool's notation; Prometheus marks a series as stale where a scrape no longer has it."""
    return " ".join(_runs(said))


def _runs(said: Said) -> Iterator[str]:
    is_there = False
    for value, run in groupby(said):
        length = sum(1 for _ in run)
        if value is not None:
            yield f"{_number(value)}x{length - 1}" if length > 1 else _number(value)
        elif not is_there:
            yield f"_x{length}"
        else:
            yield f"stale _x{length - 1}" if length > 1 else "stale"
        is_there = value is not None


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"
