"""Entries of the journal, received as journald does; tests/booted has the real one."""

import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from solpi_exporter.journald import JournalLogger, fields, is_journal


class Journald:
    """Receives datagrams and takes them apart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(5.0)

    def entry(self) -> dict[str, str]:
        """Return the fields of the next entry."""
        rest, entry = self._socket.recv(1 << 20), {}
        while rest:
            head, _, rest = rest.partition(b"\n")
            name, simple, value = head.partition(b"=")
            if not simple:
                length = int.from_bytes(rest[:8], "little")
                value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
            entry[name.decode()] = value.decode()
        return entry

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[Journald]:
    one = Journald(tmp_path / "socket")
    yield one
    one.close()


def test_an_entry_has_a_field_for_each_value(journald: Journald) -> None:
    """Its name and level among them; a key that is no name for the journal is made one, None is left out."""
    event = {"event": "gpu_xid", "level": "error", "gpu": 0, "class": "hardware", "odd-key": "a=b", "uuid": None}

    JournalLogger(io.StringIO(), journald.path).msg("gpu_xid gpu=0", **fields(event))

    assert journald.entry() == {
        "MESSAGE": "gpu_xid gpu=0",
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "solpi-exporter",
        "SOLPI_EVENT": "gpu_xid",
        "SOLPI_GPU": "0",
        "SOLPI_CLASS": "hardware",
        "SOLPI_ODD_KEY": "a=b",
    }


def test_several_lines_are_one_value(journald: Journald) -> None:
    """Nor can a value that a log of somebody else brought along add a field of its own."""
    event = {"event": "source_failed", "level": "error", "error": "first\nPRIORITY=0\n"}

    JournalLogger(io.StringIO(), journald.path).msg("said\ntwice", **fields(event))

    entry = journald.entry()
    assert entry["MESSAGE"] == "said\ntwice"
    assert entry["SOLPI_ERROR"] == "first\nPRIORITY=0\n"
    assert entry["PRIORITY"] == "3"


def test_what_the_journal_does_not_take_is_a_line_of_standard_error(tmp_path: Path) -> None:
    """Where nobody listens; with its level as systemd reads it from lines."""
    stream = io.StringIO()

    JournalLogger(stream, tmp_path / "socket").msg("one\ntwo", **fields({"event": "e", "level": "warning"}))

    assert stream.getvalue() == "<4>one\\ntwo\n"


def test_an_entry_too_long_for_a_datagram_is_a_line(journald: Journald) -> None:
    """It is not lost."""
    stream = io.StringIO()

    JournalLogger(stream, journald.path).msg("x" * (1 << 24), **fields({"event": "e", "level": "info"}))

    assert len(stream.getvalue()) == (1 << 24) + 4


def test_a_stream_is_the_journal_if_systemd_says_so(tmp_path: Path) -> None:
    """By the numbers of its file: a stream that was led elsewhere has others, and one without a file has none."""
    with (tmp_path / "stream").open("w") as stream, (tmp_path / "other").open("w") as other:
        status = os.fstat(stream.fileno())
        environment = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}

        assert is_journal(stream, environment)
        assert not is_journal(other, environment)
        assert not is_journal(stream, {})
        assert not is_journal(io.StringIO(), environment)
    assert not is_journal(stream, environment)
