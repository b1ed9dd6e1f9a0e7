"""A baseline as a file: JSON that begins with its format's number, read strictly and replaced as a whole."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from solpi_exporter.probe.baseline import Baseline

FORMAT = 1
SAVE_AGAIN = "save a new one with `solpi-exporter probe --save-baseline`"


class BaselineUnusable(Exception):
    """A file cannot be read, or written, as a baseline; the message is one line: which, why, what to do."""


class _Head(msgspec.Struct, frozen=True):
    """What every format begins with."""

    solpi_probe_baseline: int


class _File(msgspec.Struct, frozen=True):
    """The whole of format 1. What a later program adds to it without need for a new format is passed over."""

    solpi_probe_baseline: int
    baseline: Baseline


def encoded(baseline: Baseline) -> bytes:
    """Return the file's content."""
    return msgspec.json.format(msgspec.json.encode(_File(FORMAT, baseline)), indent=2) + b"\n"


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in a file; raise BaselineUnusable."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BaselineUnusable(f"{path}: cannot be read: {error.strerror}") from error
    try:
        _check_head(path, data)
        return msgspec.json.decode(data, type=_File).baseline
    except (ValueError, RecursionError) as error:
        raise BaselineUnusable(f"{path}: is damaged: {error}: {SAVE_AGAIN}") from error


def _check_head(path: Path, data: bytes) -> None:
    """Raise BaselineUnusable for a file of something else, or of a later format; ValueError for no JSON at all."""
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError as error:
        raise BaselineUnusable(f"{path}: is no baseline of this probe: {SAVE_AGAIN}") from error
    if head.solpi_probe_baseline != FORMAT:
        raise BaselineUnusable(
            f"{path}: is of format {head.solpi_probe_baseline}, this program reads {FORMAT}: "
            f"use the program that saved it, or {SAVE_AGAIN}"
        )


def check_new(path: Path) -> None:
    """Raise BaselineUnusable where a baseline cannot be saved, as far as can be told before it was measured."""
    if path.exists():
        raise BaselineUnusable(f"{path}: is there already, and is not written over: remove it, or name another file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise BaselineUnusable(f"{path}: cannot be written: {path.parent} is no directory that this user may write to")


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a file wholly or not at all; raise BaselineUnusable."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new.open("xb") as file:
            file.write(encoded(baseline))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise BaselineUnusable(f"{path}: cannot be written: {error.strerror}") from error
