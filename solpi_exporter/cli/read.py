"""read: what a log reports, line by line, as the daemon would understand it."""

import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from lzma import LZMAError
from pathlib import Path
from typing import IO, Any

import click

from solpi_exporter.cli.options import Fatal
from solpi_exporter.clock import SystemClock
from solpi_exporter.engine.dialects.table import AUTO, DIALECTS, chosen
from solpi_exporter.engine.envelope import ENVELOPES
from solpi_exporter.engine.listener import Listener
from solpi_exporter.engine.transcript import Transcript
from solpi_exporter.follow.opened import COMPRESSIONS

STANDARD_INPUT = "-"


@click.command(short_help="Show what a log reports, line by line.")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option(
    "--dialect", type=click.Choice((AUTO, *DIALECTS)), default=AUTO, show_default=True, help="Whose log it is."
)
@click.option(
    "--envelope", type=click.Choice(ENVELOPES), default=AUTO, show_default=True, help="What its lines are wrapped in."
)
def read(logs: tuple[str, ...], dialect: str, envelope: str) -> None:
    """Print one JSON object for each line of a log that reports something, and a count for each log.

    LOG is a file, also a compressed one (.gz, .xz, .bz2), or - for standard input. `line` is its number, `time` is in
    Unix seconds, `engine` the one that it speaks of; all other values are in base units under their metric's name
    without `solpi_engine_`. No text of the log is printed but versions, models and settings: attach the output to a
    bug report. A line without a year is taken to be of the last one before the file was changed last.
    """
    for name in logs:
        try:
            with _opened(name) as file:
                _print(Transcript(Listener(chosen(dialect), envelope)), file, name)
        except BrokenPipeError:
            raise
        except (OSError, EOFError, zlib.error, LZMAError) as error:
            raise Fatal(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise Fatal("-: standard input is closed")
        yield sys.stdin.buffer
        return
    with FileIO(name) as file:
        unpack = COMPRESSIONS.get(Path(name).suffix)
        yield BufferedReader(file) if unpack is None else unpack(file)


def _print(transcript: Transcript, file: IO[bytes], name: str) -> None:
    now = SystemClock().time() if name == STANDARD_INPUT else Path(name).stat().st_mtime
    for report in transcript.read(file, name, now):
        _write(report)
    _write({"log": name, **transcript.summary()})


def _write(report: dict[str, Any]) -> None:
    try:
        click.echo(json.dumps(report))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Fatal(f"standard output: cannot be written: {error.strerror}") from error
