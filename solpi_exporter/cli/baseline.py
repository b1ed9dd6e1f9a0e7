"""What `probe --save-baseline` and `probe --compare` do: measure several cycles, keep them, or judge them by a file."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NoReturn

import click

from solpi_exporter.cli.comparison import as_json as comparison_json
from solpi_exporter.cli.comparison import machine, report
from solpi_exporter.cli.options import Fatal
from solpi_exporter.cli.serve import INTERRUPTED, leave
from solpi_exporter.clock import SystemClock
from solpi_exporter.environment import CpuWaiting, surroundings
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.host.model import cpu_model
from solpi_exporter.probe.baseline import RUNS, Baseline, Fingerprint, conditions, figures_of, fingerprint_of, over
from solpi_exporter.probe.baseline_file import BaselineUnusable, check_new, encoded, read_baseline, write_baseline
from solpi_exporter.probe.compare import WORSE, Incomparable, check_comparable, compare
from solpi_exporter.probe.result import VERDICTS, Cycle, Identity, verdict
from solpi_exporter.probe.surroundings import Surroundings
from solpi_exporter.source import Reading, SourceError

QUIET = VERDICTS[False, False]
DRIVER_SECONDS = 10.0  # as long as a driver may take that is loaded for this
INTERVAL_SECONDS = 5.0  # of a source that is polled once: any will do

Measure = Callable[[int, Callable[[Identity], None]], Sequence[Cycle]]
Check = Callable[[Fingerprint], None]


def save_or_compare(measure: Measure, save: Path | None, known: Path | None, *, as_json: bool) -> NoReturn:
    """Do what was asked for and end the program: 0, 1 where something got worse, 2 where nothing can be said.

    `measure` is told how many cycles to measure and whom to tell on what, before it begins.
    """
    try:
        if known is None:
            assert save is not None
            status = _save(measure, save, as_json=as_json)
        elif save is None:
            status = _compare(measure, known, as_json=as_json)
        else:
            raise click.UsageError("--save-baseline and --compare: give one of both")
    except (BaselineUnusable, Incomparable) as error:
        raise Fatal(str(error)) from error
    except KeyboardInterrupt:  # click's own status for it would say that something got worse
        leave(INTERRUPTED)
    leave(status)


def _save(measure: Measure, path: Path, *, as_json: bool) -> int:
    check_new(path)
    made = _measured(measure, lambda fingerprint: None)
    write_baseline(path, made)
    under = made.surroundings.conditions
    if as_json:
        click.echo(encoded(made), nl=False)
    else:
        click.echo(f"saved as {path}: {machine(made.fingerprint)}; {len(made.figures)} figures over {RUNS} runs")
    if under not in (QUIET, None):
        click.echo(f"{path}: measured under the conditions {under}: a baseline should be of a quiet machine", err=True)
    return 0


def _compare(measure: Measure, path: Path, *, as_json: bool) -> int:
    before = read_baseline(path)
    now = _measured(measure, partial(check_comparable, before.fingerprint))
    result = compare(before, now)
    colour = False if os.environ.get("NO_COLOR") else None
    for line in [comparison_json(before, now, result)] if as_json else report(before, now, result, str(path)):
        click.echo(line, color=colour)
    return int(bool(result.those(WORSE)))


def _measured(measure: Measure, check: Check) -> Baseline:
    """Measure a baseline; `check` may end that before it begins."""
    clock, cpu = SystemClock(), cpu_model()
    waiting = CpuWaiting(clock)

    def ready(identity: Identity) -> None:
        check(fingerprint_of(identity, cpu))
        waiting.begin()

    cycles = measure(RUNS, ready)
    identity = cycles[0].identity
    figures = over([figures_of(one.costs, one.results) for one in cycles])
    if all(figure.batch is None for figure in figures):
        raise Fatal(f"no run counts: {_why(cycles)}: try again when the machine is quiet")
    around = replace(_around(identity, cycles), cpu_waiting=waiting.share())
    return Baseline(fingerprint_of(identity, cpu), around, clock.time(), figures)


def _why(cycles: Sequence[Cycle]) -> str:
    """Return why there is no split in any of the cycles."""
    if any(verdict(one.costs, one.results).gpu_contended for one in cycles):
        return "others keep the GPU busy"
    return next(
        (result.noise for one in cycles for result in one.results if result.noise is not None), "all were noisy"
    )


def _around(identity: Identity, cycles: Sequence[Cycle]) -> Surroundings:
    """Return how the machine is set up; the GPU's clocks and link are those right after the work."""
    clocks = [one.costs.clock for one in cycles if one.costs.clock is not None]
    return replace(
        surroundings(identity, _gpu_readings() if identity.device != "cpu" else ()),
        sm_clock=median(clocks) if clocks else None,
        conditions=conditions([(one.costs, one.results) for one in cycles]),
    )


def _gpu_readings() -> Sequence[Reading]:
    source = GpuSource(NvmlDriver(), SystemClock(), INTERVAL_SECONDS, DRIVER_SECONDS)
    try:
        return source.poll()
    except SourceError as error:
        click.echo(f"the GPU's setup is not recorded: {error}", err=True)
        return ()
    finally:
        source.close()
