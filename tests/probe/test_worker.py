"""What a worker answers, in this process; tests/probe/test_child.py has real ones."""

import socket
from collections.abc import Iterator

import pytest

from solpi_exporter.probe import worker as module
from solpi_exporter.probe.messages import Answer, BatchWanted, Beat, CostsWanted, receive
from solpi_exporter.probe.plan import Used
from solpi_exporter.probe.worker import Pulse, Worker, main
from solpi_exporter.source import NeedsRestart, SourceError
from tests.fakes import FakeBench, batch_result
from tests.probe.workers import SMALL


class Ends:
    """Both ends of a connection."""

    def __init__(self) -> None:
        self.parents, self.workers = socket.socketpair()
        self.parents.settimeout(0.0)

    def said(self) -> list[object]:
        """Return what has come."""
        messages = []
        while True:
            try:
                messages.append(receive(self.parents))
            except BlockingIOError:
                return messages


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    with ends.parents, ends.workers:
        yield ends


def test_it_answers_what_its_bench_says(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Identity, costs and results as they are, each with how long the GPU was used."""
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []
    bench = FakeBench({1: batch_result(1)}, used=Used(2.0, 1.0))

    def make(*args: object, **named: object) -> FakeBench:
        asked.append((args, named))
        return bench

    monkeypatch.setattr(module, "open_bench", make)
    worker = Worker(ends.workers)
    for request in (SMALL, CostsWanted(), BatchWanted(1)):
        worker.answer(request)

    assert asked == [((SMALL,), {})]
    assert ends.said() == [Answer(value, Used(2.0, 1.0)) for value in (bench.identity, bench.raw, bench.results[1])]


@pytest.mark.parametrize("kind", [SourceError, NeedsRestart])
def test_it_answers_with_the_error_of_its_bench(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, kind: type[SourceError]
) -> None:
    """What to make of it is the parent's to say."""

    def fail(*args: object, **named: object) -> FakeBench:
        raise kind("no")

    monkeypatch.setattr(module, "open_bench", fail)
    Worker(ends.workers).answer(SMALL)

    (said,) = ends.said()
    assert type(said) is kind


def test_a_bench_that_could_not_be_made_is_asked_for_again(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same worker, as in the exporter's own process."""
    results: list[FakeBench | SourceError] = [SourceError("does not fit"), FakeBench({})]

    def make(*args: object, **named: object) -> FakeBench:
        result = results.pop(0)
        if isinstance(result, SourceError):
            raise result
        return result

    monkeypatch.setattr(module, "open_bench", make)
    worker = Worker(ends.workers)
    worker.answer(SMALL)
    worker.answer(SMALL)

    assert [type(one) for one in ends.said()] == [SourceError, Answer]


def test_a_pulse_beats_once_a_second(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each row of steps: whoever reads it would take CPU from them."""
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    pulse = Pulse(ends.workers)
    beats = []
    for now in (100.0, 100.9, 101.0, 101.5, 102.1):  # noqa: B007 - it is the clock's
        with pulse:
            beats.append(len(ends.said()))

    assert beats == [0, 0, 1, 0, 1]


def test_another_releases_messages_are_not_read() -> None:
    """It ends with one line."""
    with pytest.raises(SystemExit, match="restart the daemon"):
        main("0.0.1")


def test_a_beat_is_no_answer(ends: Ends) -> None:
    """It says nothing but that it came."""
    pulse = Pulse(ends.workers)
    pulse._last -= 10.0
    with pulse:
        assert ends.said() == [Beat()]
