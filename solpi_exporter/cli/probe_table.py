"""What a cycle of the probe says to a person: a row with a bar for each batch size, and the findings in words."""

import math
import shutil
import sys
from collections.abc import Iterator, Sequence

import click

from solpi_exporter.probe.result import (
    EXTRAPOLATED,
    GRAPH_ASYNC,
    GRAPH_SYNC,
    MODELLED,
    BatchResult,
    Costs,
    Cycle,
    Identity,
    SplitResult,
    crossing_batch,
    verdict,
)
from solpi_exporter.probe.rounds import CONTROL_RATIO
from solpi_exporter.probe.shape import SHAPES
from solpi_exporter.probe.split import PHASES

BAR = 32  # signs, where there is room; the rest of a row takes
REST = 80
GLYPHS = {"compute": "█", "memory": "▓", "scheduling": "▒", "sync": "░"}
COLUMNS = tuple(f"{glyph} {phase}" for phase, glyph in GLYPHS.items())
COLOURS = {"compute": "green", "memory": "blue", "scheduling": "red", "sync": "yellow"}


def report(cycle: Cycle) -> Iterator[str]:
    """Yield the lines, as wide as the terminal allows."""
    return table(cycle, _bar_width())


def table(cycle: Cycle, width: int) -> Iterator[str]:
    """Yield the lines; a bar is `width` wide."""
    one = cycle.identity
    shape = f"{one.shape} shape: {one.layers} layer{'s' * (one.layers != 1)}"
    yield f"{one.model} ({one.device}), {shape}, context {one.context}, {one.dtype}, torch {one.torch}"
    yield ""
    yield f"batch      token  {'what it is spent on':{width}.{width}}  {'  '.join(COLUMNS)}  as a graph  async"
    for result in cycle.results:
        yield _row(result, width)
    yield ""
    yield from _words(cycle)


def _bar_width() -> int:
    """Return how wide a bar may be: on a narrow terminal a row would wrap, in a pipe there is room."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else BAR + REST
    return max(0, min(BAR, columns - REST))


def _row(result: BatchResult, width: int) -> str:
    split = result.split
    if split is None:
        return f"{result.batch:>5}      noisy  {result.noise}"
    shares = "  ".join(
        f"{seconds / split.token:>{len(column)}.1%}"
        for seconds, column in zip(split.phases.values(), COLUMNS, strict=True)
    )
    graph, behind = ("" if result.splits[0].basis == MODELLED else _change(result, mode) for mode in _GRAPHS)
    bar = _bar(split.phases, split.token, width)
    return f"{result.batch:>5} {split.token * 1e3:>7.3f} ms  {bar}  {shares}  {graph:>10}  {behind:>5}".rstrip()


_GRAPHS = (GRAPH_SYNC, GRAPH_ASYNC)


def _change(result: BatchResult, mode: str) -> str:
    reclaimable = result.reclaimable(mode)
    return "" if reclaimable is None else f"{-reclaimable:+.0%}"


def _bar(phases: dict[str, float], token: float, width: int) -> str:
    """Return the phases as one bar of fixed width; cumulative rounding keeps it from growing or shrinking."""
    bar, begun, total = "", 0, 0.0
    for phase in PHASES:
        total += phases[phase]
        end = round(total / token * width)
        bar += click.style(GLYPHS[phase] * (end - begun), fg=COLOURS[phase])
        begun = end
    return bar


def _words(cycle: Cycle) -> Iterator[str]:
    """Say what the smallest batch shows and how sure it is, where that changes, and under which conditions."""
    measured = [result for result in cycle.results if result.split is not None]
    if measured:
        yield from _finding(measured[0])
        yield from _crossing(measured)
        yield from _whole_model(cycle.identity, measured[0])
    else:
        yield "No batch size gave a split: something else used the device or the CPU. Try again when it is quiet."
    yield from _costs(cycle.costs)
    name = verdict(cycle.costs, cycle.results).name
    if name is not None:
        yield f"Conditions: {name}."


def _crossing(results: Sequence[BatchResult]) -> Iterator[str]:
    crossing = crossing_batch(results)
    if crossing == math.inf:
        yield "At every batch size the host takes longer to launch a step than the GPU to run it."
    elif crossing is not None:
        yield f"Below batch {math.ceil(crossing)} the host takes longer to launch a step than the GPU to run it."


def _finding(result: BatchResult) -> Iterator[str]:
    one = result.splits[0]
    line = f"At batch {result.batch}, {_lost(one)} of each token is lost to the host, the control layer"
    if one.basis == MODELLED:
        yield f"{line}: modelled, since others keep the GPU busy."
        return
    reclaimable, behind = result.reclaimable(GRAPH_SYNC), result.reclaimable(GRAPH_ASYNC)
    if reclaimable is not None:
        line += f"; a CUDA graph would give back {reclaimable:.0%}"
    if behind is not None:
        line += f", and {behind:.0%} with the token read back one step behind"
    yield f"{line}."


def _lost(one: SplitResult) -> str:
    error = one.errors.get(CONTROL_RATIO)
    margin = "" if error is None else f" (± {200 * error:.1f} points)"
    return f"{one.split.control_ratio:.0%}{margin}"


def _whole_model(identity: Identity, result: BatchResult) -> Iterator[str]:
    for one in result.splits:
        if one.basis == EXTRAPOLATED and identity.shape in SHAPES:
            yield (
                f"Extrapolated to the {SHAPES[identity.shape].full_layers} layers of a whole model: "
                f"{one.split.token * 1e3:.1f} ms a token, {_lost(one)} of it lost."
            )


def _costs(costs: Costs) -> Iterator[str]:
    """Say what single things cost, those that are known."""
    micro = {"a launch": costs.launch, "a graph's launch": costs.graph_launch, "a graph's node": costs.graph_node}
    parts = [f"{name} {seconds * 1e6:.1f} us" for name, seconds in micro.items() if seconds is not None]
    pairs = {"a round trip": costs.round_trip, "a wake-up late by": costs.wakeup}
    parts += [f"{name} {pair[0] * 1e6:.0f} us (P99 {pair[1] * 1e6:.0f})" for name, pair in pairs.items() if pair]
    if costs.copy_bandwidth is not None:
        parts.append(f"a copy {costs.copy_bandwidth / 1e12:.2f} TB/s")
    yield f"Costs: {', '.join(parts)}."
