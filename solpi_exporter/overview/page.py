"""All that the landing page shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from solpi_exporter.board import Entry, Snapshot
from solpi_exporter.derived import EngineToken
from solpi_exporter.overview.engines import Engine, engines
from solpi_exporter.overview.gpus import Gpu, gpus
from solpi_exporter.overview.probe import Probe, probe
from solpi_exporter.overview.recent import Recent


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source, and how many seconds ago it was last read; None for never."""

    name: str
    state: str
    age: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The five readings, the two splits of a token, and how the sources fare."""

    gpus: tuple[Gpu, ...]
    engines: tuple[Engine, ...]
    probe: Probe
    sources: tuple[SourceState, ...]


def overview(snapshot: Snapshot, tokens: Sequence[EngineToken], recent: Recent, now: float) -> Overview:
    """Return what there is to show at `now` (Unix)."""
    return Overview(
        gpus(snapshot),
        engines(snapshot, tokens, recent, now),
        probe(snapshot, now),
        tuple(_source(entry, now) for entry in snapshot.entries),
    )


def _source(entry: Entry, now: float) -> SourceState:
    age = None if entry.success_time is None else now - entry.success_time
    return SourceState(entry.source, entry.state.value, age)
