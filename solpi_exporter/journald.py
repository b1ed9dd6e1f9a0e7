"""Events of the program's own log as entries of systemd's journal, with a field for each of their values.

The journal's native protocol, a datagram an entry. What the journal does not take goes to standard error, which under
systemd ends there as well, as plain lines.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

SOCKET = Path("/run/systemd/journal/socket")
IDENTIFIER = "solpi-exporter"
PREFIX = "SOLPI_"  # so that no value takes the place of a field that means something to the journal
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # of syslog(3)
SEND_SECONDS = 0.5  # waited for a journald that is behind: nobody who logs may be held up by it
MOST_NAME = 64  # characters of a field's name, above which journald leaves it out

_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]")


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a stream ends in the journal: JOURNAL_STREAM has the numbers of its file."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def fields(event: Mapping[str, Any]) -> dict[str, str]:
    """Return an event's fields: its level as PRIORITY, its name as SOLPI_EVENT, each value as SOLPI_ and its key."""
    values = {_name(key): str(value) for key, value in event.items() if key != "level" and value is not None}
    return {"PRIORITY": str(PRIORITIES[event["level"]]), "SYSLOG_IDENTIFIER": IDENTIFIER, **values}


class JournalLogger:
    """Takes what is said and its fields to the journal at `path`, and what that refuses to `otherwise`."""

    def __init__(self, otherwise: TextIO, path: Path) -> None:
        self._otherwise = otherwise
        self._path = str(path)

    def msg(self, message: str, **fields: str) -> None:
        """Send one entry."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SEND_SECONDS)
                sender.sendto(b"".join(_encoded({"MESSAGE": message, **fields})), self._path)
        except OSError:  # no journald, one that is stuck, an entry too long for a datagram
            line = message.replace("\n", "\\n")
            print(f"<{fields['PRIORITY']}>{line}", file=self._otherwise, flush=True)

    debug = info = warning = error = critical = msg


def _name(key: str) -> str:
    return (PREFIX + _NOT_IN_NAMES.sub("_", key.upper()))[:MOST_NAME]


def _encoded(entry: Mapping[str, str]) -> Iterator[bytes]:
    """Yield fields as journald reads them: NAME=VALUE, or with its length where a value has several lines."""
    for name, text in entry.items():
        value = text.encode(errors="replace")
        if b"\n" in value:
            yield b"%s\n%s%s\n" % (name.encode(), len(value).to_bytes(8, "little"), value)
        else:
            yield b"%s=%s\n" % (name.encode(), value)
