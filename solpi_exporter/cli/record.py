"""record: what NVML answers on this host over a while, as a file for a bug report or a test."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click

from solpi_exporter.cli.options import Fatal
from solpi_exporter.cli.serve import leave
from solpi_exporter.clock import Clock, SystemClock
from solpi_exporter.gpu.driver import Driver
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.record import RecordingDriver
from solpi_exporter.gpu.recording import Frame, dump
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.source import SourceError

TIMEOUT_SECONDS = 10.0  # as long as a driver may take that is loaded for this


@click.command(short_help="Record what the GPUs' driver answers.")
@click.option("--seconds", type=click.FloatRange(0, 3600), default=60.0, show_default=True, help="How long.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="From one to the next."
)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File; standard output if none.")
def record(seconds: float, interval: float, output: Path | None) -> None:
    """Write down what NVML answers on this host while every GPU is read as the daemon reads it.

    The file helps to mend what we have no GPU for: attach it to a bug report. UUIDs are masked, and serial numbers,
    host names and command lines are not in it; process ids, PCI addresses and versions are. Its form is described in
    solpi_exporter/gpu/recording.py.
    """
    try:
        with sys.stdout if output is None else output.open("w") as file:
            file.write(dump(frames(NvmlDriver(), SystemClock(), seconds, interval)))
            file.flush()
    except SourceError as error:
        raise Fatal(str(error)) from error
    except OSError as error:
        raise Fatal(f"{output}: cannot be written: {error.strerror}") from error
    leave(0)


def frames(driver: Driver, clock: Clock, seconds: float, interval: float) -> Iterator[Frame]:
    """Yield a frame of answers for each reading; the first and the last lie `seconds` apart.

    Its time is Unix time at the beginning, and runs on undisturbed. A driver that fails on the way ends the recording,
    and so does Ctrl-C.
    """
    recording = RecordingDriver(driver)
    source = GpuSource(recording, clock, interval, TIMEOUT_SECONDS)
    begun, offset = clock.monotonic(), clock.time() - clock.monotonic()
    stop = threading.Event()
    try:
        source.poll()
        yield clock.monotonic() + offset, recording.frame()
        while clock.monotonic() < begun + seconds:
            try:
                clock.wait(stop, interval)
                source.poll()
            except KeyboardInterrupt:
                return
            except SourceError as error:
                click.echo(f"ended after {clock.monotonic() - begun:.0f} s: {error}", err=True)
                return
            yield clock.monotonic() + offset, recording.frame()
    finally:
        source.close()
