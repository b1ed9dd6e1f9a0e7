"""The program's own log: structlog to standard error, for a person on a terminal, as fields in systemd's journal, else
as logfmt or JSON.

The logger is made here and handed on; nothing is configured globally.
"""

import logging
import os
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from solpi_exporter.journald import SOCKET, JournalLogger, fields, is_journal
from solpi_exporter.repeats import Repeats

FORMATS = ("auto", "console", "logfmt", "json")
LEVELS = ("debug", "info", "warning", "error")


class _Forgiving:
    """A stream whose reader or disk may be gone: monitoring goes on without its log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def make_logger(log_format: str, level: str, stream: TextIO = sys.stderr) -> FilteringBoundLogger:
    """Return a logger that writes events of at least `level` to `stream`, one line or journal entry each."""
    forgiving = cast(TextIO, _Forgiving(stream))
    to_journal = log_format == "auto" and is_journal(stream, os.environ)
    logger = structlog.wrap_logger(
        JournalLogger(forgiving, SOCKET) if to_journal else structlog.PrintLogger(forgiving),
        processors=[
            structlog.processors.add_log_level,
            Repeats(),
            *(_FOR_JOURNAL if to_journal else _rendering(log_format, stream.isatty())),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=False,
    )
    return cast(FilteringBoundLogger, logger.bind())


def _rendering(log_format: str, terminal: bool) -> list[Processor]:
    """Return what makes a line of an event; who reads a console knows the wall clock, a collector of logs UTC."""
    person = log_format == "console" or (log_format == "auto" and terminal)
    stamp = structlog.processors.TimeStamper("%H:%M:%S" if person else "iso", utc=not person)
    if person:
        plain, colours = structlog.dev.plain_traceback, terminal and not os.environ.get("NO_COLOR")
        return [stamp, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
    # One line an event: a traceback becomes one quoted value.
    last: Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    )
    return [stamp, structlog.processors.format_exc_info, last]


def _journal_entry(_: object, __: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """Return what is read of an event, its name and its values, and all of it as fields; the journal has the time."""
    said = {key: value for key, value in event.items() if key not in ("event", "level", "exception")}
    values = structlog.processors.LogfmtRenderer()(None, "", said)
    traceback = f"\n{event['exception']}" if "exception" in event else ""
    return (f"{event['event']} {values}".rstrip() + traceback,), fields(event)


_FOR_JOURNAL: tuple[Processor, ...] = (structlog.processors.format_exc_info, _journal_entry)
