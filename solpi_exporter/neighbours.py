"""In what condition a GPU is for the probe, its neighbours included: the board's GPU readings become its Conditions.

    board  ->  observe (the main loop, at each change)  ->  conditions (the probe's thread, before each cycle)

Whether other processes' memory moves shows from one reading to the next only, so what was seen last is kept.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from solpi_exporter.board import Snapshot, State
from solpi_exporter.clock import Clock
from solpi_exporter.gpu import fields
from solpi_exporter.gpu.reading import GpuReading
from solpi_exporter.host.mps import mps_runs
from solpi_exporter.metric import Metric
from solpi_exporter.probe.guard import NOT_READ, Conditions

NOISE = 64 << 20  # bytes by which memory may differ without having moved
REST, ALL = -1, -2  # in the place of a pid: used memory that the list of processes leaves out, or all without a list

Values = Mapping[tuple[Metric, tuple[str, ...]], float]


@dataclass(frozen=True, slots=True)
class Held:
    """What others hold on a GPU: their pids, None where they are not listed, and bytes by pid as far as told.

    What runs in another container is often not listed, or its memory not told: then it is in REST, with the driver's
    own few megabytes. So is the exporter's own memory where the list leaves that out, or lags behind by the 5 s at
    which it is asked: it cannot be told apart, counts as a move once, and holds the probe up after its own start.
    """

    pids: frozenset[int] | None
    memory: Mapping[int, float]

    def has_moved(self, before: "Held") -> bool:
        """Whether a process came or went, or memory differs by more than noise; what only one side knows says nothing.

        Both directions count: an engine that measures how much memory is free aborts where a neighbour frees some.
        """
        if self.pids is not None and before.pids is not None and self.pids != before.pids:
            return True
        both = self.memory.keys() & before.memory.keys()
        return any(abs(self.memory[one] - before.memory[one]) > NOISE for one in both)

    def since(self, before: "Held") -> "Held":
        """Return what to compare the next with while nothing moves: the oldest known, so that creeping adds up."""
        return Held(before.pids if self.pids is None else self.pids, {**self.memory, **before.memory})


@dataclass(frozen=True, slots=True)
class Sight:
    """What is kept of a GPU: what the next reading is compared with, and when memory moved last (monotonic)."""

    held: Held
    moved: float | None = None

    def then(self, held: Held, time: float) -> "Sight":
        """Return what is kept after the reading of `time`."""
        return Sight(held, time) if held.has_moved(self.held) else Sight(held.since(self.held), self.moved)


@dataclass(frozen=True, slots=True)
class View:
    """The GPUs on the board, and what was seen of all that ever were: a poll that fails must not hide a move."""

    gpus: tuple[GpuReading, ...] = ()
    source: State | None = None  # of the GPUs' source; None where the board has none
    sights: Mapping[str, Sight] = field(default_factory=lambda: MappingProxyType({}))

    def find(self, uuid: str, index: int | None) -> GpuReading | None:
        """Return the GPU named, that of an index where none is of that name, or the only one there is."""
        whole = [gpu for gpu in self.gpus if not gpu.instance]
        named = [gpu for gpu in self.gpus if uuid and gpu.uuid == uuid]
        found = named or [gpu for gpu in whole if gpu.index == index] or whole
        return found[0] if len(found) == 1 else None

    def trouble(self, gpu: GpuReading | None) -> str | None:
        """Return what is wrong with a GPU, or with all of them."""
        if self.source in (State.PENDING, State.DOWN):
            return NOT_READ if self.source is State.PENDING else "not readable"
        return None if gpu is None or gpu.up else gpu.state.value.replace("_", " ")

    def values(self, gpu: GpuReading) -> Values:
        """Return a GPU's rows; those that a MIG instance has not are its whole GPU's."""
        whole = (one for one in self.gpus if one.index == gpu.index and not one.instance)
        return {key: value for one in (*whole, gpu) for key, value in _values(one).items()}


@dataclass(slots=True)
class Neighbours:
    """Follows the board; `mps` tells whether an MPS server runs, None where it cannot."""

    clock: Clock
    mps: Callable[[], bool | None] = mps_runs
    _view: View = View()  # replaced as a whole, since it is read from another thread

    def observe(self, snapshot: Snapshot, own: Collection[int]) -> None:
        """Take in the board; `own` are the pids of the exporter's own processes.

        The first sight of a GPU is no move, since the exporter may be the one that is new.
        """
        readings = tuple(snapshot.readings(GpuReading))
        sights = dict(self._view.sights)
        for time, gpu in readings:
            if gpu.up:
                held = _held(gpu, own)
                sights[gpu.uuid] = sights.get(gpu.uuid, Sight(held)).then(held, time)
        source = next((entry.state for entry in snapshot.entries if entry.source == "gpu"), None)
        self._view = View(tuple(gpu for _, gpu in readings), source, sights)

    def conditions(self, uuid: str, index: int | None = None) -> Conditions:
        """Return the conditions of the GPU, or MIG instance, on which the probe runs; "" and None where not known.

        Of a GPU that is not to be found nothing is known but MPS, which is the host's.
        """
        view, mps = self._view, self.mps()
        gpu = view.find(uuid, index)
        trouble = view.trouble(gpu)
        if gpu is None or trouble is not None:
            return Conditions(trouble, mps=mps)
        moved = view.sights[gpu.uuid].moved
        return _conditions(view.values(gpu), mps, None if moved is None else self.clock.monotonic() - moved)


def _held(gpu: GpuReading, own: Collection[int]) -> Held:
    used = _values(gpu).get((fields.MEMORY_USED, ()))
    if gpu.processes is None:
        return Held(None, {} if used is None else {ALL: used})
    told = {one.pid: one.memory for one in gpu.processes if one.memory is not None}
    rest = {} if used is None else {REST: used - sum(told.values())}
    others = frozenset(one.pid for one in gpu.processes).difference(own)
    return Held(others, {pid: memory for pid, memory in told.items() if pid in others} | rest)


def _values(gpu: GpuReading) -> Values:
    rows = ((row, row.labels[len(fields.GPU) :]) for row in gpu.rows)
    return {(row.metric, further): row.value for row, further in rows if isinstance(row.value, int | float)}


def _conditions(values: Values, mps: bool | None, still: float | None) -> Conditions:
    mode, action = values.get((fields.COMPUTE_MODE, ())), values.get((fields.RECOVERY_ACTION, ()))
    current, pending = (values.get((fields.MIG_MODE, (when,))) for when in ("current", "pending"))
    remap = values.get((fields.ROW_REMAP_PENDING, ()))
    reasons = {further[0]: value for (metric, further), value in values.items() if metric is fields.CLOCKS_EVENT}
    return Conditions(
        free=values.get((fields.MEMORY_FREE, ())),
        total=values.get((fields.MEMORY_TOTAL, ())),
        compute_mode=None if mode is None else int(mode),
        mps=mps,
        mig_changing=None if current is None or pending is None else current != pending,
        recovery_action=None if action is None else int(action),
        row_remap_pending=None if remap is None else bool(remap),
        clock_reasons=frozenset(reason for reason, value in reasons.items() if value) if reasons else None,
        still=still,
    )
