"""probe: the decode probe now, as a table with bars or as JSON."""

import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from solpi_exporter.cli.options import CONFIG, Fatal, settings_from
from solpi_exporter.probe.bench import CONTROL_RATIO, GRAPH_SYNC, BatchResult, Bench, Identity
from solpi_exporter.probe.shape import SHAPES
from solpi_exporter.probe.source import open_bench
from solpi_exporter.probe.split import PHASES
from solpi_exporter.source import SourceError

BAR = 32  # signs, where there is room; the rest of a row takes
REST = 81
GLYPHS = {"compute": "█", "memory": "▓", "scheduling": "▒", "sync": "░"}
COLUMNS = tuple(f"{glyph} {phase}" for phase, glyph in GLYPHS.items())
COLOURS = {"compute": "green", "memory": "blue", "scheduling": "red", "sync": "yellow"}


@click.command(short_help="Show what a decoded token is spent on.")
@CONFIG
@click.option("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N.  [default: auto]")
@click.option("--shape", type=click.Choice(["auto", *SHAPES]), help="Width of the decoded layer.  [default: auto]")
@click.option("--batch", "batches", type=int, multiple=True, help="Batch size, repeatable.  [default: 1 8 32]")
@click.option("--json", "as_json", is_flag=True, help="Print everything measured as one JSON object.")
def probe(config: Path | None, device: str | None, shape: str | None, batches: tuple[int, ...], as_json: bool) -> None:
    """Decode a token now and show what it is spent on, one row a batch size.

    \b
    compute      the GPU computing, streaming the weights included
    memory       its traffic to the KV cache
    scheduling   the GPU idle because the host had not launched yet
    sync         reading the token back, and the host noticing

    Scheduling and sync are the control layer: what CUDA graphs and a better host give back. On a CPU, scheduling is
    the dispatch of the calls, and there are no graphs.
    """
    flags = {"device": device, "shape": shape, "batches": list(batches) or None}
    given = {key: value for key, value in flags.items() if value is not None}
    settings = settings_from(config, {"probe": given}).probe
    if sys.stderr.isatty():
        click.echo("preparing torch and the device ...", err=True)
    try:
        bench = open_bench(settings.device, settings.shape, settings.batches)
        results = list(_measure(bench, settings.batches))
    except SourceError as error:
        raise Fatal(str(error)) from error
    colour = False if os.environ.get("NO_COLOR") else None
    lines = [_as_json(bench.identity, results)] if as_json else _table(bench.identity, results, _bar_width())
    for line in lines:
        click.echo(line, color=colour)


def _measure(bench: Bench, batches: Sequence[int]) -> Iterator[BatchResult]:
    quiet: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    hidden = not sys.stderr.isatty()
    with click.progressbar(batches, label="decoding", file=sys.stderr, hidden=hidden) as bar:
        for batch in bar:
            yield bench.measure(batch, quiet)


def _as_json(identity: Identity, results: Sequence[BatchResult]) -> str:
    return json.dumps(
        {"identity": dataclasses.asdict(identity), "results": [_plain(result) for result in results]}, indent=2
    )


def _plain(result: BatchResult) -> dict[str, Any]:
    plain = dataclasses.asdict(result)
    if result.split is not None:
        plain["split"]["control_ratio"] = result.split.control_ratio
        plain["reclaimable_ratio"] = {mode: result.reclaimable(mode) for mode in result.modes}
    return plain


def _bar_width() -> int:
    """Return how wide a bar may be: on a narrow terminal a row would wrap, in a pipe there is room."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else BAR + REST
    return max(0, min(BAR, columns - REST))


def _table(one: Identity, results: Sequence[BatchResult], width: int) -> Iterator[str]:
    yield (
        f"{one.model} ({one.device}), {one.shape} shape: {one.layers} layers, context {one.context}, {one.dtype}, "
        f"torch {one.torch}"
    )
    yield ""
    yield f"batch      token  {'what it is spent on':{width}.{width}}  {'  '.join(COLUMNS)}  as a graph"
    for result in results:
        yield _row(result, width)
    yield ""
    yield from _summary(results)


def _row(result: BatchResult, width: int) -> str:
    split = result.split
    if split is None:
        return f"{result.batch:>5}      noisy  {result.noise}"
    shares = "  ".join(
        f"{seconds / split.token:>{len(column)}.1%}"
        for seconds, column in zip(split.phases.values(), COLUMNS, strict=True)
    )
    reclaimable = result.reclaimable(GRAPH_SYNC)
    graph = "" if reclaimable is None else f"{-reclaimable:+.0%}"
    bar = _bar(split.phases, split.token, width)
    return f"{result.batch:>5} {split.token * 1e3:>7.3f} ms  {bar}  {shares}  {graph:>10}".rstrip()


def _bar(phases: dict[str, float], token: float, width: int) -> str:
    """Return the phases as one bar of fixed width; cumulative rounding keeps it from growing or shrinking."""
    bar, begun, total = "", 0, 0.0
    for phase in PHASES:
        total += phases[phase]
        end = round(total / token * width)
        bar += click.style(GLYPHS[phase] * (end - begun), fg=COLOURS[phase])
        begun = end
    return bar


def _summary(results: Sequence[BatchResult]) -> Iterator[str]:
    """Say in words what the smallest batch shows, how sure it is, and that nothing was lost in splitting."""
    measured = [result for result in results if result.split is not None]
    if not measured:
        yield "No batch size gave a split: something else used the device or the CPU. Try again when it is quiet."
        return
    first = measured[0]
    split = first.split
    assert split is not None
    error = first.errors.get(CONTROL_RATIO)
    margin = "" if error is None else f" (± {200 * error:.1f} points)"
    line = f"At batch {first.batch}, {split.control_ratio:.0%}{margin} of each token goes to the control layer"
    reclaimable = first.reclaimable(GRAPH_SYNC)
    yield line + ("." if reclaimable is None else f"; as a CUDA graph the same step takes {reclaimable:.0%} less.")
    worst = max(abs(sum(one.split.phases.values()) - one.split.token) for one in measured if one.split is not None)
    yield f"The phases sum to the token: the difference is {worst * 1e9:.3f} ns."
