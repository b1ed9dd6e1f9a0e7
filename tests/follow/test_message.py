"""MESSAGE, in the forms that journalctl writes it."""

from typing import Any

import pytest

from solpi_exporter.follow.message import message


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("ready", b"ready"),
        ([27, 91, 51, 109], b"\x1b[3m"),
        ([255, 254], b"\xff\xfe"),
        (["one", [116, 119, 111]], b"one two"),
        ("two\nlines", b"two lines"),
        ([97, 10, 98], b"a b"),
        (None, b""),
        ([], b""),
    ],
)
def test_every_form_is_one_line(field: Any, text: bytes) -> None:
    """Text, bytes, several of these, and null where it was too long."""
    assert message(field) == text


@pytest.mark.parametrize("field", [[300], [-1], [1.5], {}, 7, [[300]], "\ud800", [None]])
def test_what_no_journal_writes_is_no_error(field: Any) -> None:
    """A value that is no byte, or half a surrogate pair: whoever exported the journal may have damaged it."""
    assert message(field) in (b"", b"?")
