"""The GPUs this host has had, kept in the state directory: what is missing today can be told only from before."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from solpi_exporter.gpu.reading import ExpectedGpus, GpuReading, GpuState

NAME = "gpus"

State = TypeVar("State")


class Store(Protocol):
    """Where state is kept; see statedir.py."""

    def read(self, name: str, kind: type[State]) -> State | None:
        """Return what was written under a name, None where nothing was or it cannot be used."""
        ...

    def write(self, name: str, value: object) -> bool:
        """Keep a value under a name; return whether that was possible."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept: the last index of each GPU by UUID, and the most that there were at once."""

    most: int = 0
    gpus: dict[str, int] = field(default_factory=dict)


class RememberedGpus:
    """Which GPUs there have been, by UUID with their last index, and the most that there were at once.

    Without a store it lasts as long as the process. `expected` overrules what was seen.
    """

    def __init__(self, store: Store | None = None, expected: int | None = None) -> None:
        self._store = store
        self._configured = expected
        self._saved = True
        kept = None if store is None else store.read(NAME, Seen)
        seen = Seen() if kept is None else kept
        self._gpus, self._most = seen.gpus, seen.most

    @property
    def count(self) -> int | None:
        """How many GPUs there should be; None while none has ever been seen."""
        return self._most or None if self._configured is None else self._configured

    def note(self, present: int, seen: Mapping[str, int]) -> None:
        """Take in how many GPUs the driver lists, and those that answered: UUID to index.

        As soon as there are as many as expected, those that are not among them have been replaced, and are forgotten.
        """
        gpus, most = {**self._gpus, **seen}, max(self._most, present)
        if len(seen) >= (most if self._configured is None else self._configured):
            gpus = dict(seen)
        changed = (gpus, most) != (self._gpus, self._most)
        self._gpus, self._most = gpus, most
        if self._store is not None and (changed or not self._saved):
            self._saved = self._store.write(NAME, Seen(most, gpus))

    @property
    def uuids(self) -> dict[int, str]:
        """The GPU that was last seen under each index."""
        return {index: uuid for uuid, index in self._gpus.items()}

    def readings(self, state: GpuState, but: Collection[str] = ()) -> Iterator[GpuReading | ExpectedGpus]:
        """Yield the number expected, and every GPU not in `but` in a state that is not ok."""
        if self.count is not None:
            yield ExpectedGpus(self.count)
        for uuid, index in self._gpus.items():
            if uuid not in but:
                yield GpuReading(index, uuid, state)
