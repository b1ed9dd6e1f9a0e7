"""The program's own log."""

import io
import json
import os
from pathlib import Path

import pytest

from solpi_exporter import logsetup
from solpi_exporter.logsetup import FORMATS, make_logger
from solpi_exporter.repeats import MOST


def logged(log_format: str, level: str = "info") -> str:
    stream = io.StringIO()
    log = make_logger(log_format, level, stream)
    log.debug("quiet")
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        log.error("source_failed", source="gpu", error="no driver", exc_info=error)
    return stream.getvalue()


@pytest.mark.parametrize("log_format", ["auto", "logfmt", "json"])
def test_an_event_is_one_line(log_format: str) -> None:
    """Also with a traceback, so that a collector of logs does not tear it apart; in a pipe auto is logfmt."""
    assert logged(log_format).count("\n") == 1


def test_logfmt_begins_with_time_level_event() -> None:
    """What one looks for first."""
    keys = [part.partition("=")[0] for part in logged("logfmt").split(" ")[:4]]

    assert keys == ["timestamp", "level", "event", "source"]


def test_json_is_json() -> None:
    """With the traceback as a value, and a time that says its zone."""
    entry = json.loads(logged("json"))

    assert entry["timestamp"].endswith("Z")

    assert (entry["event"], entry["source"], entry["level"]) == ("source_failed", "gpu", "error")
    assert "ZeroDivisionError" in entry["exception"]


def test_levels_filter() -> None:
    """Debug shows what info hides."""
    assert "quiet" in logged("logfmt", "debug")
    assert "quiet" not in logged("logfmt", "info")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch, value: str, coloured: bool) -> None:
    """On a terminal too."""
    monkeypatch.setenv("NO_COLOR", value)
    stream = Terminal()

    make_logger("auto", "info", stream).info("listening", port=1)

    assert ("\x1b[" in stream.getvalue()) == coloured


def test_what_repeats_is_held_back() -> None:
    """Whatever it goes to."""
    stream = io.StringIO()
    log = make_logger("logfmt", "info", stream)

    for _ in range(MOST + 1):
        log.error("gpu_xid", xid=79)

    assert stream.getvalue().count("event=gpu_xid") == MOST


def test_in_the_journal_an_event_is_read_as_its_name_and_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without time and level, which the journal has; a traceback follows as lines. Nobody listens here."""
    monkeypatch.setattr(logsetup, "SOCKET", tmp_path / "socket")
    with (tmp_path / "stream").open("w") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        log = make_logger("auto", "info", stream)
        log.info("listening", address=":10048", port=1)
        log.error("source_failed", exc_info=ValueError("bad"))
        make_logger("logfmt", "info", stream).info("stopped")

    first, second, third = (tmp_path / "stream").read_text().splitlines()
    assert first == "<6>listening address=:10048 port=1"
    assert second.startswith("<3>source_failed\\n")
    assert second.endswith("ValueError: bad")
    assert third.endswith("level=info event=stopped")


class Broken(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_is_no_outage() -> None:
    """Monitoring is needed most when the disk is full."""
    make_logger("logfmt", "info", Broken()).error("source_failed", source="gpu")


@pytest.mark.parametrize("log_format", FORMATS)
def test_no_colours_in_a_pipe(log_format: str) -> None:
    """A stream that is no terminal gets plain text."""
    assert "\x1b[" not in logged(log_format)
