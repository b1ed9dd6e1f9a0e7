"""The probe as a daemon runs it: guarded by what the board says of its GPU, held back after setbacks, with a baseline.

The probe itself knows nothing of the board, of GPUs' readings or of the state directory: they meet here.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from solpi_exporter.board import Snapshot
from solpi_exporter.clock import Clock
from solpi_exporter.config import ProbeSettings
from solpi_exporter.environment import surroundings
from solpi_exporter.host.model import cpu_model
from solpi_exporter.kept import Kept
from solpi_exporter.neighbours import Neighbours
from solpi_exporter.probe import pinned, setback
from solpi_exporter.probe.baseline import Baseline
from solpi_exporter.probe.baseline_file import read_baseline
from solpi_exporter.probe.guard import STARTING, Skip, skip
from solpi_exporter.probe.pinned import PinnedBaseline, PinnedStates
from solpi_exporter.probe.repin import RepinMarker
from solpi_exporter.probe.result import UUIDS, Cycle, Identity
from solpi_exporter.probe.setback import SetbackKeeper, Setbacks
from solpi_exporter.probe.shape import auto_shape, shape_of
from solpi_exporter.source import Reading

PCI_ORDER = "PCI_BUS_ID"
# Bytes of CUDA and its libraries beside weights and cache: 1,145 MiB on an H200 (benchmarks/probe_memory.py).
OVERHEAD = 5 << 28


@dataclass(slots=True)
class Guard:
    """Asks, before each cycle, whether the probe may run on its GPU as that is now, and logs why not."""

    settings: ProbeSettings
    neighbours: Neighbours
    log: FilteringBoundLogger
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    _told: str | None = None

    def __call__(self, identity: Identity | None) -> Skip | None:
        """Return why a cycle must be left out; `identity` is None before the probe holds its memory."""
        found = self._found(identity)
        reason = None if found is None else found.reason
        if reason == STARTING:  # nothing to tell anybody
            return found
        if found is not None and reason != self._told:
            self.log.warning("probe_skipped", reason=reason, message=found.message)
        elif found is None and self._told is not None:
            self.log.info("probe_resumed")
        self._told = reason
        return found

    def _found(self, identity: Identity | None) -> Skip | None:
        if self.settings.device == "cpu" or (identity is not None and identity.device == "cpu"):
            return None
        conditions = self.neighbours.conditions(self._uuid(identity), self._index())
        return skip(conditions, 0.0 if identity is not None else self._footprint(conditions.total))

    def _uuid(self, identity: Identity | None) -> str:
        """Return the GPU's UUID as its bench tells it, or as the setting names it; empty where neither does."""
        if identity is not None and identity.uuid:
            return identity.uuid
        return self.settings.device if self.settings.device.startswith(UUIDS) else ""

    def _index(self) -> int | None:
        """Return the GPU's place in NVML's order, which is CUDA's too unless somebody has chosen another."""
        kind, _, number = self.settings.device.partition(":")
        is_other = self.environment.get("CUDA_DEVICE_ORDER", PCI_ORDER) != PCI_ORDER
        if "CUDA_VISIBLE_DEVICES" in self.environment or is_other or kind not in ("auto", "cuda"):
            return None
        return int(number or 0)

    def _footprint(self, total: float | None) -> float:
        """Return how much memory the probe will take at most."""
        probe = self.settings
        name = auto_shape(total) if probe.shape == "auto" else probe.shape
        shape = shape_of(name, probe.context, probe.layers)
        return float(shape.held_bytes(max((*probe.batches, *probe.others))) + OVERHEAD)


def make_keeper(kept: Kept, log: FilteringBoundLogger, clock: Clock) -> SetbackKeeper:
    """Return what keeps the probe's setbacks over restarts, where there is a state directory; log what they mean."""
    setbacks = kept.read(setback.STATE, Setbacks) or Setbacks()
    left = setbacks.left(clock.time())
    if left:
        remedy = "see the kernel log for an XID, docs/gpu.md for what it asks for; the probe is tried again by itself"
        log.warning("probe_held_back", failures=setbacks.count, seconds=round(left), remedy=remedy)
    return SetbackKeeper(setbacks, lambda changed: kept.lasts and kept.write(setback.STATE, changed))


def make_comparison(
    settings: ProbeSettings,
    kept: Kept,
    state_dir: Path | None,
    log: FilteringBoundLogger,
    clock: Clock,
    snapshot: Callable[[], Snapshot],
) -> Callable[[Cycle], Reading | None]:
    """Return what gathers cycles into a baseline and tells the pinned one; raise BaselineUnusable for a bad file."""
    baseline = PinnedBaseline(
        (*settings.batches, *settings.others),
        cpu_model(),
        saved=kept.read(pinned.STATE, PinnedStates),
        save=partial(kept.write, pinned.STATE, often=True),
        given=None if settings.baseline is None else read_baseline(Path(settings.baseline)),
        is_asked=(lambda: False) if state_dir is None else RepinMarker(state_dir).take,
        report_pinned=partial(_report_pinned, log),
        report_unfit=partial(_report_unfit, log, settings.baseline),
    )

    def compare(cycle: Cycle) -> Reading | None:
        told = [reading for entry in snapshot().entries for reading in entry.readings]
        around = surroundings(cycle.identity, told)
        return baseline.observe(cycle.identity, cycle.costs, cycle.results, around, clock.time())

    return compare


def _report_pinned(log: FilteringBoundLogger, baseline: Baseline) -> None:
    log.info("probe_baseline_pinned", figures=len(baseline.figures))


def _report_unfit(log: FilteringBoundLogger, path: str | None, differs: str) -> None:
    log.warning(
        "probe_baseline_unfit", baseline=path, differs=differs, remedy="the host's own first good day is taken instead"
    )
