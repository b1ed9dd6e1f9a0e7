"""What a rule is: a record or an alert, and a group of them. Expressions and texts may hold ${limit}, see limits.py."""

from dataclasses import dataclass

CRITICAL = "critical"  # pages: users feel it, or soon will
WARNING = "warning"  # for working hours
INFO = "info"  # explains others; wakes nobody

RUNBOOKS = "docs/runbooks.md"


@dataclass(frozen=True, slots=True)
class Record:
    """A recorded series: `name` is level:metric:operations."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert. `wait` is Prometheus' `for`, `keep` its `keep_firing_for`; "" is none.

    `summary` says what is wrong in one sentence without values, `description` the values, the limit and what to do.
    """

    name: str
    severity: str
    expr: str
    wait: str = ""
    keep: str = ""
    summary: str
    description: str


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other, every `interval`; "" is Prometheus' own interval."""

    name: str
    rules: tuple[Record | Alert, ...]
    interval: str = ""
