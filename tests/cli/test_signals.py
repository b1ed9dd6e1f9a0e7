"""What signals ask of a daemon."""

import signal
from collections.abc import Iterator

import pytest

from solpi_exporter.cli.signals import HEEDED, RELOAD, Signals, stop_on_signals
from solpi_exporter.statedir import QUIESCED, RUNNING
from tests.serving import eventually


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave this process as it was."""
    before = {number: signal.getsignal(number) for number in HEEDED}
    yield
    for number, handler in before.items():
        signal.signal(number, signal.SIG_IGN)  # discards what was held back
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, before.keys())


def test_another_mode_stops_it_first() -> None:
    """The event is set, and the mode to go on in is known."""
    asked = Signals(RUNNING, lambda _: None)

    signal.raise_signal(signal.SIGUSR1)

    assert asked.stop.wait(5.0)
    assert asked.may_change()
    assert asked.wanted == QUIESCED


def test_settings_that_fit_are_taken_in_the_same_mode() -> None:
    """It stops, to go on as it is."""
    asked = Signals(QUIESCED, lambda _: None)

    signal.raise_signal(RELOAD)

    assert asked.stop.wait(5.0)
    assert asked.may_change()
    assert asked.wanted == QUIESCED


def test_settings_that_are_refused_change_nothing() -> None:
    """It goes on with what it has."""
    tried: list[bool] = []

    def refused() -> str:
        tried.append(True)
        return "log.level: expected one of ..."

    asked = Signals(RUNNING, lambda _: None, refused)

    signal.raise_signal(RELOAD)

    assert eventually(lambda: tried == [True])
    assert not asked.stop.is_set()
    assert not asked.may_change()


def test_the_last_wish_counts() -> None:
    """Who changes their mind while it stops gets what they asked for last, though it has to start anew for it."""
    asked = Signals(RUNNING, lambda _: None)

    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)

    assert asked.may_change()
    assert asked.wanted == RUNNING


@pytest.mark.parametrize("order", [(signal.SIGUSR1, signal.SIGTERM), (signal.SIGTERM, signal.SIGUSR1)])
def test_an_end_is_final(order: tuple[signal.Signals, ...]) -> None:
    """Whatever else was asked for before or after."""
    asked = Signals(RUNNING, lambda _: None)

    for number in order:
        signal.raise_signal(number)

    assert asked.stop.wait(5.0)
    assert not asked.may_change()


@pytest.mark.parametrize(("mode", "number"), [(RUNNING, signal.SIGUSR2), (QUIESCED, signal.SIGUSR1)])
def test_the_mode_it_is_in_is_told_and_ignored(mode: str, number: signal.Signals) -> None:
    """One line in the log, and it goes on."""
    told: list[str] = []
    asked = Signals(mode, told.append)

    signal.raise_signal(number)

    assert eventually(lambda: told == [f"already_{mode}"])
    assert not asked.stop.is_set()
    assert not asked.may_change()


def test_what_comes_too_late_is_for_the_next_program() -> None:
    """Once the change is decided, what comes is held back until somebody listens again."""
    asked = Signals(RUNNING, lambda _: None)
    signal.raise_signal(signal.SIGUSR1)
    assert asked.may_change()

    signal.raise_signal(signal.SIGTERM)
    assert not asked.ended
    following = Signals(QUIESCED, lambda _: None)

    assert following.stop.wait(5.0)
    assert following.ended


def test_a_demo_only_stops() -> None:
    """It has no other mode, and does not die of being asked."""
    stop = stop_on_signals()

    signal.raise_signal(signal.SIGUSR1)
    assert not stop.is_set()
    signal.raise_signal(signal.SIGTERM)

    assert stop.wait(5.0)
