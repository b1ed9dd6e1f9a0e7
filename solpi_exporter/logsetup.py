"""The program's own log: structlog to standard error, for a person on a terminal and as logfmt or JSON elsewhere.

The logger is made here and handed on; nothing is configured globally.
"""

import logging
import os
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

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
    """Return a logger that writes events of at least `level` to `stream`, one line each."""
    terminal = stream.isatty()
    colours = terminal and not os.environ.get("NO_COLOR")
    if log_format == "auto":
        log_format = "console" if terminal else "logfmt"
    person = log_format == "console"  # who reads the wall clock; a collector of logs reads UTC
    stamp = structlog.processors.TimeStamper("%H:%M:%S" if person else "iso", utc=not person)
    logger = structlog.wrap_logger(
        structlog.PrintLogger(cast(TextIO, _Forgiving(stream))),
        processors=[structlog.processors.add_log_level, stamp, *_rendering(log_format, colours)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=False,
    )
    return cast(FilteringBoundLogger, logger.bind())


def _rendering(log_format: str, colours: bool) -> list[Processor]:
    if log_format == "console":
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
    # One line an event: a traceback becomes one quoted value.
    trace = structlog.processors.format_exc_info
    if log_format == "json":
        return [trace, structlog.processors.JSONRenderer()]
    return [trace, structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])]
