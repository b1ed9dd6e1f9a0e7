"""How figures are written for people: what is not known is a dash, never 0."""

UNKNOWN = "\N{EN DASH}"
_STEPS = ((86400, "d"), (3600, "h"), (60, "min"))  # seconds of a unit, used from two of them on


def percent(ratio: float | None, digits: int = 1) -> str:
    """Write a ratio of 0 to 1."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.{digits}f} %"


def milliseconds(seconds: float | None, digits: int = 2) -> str:
    """Write a short time, always in the same unit: figures below one another can be compared."""
    return UNKNOWN if seconds is None else f"{1000 * seconds:,.{digits}f} ms"


def count(number: float | None) -> str:
    """Write a number of things."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def age(seconds: float) -> str:
    """Write for how long something has been so, in the largest unit of which there are two."""
    for size, unit in _STEPS:
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


FIGURES = {"percent": percent, "milliseconds": milliseconds, "count": count, "age": age}
