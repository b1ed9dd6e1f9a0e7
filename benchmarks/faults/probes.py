"""Hosts with a probe: one that replays what was recorded on an H200, and one that really decodes, on the host's CPU."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.faults.daemon import Daemon, Stage, running
from benchmarks.faults.rows import good_day
from solpi_exporter.host.model import cpu_model
from solpi_exporter.probe.baseline import Baseline, figures_of, fingerprint_of, over
from solpi_exporter.probe.baseline_file import encoded
from solpi_exporter.probe.surroundings import Surroundings

ROOT = Path(__file__).parents[2]
PERIOD = 10.0  # seconds: a thirtieth of the default
ALONE = """
state_dir = "{folder}/state"
[gpu]
enabled = false
[host]
enabled = false
[engine]
enabled = false
"""
PROBE = """
[probe]
enabled = true
interval = {period}
baseline = "{folder}/baseline.json"
rotation = []
"""
REPLAYED = """isolation = "worker"
python = "{folder}/python"
batches = [1, 8]
"""
ON_CPU = """device = "cpu"
shape = "small"
batches = [1]
"""
HOGS = 3  # on one CPU, beside the probe
SHOWN = ("solpi_probe_token_seconds", "solpi_probe_baseline_token_seconds")


def recorded_worker(fault: str, folder: Path) -> Path:
    """Write what stands in for a Python with torch, and a baseline; return the file that is the fault."""
    python, faulty = folder / "python", folder / "faulty"
    command = shlex.join([sys.executable, "-m", "benchmarks.faults.rows", fault, str(faulty)])
    python.write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {command}\n")
    python.chmod(0o700)
    (folder / "baseline.json").write_bytes(encoded(_baseline(fault)))
    return faulty


def probe_settings(folder: Path) -> str:
    """Return the table of the settings by which a daemon runs that worker."""
    return (PROBE + REPLAYED).format(folder=folder, period=PERIOD)


@contextmanager
def replayed(fault: str, _: Path, folder: Path) -> Iterator[Stage]:
    """Run a host whose worker replays rows; its baseline is of all those without a fault."""
    folder.mkdir()
    faulty = recorded_worker(fault, folder)
    settings = ALONE.format(folder=folder) + probe_settings(folder)
    with running(Daemon(folder, settings, os.environ)) as daemon:
        yield Stage(daemon.port, lambda: all(map(daemon.shows, SHOWN)), faulty.touch)


def _baseline(fault: str) -> Baseline:
    good = good_day(fault)
    fingerprint = fingerprint_of(good[0].identity, cpu_model())
    figures = over([figures_of(one.costs, one.results) for one in good])
    return Baseline(fingerprint, Surroundings(), time.time(), figures)


@contextmanager
def starved(_: Path, folder: Path) -> Iterator[Stage]:
    """Run a host whose last CPU the probe has to itself, until others take it from it."""
    folder.mkdir()
    cpu = str(max(os.sched_getaffinity(0)))
    pinned = ("taskset", "--cpu-list", cpu)
    solpi = (sys.executable, "-m", "solpi_exporter", "probe", "--device", "cpu", "--shape", "small", "--batch", "1")
    saved = ("--save-baseline", str(folder / "baseline.json"))
    subprocess.run([*pinned, *solpi, *saved], check=True, stdout=subprocess.DEVNULL)
    settings = (ALONE + PROBE + ON_CPU).format(folder=folder, period=PERIOD)
    with (
        running(Daemon(folder, settings, os.environ, before=pinned)) as daemon,
        ExitStack() as hogs,
    ):

        def inject() -> None:
            command = ["stress-ng", "--quiet", "--cpu", str(HOGS), "--taskset", cpu]
            hogs.callback(subprocess.Popen(command).terminate)

        yield Stage(daemon.port, lambda: all(map(daemon.shows, SHOWN)), inject)
