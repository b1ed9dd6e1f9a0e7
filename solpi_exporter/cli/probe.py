"""probe: the decode probe now, as a table with bars and what it says in words, or as JSON."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from solpi_exporter.cli.baseline import save_or_compare
from solpi_exporter.cli.options import CONFIG, Fatal, settings_from
from solpi_exporter.cli.probe_table import report
from solpi_exporter.clock import SystemClock
from solpi_exporter.config import ProbeSettings
from solpi_exporter.probe.plan import THOROUGH
from solpi_exporter.probe.result import EAGER_SYNC, MEASURED, BatchResult, Bench, Cycle, Identity, verdict
from solpi_exporter.probe.shape import SHAPES
from solpi_exporter.source import SourceError
from solpi_exporter.sources import bench_opener

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(short_help="Show what a decoded token is spent on.")
@CONFIG
@click.option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or a UUID.  [default: auto]")
@click.option("--shape", type=click.Choice(["auto", *SHAPES]), help="Width of the decoded layer.  [default: auto]")
@click.option("--context", type=int, help="Tokens in the KV cache of each sequence.  [default: 512]")
@click.option("--layers", type=int, help="How often the layer is run.  [default: 4]")
@click.option("--batch", "batches", type=int, multiple=True, help="Batch size, repeatable.  [default: 1 2 4 ... 64]")
@click.option("--json", "as_json", is_flag=True, help="Print everything measured as one JSON object.")
@click.option("--save-baseline", "save", type=FILE, metavar="FILE", help="Measure several times and save that as FILE.")
@click.option("--compare", "known", type=FILE, metavar="FILE", help="Measure and judge it by the baseline in FILE.")
def probe(
    config: Path | None,
    batches: tuple[int, ...],
    as_json: bool,
    save: Path | None,
    known: Path | None,
    **flags: str | int | None,
) -> None:
    """Decode a token now and show what it is spent on, one row a batch size.

    \b
    compute      the GPU computing, streaming the weights included
    memory       its traffic to the KV cache
    scheduling   the GPU idle because the host had not launched yet
    sync         reading the token back, and the host noticing

    Scheduling and sync are the control layer: what CUDA graphs and a better host give back. On a CPU, scheduling is
    the dispatch of the calls, and there are no graphs.

    On a machine known to be good, save a baseline; after any change of the environment compare with it:

    \b
      solpi-exporter probe --save-baseline good.json
      solpi-exporter probe --compare good.json

    The status of --compare is 0 where nothing got worse, 1 where something did, 2 where nothing can be said.
    """
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    if batches:
        given |= {"batches": list(batches), "rotation": []}
    settings = settings_from(config, {"probe": given}).probe
    if save is not None or known is not None:
        save_or_compare(partial(_measure, settings), save, known, as_json=as_json)
    (cycle,) = _measure(settings)
    colour = False if os.environ.get("NO_COLOR") else None
    for line in [_as_json(cycle)] if as_json else report(cycle):
        click.echo(line, color=colour)


def _measure(settings: ProbeSettings, runs: int = 1, ready: Callable[[Identity], None] | None = None) -> list[Cycle]:
    """Measure so many cycles on one bench; `ready` is called when that has been made."""
    batches = sorted((*settings.batches, *settings.others))
    if sys.stderr.isatty():
        click.echo("preparing torch and the device ...", err=True)
    try:
        bench = bench_opener(settings, THOROUGH, SystemClock())()
        with contextlib.closing(bench):
            if ready is not None:
                ready(bench.identity)
            return [_cycle(bench, batches) for _ in range(runs)]
    except SourceError as error:
        raise Fatal(str(error)) from error


def _cycle(bench: Bench, batches: list[int]) -> Cycle:
    quiet: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    costs = bench.costs(quiet)
    with click.progressbar(batches, label="decoding", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        return Cycle(bench.identity, costs, [bench.measure(batch, quiet) for batch in bar])


def _as_json(cycle: Cycle) -> str:
    plain = {
        "identity": dataclasses.asdict(cycle.identity),
        "costs": dataclasses.asdict(cycle.costs),
        "conditions": verdict(cycle.costs, cycle.results).name,
        "results": [_plain(result) for result in cycle.results],
    }
    return json.dumps(plain, indent=2)


def _plain(result: BatchResult) -> dict[str, Any]:
    plain = dataclasses.asdict(result)
    for one, its in zip(result.splits, plain["splits"], strict=True):
        its["split"]["control_ratio"] = one.split.control_ratio
    if result.splits and result.splits[0].basis == MEASURED:
        graphs = [mode for mode in result.modes if mode != EAGER_SYNC]
        plain["reclaimable_ratio"] = {mode: result.reclaimable(mode) for mode in graphs}
        plain["reclaimable_ratio_at_full_depth"] = {mode: result.reclaimable_at_full_depth(mode) for mode in graphs}
    return plain
