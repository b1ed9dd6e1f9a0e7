"""A token and what it was spent on, as a bar shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a token: its seconds, its share of all parts, and the share at which it begins."""

    name: str
    seconds: float
    share: float
    begin: float


@dataclass(frozen=True, slots=True)
class TokenSplit:
    """A token in seconds, the share that the control layer takes of it, and its parts."""

    token: float
    control: float
    parts: tuple[Part, ...]


def split_of(token: float, control: float, seconds: Mapping[str, float]) -> TokenSplit:
    """Return a token with its parts in their order."""
    whole = sum(seconds.values())
    begins = accumulate(seconds.values(), initial=0.0)
    parts = (
        Part(name, one, one / whole, begin / whole) for (name, one), begin in zip(seconds.items(), begins, strict=False)
    )
    return TokenSplit(token, control, tuple(parts))
