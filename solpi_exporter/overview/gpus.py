"""The GPUs on the page: each with its state, and its utilisation while it is well."""

from dataclasses import dataclass

from solpi_exporter.board import Snapshot, State
from solpi_exporter.gpu.fields import UTILIZATION
from solpi_exporter.gpu.reading import INFO, GpuReading

_MODEL = INFO.labels.index("model")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU or a MIG instance; `uuid` only where it is not well, for that is when it is looked for."""

    name: str
    model: str
    state: str
    utilization: float | None = None
    uuid: str = ""


def gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return every GPU that is known of; what a failure itself tells is newer than the readings before it."""
    found: dict[tuple[int, int, str], Gpu] = {}
    for entry in snapshot.entries:
        failing = None if entry.state is State.OK else entry.state.value
        told = [(one, None) for one in entry.notices] + [(one, failing) for one in entry.readings]
        for reading, state in told:
            if isinstance(reading, GpuReading):
                place = (reading.index, len(reading.instance), reading.instance)
                found.setdefault(place, _gpu(reading, state or reading.state.value))
    return tuple(found[place] for place in sorted(found))


def _gpu(reading: GpuReading, state: str) -> Gpu:
    name = f"{reading.index}/{reading.instance}" if reading.instance else str(reading.index)
    model = "" if reading.info is None else reading.info.labels[_MODEL]
    if state != State.OK.value:
        return Gpu(name, model, state, uuid=reading.uuid)
    known = (row.value for row in reading.rows if row.metric is UTILIZATION)
    return Gpu(name, model, state, next((value for value in known if isinstance(value, int | float)), None))
