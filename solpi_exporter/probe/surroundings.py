"""What explains a change of the probe's figures: recorded beside a baseline, and shown where it is another one now.

None of it makes figures incomparable: these are the very changes that a regression after an upgrade must not hide
behind. Plain data; `environment.py` gathers it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How a machine was set up; None is not known.

    `cuda` is the version that torch was built for. `allowed_cpus` are those of the measuring process, in the kernel's
    form. `cpu_waiting` is the share of the time in which some task waited for a CPU. Clocks and frequency in hertz.
    """

    driver: str | None = None
    cuda: float | None = None
    torch: str | None = None
    kernel: str | None = None
    governor: str | None = None
    allowed_cpus: str | None = None
    cpu_frequency: float | None = None
    cpu_waiting: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    conditions: str | None = None  # under which was measured: a name of result.VERDICTS

    def filled(self, before: "Surroundings") -> "Surroundings":
        """Return the same, with what is not known now as it was before."""
        unknown = [field.name for field in fields(self) if getattr(self, field.name) is None]
        return replace(self, **{name: getattr(before, name) for name in unknown})

    def is_other_setup(self, before: "Surroundings") -> bool:
        """Whether something was changed that stays until it is changed again."""
        pairs = ((getattr(before, name), getattr(self, name)) for name in SETUP)
        return any(old is not None and new is not None and old != new for old, new in pairs)


SETUP = ("driver", "cuda", "torch", "kernel", "governor", "ecc", "persistence")


def _switch(value: bool) -> str:
    return "on" if value else "off"


def _hertz(value: float) -> str:
    return f"{value / 1e9:.2f} GHz"


def _share(value: float) -> str:
    return f"{value:.0%}"


@dataclass(frozen=True, slots=True)
class Item:
    """One of the surroundings: what it is called, how it is written, and by how much it moves without a reason.

    `tolerance` is a share of the value before, or an `absolute` one.
    """

    name: str
    words: str
    write: Callable[[Any], str] = str
    tolerance: float = 0.0
    absolute: bool = False


ITEMS = (
    Item("driver", "driver"),
    Item("cuda", "CUDA"),
    Item("torch", "torch"),
    Item("kernel", "kernel"),
    Item("governor", "governor"),
    Item("allowed_cpus", "allowed CPUs"),
    Item("cpu_frequency", "CPU frequency", _hertz, 0.05),
    Item("cpu_waiting", "tasks waiting for a CPU", _share, 0.05, absolute=True),
    Item("pcie_generation", "PCIe generation"),
    Item("pcie_width", "PCIe lanes"),
    Item("sm_clock", "SM clock", _hertz, 0.01),
    Item("memory_clock", "memory clock", _hertz, 0.01),
    Item("ecc", "ECC", _switch),
    Item("persistence", "persistence mode", _switch),
    Item("conditions", "conditions"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One of the surroundings that is another one now; None is not known."""

    item: Item
    before: Any
    now: Any

    def __str__(self) -> str:
        before, now = ("not known" if one is None else self.item.write(one) for one in (self.before, self.now))
        return f"{self.item.words} {before} -> {now}"


def differences(before: Surroundings, now: Surroundings) -> Iterator[Difference]:
    """Yield what differs, in the order of the table."""
    for item in ITEMS:
        old, new = getattr(before, item.name), getattr(now, item.name)
        if old != new and not _is_near(item, old, new):
            yield Difference(item, old, new)


def _is_near(item: Item, old: Any, new: Any) -> bool:
    if not item.tolerance or old is None or new is None:
        return False
    return bool(abs(new - old) <= item.tolerance * (1.0 if item.absolute else abs(old)))
