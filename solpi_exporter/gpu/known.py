"""What is told of the GPUs that a poll did not read: their state, and their totals of before.

A GPU is known by its UUID. One that fails is asked for by index, so the UUID last seen under that index is its name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from solpi_exporter.gpu.reading import ExpectedGpus, GpuReading, GpuState
from solpi_exporter.gpu.remembered import RememberedGpus

Report = Callable[[GpuReading, str], None]
Told = GpuReading | ExpectedGpus


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a GPU was not read."""

    state: GpuState
    reason: str


MISSING = Failure(GpuState.LOST, "the driver does not list it any more")


class KnownGpus:
    """Everything there has been, in this process and, by `remembered`, before it.

    `report` is told of every GPU that turns from ok to something else or back, with the reason.
    """

    def __init__(self, remembered: RememberedGpus, report: Report) -> None:
        self._remembered = remembered
        self._report = report
        self._last: dict[str, GpuReading] = {}
        self._here: set[str] = set()
        self._uuids = remembered.uuids
        self._states: dict[str | int, GpuState] = {}  # of those that are not ok, by UUID, or index where it is unknown

    @property
    def any(self) -> bool:
        """Whether this host is known to have GPUs."""
        return bool(self._remembered.count)

    def is_here(self, uuid: str) -> bool:
        """Whether the GPU, or the MIG instance, was read by the last poll."""
        return uuid in self._here

    def conclude(self, present: int, read: Sequence[GpuReading], failures: Mapping[int, Failure]) -> list[Told]:
        """Take in a poll that reached the driver; return the number expected, and those that were not read."""
        whole = {one.uuid: one.index for one in read if not one.instance}
        self._remembered.note(present, whole)
        moved = {index: uuid for index, uuid in self._uuids.items() if uuid not in whole}
        self._uuids = moved | {index: uuid for uuid, index in whole.items()}
        told = list(self._unread(whole, failures))
        self._keep(read)
        return told

    def all_failed(self, failure: Failure) -> list[Told]:
        """Return the number expected, and every GPU in the state in which the driver's failure leaves it."""
        self._here = set()
        return list(self._each(failure, set()))

    def _unread(self, read: Mapping[str, int], failures: Mapping[int, Failure]) -> Iterator[Told]:
        named = set(read)
        for index, failure in failures.items():
            uuid = self._uuids.get(index, "")
            named.add(uuid)
            yield self._gone(GpuReading(index, uuid, failure.state), failure.reason)
        yield from self._each(MISSING, named)

    def _each(self, failure: Failure, but: set[str]) -> Iterator[Told]:
        for one in self._remembered.readings(failure.state, but):
            yield one if isinstance(one, ExpectedGpus) else self._gone(one, failure.reason)

    def _gone(self, reading: GpuReading, reason: str) -> GpuReading:
        """Return a GPU's reading with its totals of before, which are as true as they were."""
        last = self._last.get(reading.uuid)
        gone = reading if last is None else last.gone(reading.state)
        self._note(gone, reason)
        return gone

    def _keep(self, read: Iterable[GpuReading]) -> None:
        self._here = {one.uuid for one in read}
        self._last = {uuid: one for uuid, one in self._last.items() if not one.instance}
        for one in read:
            self._last[one.uuid] = one
            if not one.instance:
                self._back(one)

    def _back(self, reading: GpuReading) -> None:
        """Note that a GPU answers, also where a failure was told while it had no name."""
        if self._states:
            self._note(replace(reading, uuid=""), "it answers")
            self._note(reading, "it answers")

    def _note(self, reading: GpuReading, reason: str) -> None:
        key = reading.uuid or reading.index
        before = self._states.pop(key, GpuState.OK)
        if not reading.up:
            self._states[key] = reading.state
        if before is not reading.state:
            self._report(reading, reason)
