"""What moves must be what was touched: one fault after another, and every figure of the probe beside what was expected.

    python -m benchmarks.probe_faults [--faults NAME ...] [--pairs 7] [--out faults.json]

Each fault is measured in pairs, without it and with it in turn; what is told is the median difference within a pair.
Exit status 1 says that an expectation below was not met. Needs a GPU that nobody else uses; five minutes.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import probe_load as load
from benchmarks.probe_load import BATCHES, HOOK, LATE, LONG, SHAPE, Cycle, cycle, make_bench, median
from solpi_exporter.probe.bench import GpuBench
from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_ASYNC, GRAPH_SYNC, MODELLED, BatchResult
from solpi_exporter.probe.shape import Shape

INJECTED = "injected"


@dataclass(frozen=True, slots=True)
class Expected:
    """A figure rises by `least` to `most` of a unit.

    `of` is what was injected, another figure as it is without the fault, or a number. With `every`, each pair has to.
    """

    figure: str
    least: float
    most: float
    of: str | float
    every: bool = False


def _stays(figure: str, within: float, of: str | float, *, every: bool = False) -> Expected:
    return Expected(figure, -within, within, of, every)


# The device's part repeats within a per cent or two. The host's wanders by tens of per cent, so that it is judged by
# what was injected, or by the whole token where that is not known.
DEVICE_STAYS = (_stays("compute", 0.03, "graph"), _stays("memory", 0.03, "graph"))
ALONE = (_stays("contended", 0, 1.0, every=True), _stays("modelled", 0, 1.0, every=True))
SOUND = (_stays("residue", 0.02, "token"), *ALONE)
COSTS_STAY = (_stays("launch", 0.4, "launch"), _stays("round trip", 0.4, "round trip"))
RUNNING = _stays("off CPU", 0.1, "token")

EXPECTED: Mapping[str, tuple[Expected, ...]] = {
    "item in each layer": (
        Expected("scheduling", 0.8, math.inf, INJECTED),
        _stays("sync", 0.1, "token"),
        *(*DEVICE_STAYS, *COSTS_STAY, RUNNING, *SOUND),
    ),
    "late read-back": (
        Expected("token", 0.7, 1.3, INJECTED),
        Expected("sync", 0.8, 1.3, INJECTED),
        *(_stays(figure, 0.3, INJECTED) for figure in ("scheduling", "Q", "q")),
        # Longer than the step, it cannot hide behind the next one; what hides is the step behind it, so that reading
        # one step behind gives back less than before, and still more than a graph alone does.
        Expected(GRAPH_SYNC, -0.6, -0.1, 1.0),
        Expected(GRAPH_ASYNC, -0.25, 0.03, 1.0),
        *(*DEVICE_STAYS, *COSTS_STAY, RUNNING, *SOUND),
    ),
    "sleep on the GPU": (
        Expected("token", 0.7, 1.3, INJECTED),
        Expected("compute", 0.9, 1.1, INJECTED),
        _stays("memory", 0.03, "graph"),
        *(_stays(figure, 0.3, INJECTED) for figure in ("scheduling", "sync", "Q", "q")),
        *(*COSTS_STAY, RUNNING, *SOUND),
    ),
    "8x context": (
        Expected("memory", 0.8, math.inf, INJECTED),
        _stays("compute", 0.03, "graph"),
        Expected("scheduling", -math.inf, 0.15, "token"),  # launches hide behind what memory takes longer
        _stays("sync", 0.1, "token"),
        *(*COSTS_STAY, RUNNING, *SOUND),
    ),
    "slow dispatch": (
        *(Expected(figure, 0.8, 2, INJECTED) for figure in ("scheduling", "Q", "q")),
        Expected("launch", 0.8, 2, HOOK),
        _stays("sync", 0.3, INJECTED),
        Expected(GRAPH_SYNC, 0.05, 1, 1.0),
        *(*DEVICE_STAYS, RUNNING, *SOUND),
    ),
    "loaded host": (
        Expected("off CPU", 0.1, math.inf, "token"),
        Expected("scheduling", 0.1, math.inf, "token"),
        _stays("compute", 0.05, "graph"),
        _stays("memory", 0.05, "graph"),
        *ALONE,
    ),
    "busy neighbour": (
        Expected("contended", 1, 1, 1.0, every=True),
        Expected("modelled", 1, 1, 1.0, every=True),
        _stays("compute", 0.15, "graph"),
        _stays("memory", 0.15, "graph"),
        _stays("Q", 0.5, "Q"),
        _stays("q", 0.5, "q"),
        _stays("launch", 0.4, "launch"),
        RUNNING,
    ),
    "eager instead of graph": (
        Expected(GRAPH_SYNC, 0.1, 1, 1.0),
        Expected(GRAPH_ASYNC, 0.1, 1, 1.0),
        Expected("scheduling", 0.1, math.inf, "token"),
        _stays("sync", 0.15, "token"),
        *(*DEVICE_STAYS, *COSTS_STAY, RUNNING, *SOUND),
    ),
}

Injected = Callable[[Cycle, int], float]  # seconds of a step, at one batch size


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to the probe, and to what it is compared.

    `own` is the shape of a bench of its own, made with the fault in place; None where the common bench will do.
    """

    name: str
    applied: Callable[[], AbstractContextManager[object]] = nullcontext
    without: Callable[[], AbstractContextManager[object]] = nullcontext
    own: Shape | None = None
    injected: Injected | None = None


