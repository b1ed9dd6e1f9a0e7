"""What repeats in the program's own log."""

import pytest
import structlog

from solpi_exporter.repeats import MOST, SECONDS, Repeats
from tests.fakes import FakeClock


def passes(repeats: Repeats, event: str) -> bool:
    try:
        repeats(None, "info", {"event": event})
    except structlog.DropEvent:
        return False
    return True


def test_so_many_pass_and_no_more() -> None:
    """Of one event; another is not held back for it."""
    repeats = Repeats(FakeClock().monotonic)

    assert [passes(repeats, "gpu_xid") for _ in range(MOST + 3)] == [True] * MOST + [False] * 3
    assert passes(repeats, "gpu_state")


def test_how_many_were_held_back_is_told_with_the_next() -> None:
    """Once, a minute after the first; then counting begins again."""
    clock = FakeClock()
    repeats = Repeats(clock.monotonic)
    for _ in range(MOST + 3):
        passes(repeats, "gpu_xid")

    clock.now += SECONDS

    assert repeats(None, "info", {"event": "gpu_xid", "xid": 79}) == {"event": "gpu_xid", "xid": 79, "held_back": 3}
    assert repeats(None, "info", {"event": "gpu_xid"}) == {"event": "gpu_xid"}


@pytest.mark.parametrize("number", [1, MOST])
def test_what_was_not_held_back_is_not_mentioned(number: int) -> None:
    """An event stays as it is."""
    clock = FakeClock()
    repeats = Repeats(clock.monotonic)
    for _ in range(number):
        passes(repeats, "listening")

    clock.now += SECONDS

    assert repeats(None, "info", {"event": "listening"}) == {"event": "listening"}
