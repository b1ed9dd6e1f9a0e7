"""The demo's clock."""

import threading
import time

from solpi_exporter.clock import MIN_WAIT, FastClock, SystemClock


def test_fast_clock_multiplies_intervals() -> None:
    """Ten times as fast, a real interval counts ten times; the wall clock stays that of the machine."""
    clock = FastClock(10.0)
    fast, real = clock.monotonic(), time.monotonic()

    while time.monotonic() - real < 0.01:
        pass

    assert clock.monotonic() - fast >= 0.1
    assert abs(clock.time() - time.time()) < 1.0


def test_how_long_a_call_takes_is_not_accelerated() -> None:
    """A time-out is a promise about real calls, at any speed."""
    clock = FastClock(1000.0)

    assert abs(clock.real() - time.monotonic()) < 1.0


def test_waiting_ends_when_stop_is_set() -> None:
    """A wait returns at once, and says so, when the stop is already set."""
    stop = threading.Event()
    stop.set()

    assert SystemClock().wait(stop, 60.0)
    assert FastClock(0.1).wait(stop, 60.0)


def test_a_fast_wait_is_no_busy_loop() -> None:
    """A poll ten times a second stays that of twenty times a second at most, at any speed."""
    begun = time.monotonic()

    assert not FastClock(1000.0).wait(threading.Event(), 0.1)

    assert time.monotonic() - begun >= MIN_WAIT