FAULTS = (
    Fault("item in each layer", load.item_in_each_layer, injected=load.reads),
    Fault("late read-back", load.late_read_back, injected=lambda *_: LATE),
    Fault("sleep on the GPU", load.sleep_on_the_gpu, own=SHAPE, injected=load.slept),
    Fault("8x context", own=LONG, injected=load.moved),
    Fault("slow dispatch", load.SlowDispatch, injected=load.hooked),
    Fault("loaded host", load.burning),
    Fault("busy neighbour", load.neighbour),
    Fault("eager instead of graph", without=load.replayed),
)


def _phase(name: str, one: Cycle, result: BatchResult) -> float | None:
    return None if result.split is None else float(getattr(result.split, name))


def _graph(one: Cycle, result: BatchResult) -> float | None:
    return None if result.split is None else result.split.compute + result.split.memory


def _mode(name: str, one: Cycle, result: BatchResult) -> float | None:
    return float(getattr(result.modes[EAGER_SYNC], name)) if EAGER_SYNC in result.modes else None


def _modelled(one: Cycle, result: BatchResult) -> float | None:
    """Return the share of the splits that are modelled."""
    bases = [split.basis for split in result.splits]
    return bases.count(MODELLED) / len(bases) if bases else None


FIGURES: Mapping[str, Callable[[Cycle, BatchResult], float | None]] = {
    **{name: partial(_phase, name) for name in ("token", "compute", "memory")},
    "graph": _graph,
    **{name: partial(_phase, name) for name in ("scheduling", "sync", "residue")},
    "launch": lambda one, _: one.costs.launch,
    "round trip": lambda one, _: one.costs.round_trip and one.costs.round_trip[0],
    **{name: partial(_mode, field) for name, field in (("Q", "enqueue"), ("q", "enqueue_cpu"), ("off CPU", "off_cpu"))},
    GRAPH_SYNC: lambda _, result: result.reclaimable(GRAPH_SYNC),
    GRAPH_ASYNC: lambda _, result: result.reclaimable(GRAPH_ASYNC),
    "contended": lambda one, _: None if one.costs.late_round_trips is None else float(one.costs.is_contended),
    "modelled": _modelled,
}
SHARES = (GRAPH_SYNC, GRAPH_ASYNC, "contended", "modelled")


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault: pairs of cycles, without it and with it, and the seconds it injected by batch size, where known."""

    fault: Fault
    pairs: Sequence[tuple[Cycle, Cycle]]
    injected: Mapping[int, float]

    def before(self, figure: str, batch: int) -> float | None:
        """Return a figure without the fault."""
        return median(FIGURES[figure](one, one.of(batch)) for one, _ in self.pairs)

    def rises(self, figure: str, batch: int) -> list[float]:
        """Return by how much a figure rose in each pair that has it."""
        read = FIGURES[figure]
        values = [(read(one, one.of(batch)), read(other, other.of(batch))) for one, other in self.pairs]
        return [after - before for before, after in values if before is not None and after is not None]

    def unit(self, expected: Expected, batch: int) -> float | None:
        """Return in what an expectation counts."""
        if expected.of == INJECTED:
            return self.injected.get(batch)
        return self.before(expected.of, batch) if isinstance(expected.of, str) else expected.of

    def is_met(self, expected: Expected, batch: int) -> bool:
        """Return whether a figure moved as it should; not where it or its unit is absent."""
        rises, unit = self.rises(expected.figure, batch), self.unit(expected, batch)
        if unit is None or not rises:
            return False
        judged = rises if expected.every else [statistics.median(rises)]
        return all(expected.least * unit <= rise <= expected.most * unit for rise in judged)

    def missed(self) -> Iterator[str]:
        """Yield a line for each expectation that was not met."""
        for batch in BATCHES:
            for expected in EXPECTED[self.fault.name]:
                if not self.is_met(expected, batch):
                    yield f"not met: {self.fault.name}, batch {batch}: {self._told(expected, batch)}"

    def _told(self, expected: Expected, batch: int) -> str:
        rises, unit = self.rises(expected.figure, batch), self.unit(expected, batch)
        moved = ", ".join(shown(expected.figure, rise) for rise in rises) or "absent"
        which = "each of which" if expected.every else "the median of which"
        if unit is None:
            return f"{expected.figure} rose by {moved}; {expected.of} is absent"
        least, most = (shown(expected.figure, side * unit) for side in (expected.least, expected.most))
        return f"{expected.figure} rose by {moved}, {which} should lie in {least} to {most}"

    def cell(self, figure: str, batch: int) -> str:
        """Return the median rise of a figure, and whether it was as expected where something was."""
        rises = self.rises(figure, batch)
        text = shown(figure, statistics.median(rises)) if rises else "absent"
        met = [self.is_met(expected, batch) for expected in EXPECTED[self.fault.name] if expected.figure == figure]
        return f"{text} {'✓' if all(met) else '✗'}" if met else text

    @property
    def rows(self) -> Iterator[dict[str, object]]:
        """Every cycle as it was, to replay."""
        for number, (without, faulty) in enumerate(self.pairs):
            yield load.row(fault=self.fault.name, pair=number, has_fault=False, cycle=without)
            yield load.row(fault=self.fault.name, pair=number, has_fault=True, cycle=faulty)


def shown(figure: str, rise: float) -> str:
    """Return a rise in points of a share, or in microseconds."""
    if figure in SHARES:
        return f"{100 * rise:+.1f} pt"
    return f"{1e6 * rise:+.{0 if abs(rise) >= 1e-4 else 1}f}"


def trial(fault: Fault, bench: GpuBench, pairs: int) -> Trial:
    """Measure pairs of cycles, without the fault and with it in turn."""
    faulty = bench
    if fault.own is not None:
        with fault.applied():
            faulty = make_bench(fault.own, BATCHES)
    taken = [pair(fault, bench, faulty) for _ in range(pairs)]
    if fault.injected is None:
        return Trial(fault, taken, {})
    last, _ = taken[-1]
    return Trial(fault, taken, {batch: fault.injected(last, batch) for batch in BATCHES})


def pair(fault: Fault, bench: GpuBench, faulty: GpuBench) -> tuple[Cycle, Cycle]:
    """Measure a cycle without the fault, and one with it."""
    with fault.without():
        before = cycle(bench)
    with fault.applied():
        return before, cycle(faulty)


def expectations(faults: Sequence[Fault]) -> Iterator[str]:
    """Yield a Markdown table of what is expected."""
    yield "| fault | figure | rises by at least | at most | times | in |"
    yield "|---" * 6 + "|"
    for fault in faults:
        for one in EXPECTED[fault.name]:
            unit = one.of if isinstance(one.of, str) else f"{one.of:g}"
            which = "each pair" if one.every else "the median"
            yield f"| {fault.name} | {one.figure} | {one.least:+g} | {one.most:+g} | {unit} | {which} |"


def matrix_head() -> Iterator[str]:
    """Yield the head of the Markdown table of what moved."""
    yield "| fault | batch | injected | " + " | ".join(FIGURES) + " | noisy |"
    yield "|---" * (len(FIGURES) + 4) + "|"


def matrix_rows(one: Trial) -> Iterator[str]:
    """Yield a row for each batch size: by how much each figure rose."""
    for batch in BATCHES:
        injected = f"{1e6 * one.injected[batch]:.0f}" if one.injected else ""
        noisy = sum(after.of(batch).noise is not None for _, after in one.pairs)
        cells = " | ".join(one.cell(figure, batch) for figure in FIGURES)
        yield f"| {one.fault.name} | {batch} | {injected} | {cells} | {noisy} of {len(one.pairs)} |"


def main() -> int:
    """Say what is expected, measure, and say what was not met."""
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", nargs="+", choices=names, default=names, metavar="NAME", help="; ".join(names))
    parser.add_argument("--pairs", type=int, default=7, help="of cycles for each fault")
    parser.add_argument("--out", type=Path, help="where to write every cycle as JSON")
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if fault.name in options.faults]
    print(*expectations(faults), "", sep="\n")
    bench = make_bench(SHAPE, BATCHES)
    cycle(bench)  # the first loads what later ones find loaded
    print(*matrix_head(), sep="\n")
    trials = []
    for fault in faults:
        trials.append(trial(fault, bench, options.pairs))
        print(*matrix_rows(trials[-1]), sep="\n", flush=True)
    missed = [line for one in trials for line in one.missed()]
    print(*missed, sep="\n")
    if options.out is not None:
        injected = {one.fault.name: one.injected for one in trials}
        load.write(options.out, {"injected": injected, "missed": missed}, [each for one in trials for each in one.rows])
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
