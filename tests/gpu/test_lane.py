"""Calls that may never return."""

import threading
from collections.abc import Iterator

import pytest

from solpi_exporter.gpu.lane import Hung, Lanes

SOON = 0.02  # seconds after which a job counts as hung
AMPLE = 10.0


class Hanger:
    """A job that returns when a test lets it, and says that it has begun."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._free = threading.Event()
        self.thread = threading.current_thread()

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self._free.wait(AMPLE)
        return "late"

    def free(self) -> None:
        self._free.set()


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    lanes = Lanes()
    yield lanes
    lanes.close()


@pytest.fixture
def hanger() -> Iterator[Hanger]:
    hanger = Hanger()
    yield hanger
    hanger.free()


def hang(lanes: Lanes, hanger: Hanger, key: object = 0) -> None:
    with pytest.raises(Hung):
        lanes.attempt(key, hanger, SOON)
    assert hanger.begun.wait(AMPLE)


def let_go(hanger: Hanger) -> None:
    """Let the job return, and wait for the end of its thread, in which nothing else runs."""
    hanger.free()
    hanger.thread.join(AMPLE)


def test_a_job_returns_its_result(lanes: Lanes) -> None:
    """In another thread, one after the other in the same."""
    assert lanes.attempt(0, lambda: 7, AMPLE) == 7
    names = {lanes.attempt(key, lambda: threading.current_thread().name, AMPLE) for key in range(5)}
    assert len(names) == 1
    assert threading.current_thread().name not in names
    assert not lanes.any_stuck


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError("the job's own")])
def test_a_job_raises_its_error(lanes: Lanes, error: Exception) -> None:
    """Also one of the kind that says that somebody has waited too long."""

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        lanes.attempt(0, fail, AMPLE)

    assert raised.value is error
    assert not lanes.any_stuck


def test_a_job_that_hangs_is_given_up_in_time(lanes: Lanes, hanger: Hanger) -> None:
    """Whoever waits for it goes on, and can see that a thread is still in there."""
    hang(lanes, hanger)

    assert lanes.any_stuck


def test_the_same_key_does_not_hang_twice(lanes: Lanes, hanger: Hanger) -> None:
    """Hung at once, without another thread that hangs; the job is not begun."""
    hang(lanes, hanger)

    with pytest.raises(Hung):
        lanes.attempt(0, lambda: pytest.fail("it was begun"), AMPLE)


def test_another_key_goes_on_in_a_new_thread(lanes: Lanes, hanger: Hanger) -> None:
    """One GPU that hangs takes nothing else along."""
    hang(lanes, hanger)

    assert lanes.attempt(1, lambda: threading.current_thread() is not hanger.thread, AMPLE)
    assert lanes.any_stuck


def test_a_key_works_again_once_its_call_has_returned(lanes: Lanes, hanger: Hanger) -> None:
    """What the late call returned is dropped."""
    hang(lanes, hanger)
    let_go(hanger)

    assert lanes.attempt(0, lambda: "new", AMPLE) == "new"
    assert not lanes.any_stuck


def test_two_keys_may_hang(lanes: Lanes, hanger: Hanger) -> None:
    """Each is free when its own call has returned."""
    other = Hanger()
    hang(lanes, hanger, "a")
    hang(lanes, other, "b")

    let_go(hanger)

    assert lanes.attempt("a", lambda: 1, AMPLE) == 1
    with pytest.raises(Hung):
        lanes.attempt("b", lambda: 1, AMPLE)
    assert lanes.any_stuck
    let_go(other)
    assert lanes.attempt("b", lambda: 1, AMPLE) == 1


def test_threads_end_with_their_calls(hanger: Hanger) -> None:
    """A call that returns after its lane was closed leaves nothing behind."""
    lanes = Lanes()
    before = set(threading.enumerate())
    hang(lanes, hanger)
    lanes.attempt(1, lambda: 1, AMPLE)
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2

    lanes.close()
    hanger.free()
    for thread in mine:
        thread.join(AMPLE)

    assert not any(thread.is_alive() for thread in mine)
