"""A worker process from its parent's side, on real processes."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE

import pytest

from solpi_exporter.probe.child import END_SECONDS, Child, Lost, spawn
from solpi_exporter.probe.messages import Answer, BatchWanted
from solpi_exporter.source import SourceError
from tests.probe.scripted_worker import BUG, CURIOUS, FINE, HUNG, KILLED, LOUD, SLOW
from tests.probe.workers import BABBLER, DEAF, MUTE, ROOT, SMALL, FakeProcess, child_of, program, scripted

LONG = 20.0  # seconds, of which none passes where all is well


@contextmanager
def opened() -> Iterator[Child]:
    child = scripted()
    try:
        assert isinstance(child.ask(SMALL, LONG), Answer)
        yield child
    finally:
        child.end()


def reason(child: Child, batch: int, silence: float = LONG) -> str:
    with pytest.raises(Lost) as lost:
        child.ask(BatchWanted(batch), silence)
    return str(lost.value)


def test_an_answer_has_the_socket_to_itself() -> None:
    """Whatever torch prints, to either stream."""
    with opened() as child:
        for _ in range(2):
            assert isinstance(child.ask(BatchWanted(LOUD), LONG), Answer)


def test_a_library_that_reads_standard_input_takes_no_request() -> None:
    """It finds nothing there."""
    with opened() as child:
        assert isinstance(child.ask(BatchWanted(CURIOUS), LONG), Answer)


def test_what_it_prints_takes_no_memory() -> None:
    """Last words are those of the answer that it owes: what it printed before is forgotten."""
    with opened() as child:
        child.ask(BatchWanted(LOUD), LONG)

        assert reason(child, KILLED) == "was ended by signal 9 (Killed, without a word): see the kernel log"


def test_a_bug_ends_it_with_its_last_words() -> None:
    """The traceback's last line says what it was."""
    with opened() as child:
        assert reason(child, BUG) == "ended with status 1 (RuntimeError: a bug)"


def test_silence_is_no_sign_of_life() -> None:
    """It is told after how long."""
    with opened() as child:
        assert reason(child, HUNG, 0.05) == "gave no sign of life for 0.05 s"


def test_what_takes_long_says_that_it_goes_on() -> None:
    """Beats come before the answer, and are no answer."""
    with opened() as child:
        answer = child.ask(BatchWanted(SLOW), LONG)

    assert isinstance(answer, Answer)


def test_an_answer_that_cannot_be_read_is_none() -> None:
    """A worker that talks nonsense is as good as lost."""
    child = program(BABBLER)

    assert reason(child, FINE) == "gave an answer that cannot be read (a message of 1751477356 bytes)"
    child.end()


def test_it_ends_when_it_is_told_to() -> None:
    """And leaves no zombie, though it hangs."""
    child = program(MUTE)

    assert child.end()
    assert child.has_ended
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_what_does_not_heed_sigterm_is_killed() -> None:
    """SIGKILL follows."""
    child = program(DEAF)
    reason(child, FINE)  # by now it is deaf

    assert child.end()


def test_a_process_without_end_is_told() -> None:
    """It was asked in both ways, and neither was waited for longer than a stop of the daemon may last."""
    process = FakeProcess()

    assert not child_of(process).end()
    assert process.signals == ["TERM", "KILL"]
    assert 2 * END_SECONDS < 1.0


def test_a_connection_that_is_closed_by_a_process_that_lives_is_lost() -> None:
    """There is no status to tell."""
    child = child_of(FakeProcess())

    assert reason(child, FINE) == "closed its connection"
    child.end()


def test_ctrl_c_does_not_reach_it() -> None:
    """The terminal sends it to the parent's group, of which it is none; the parent ends it."""
    with opened() as child:
        assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid


PARENT = """
from solpi_exporter.probe.messages import BatchWanted, send
from tests.probe.scripted_worker import HUNG
from tests.probe.workers import SMALL, scripted
child = scripted()
child.ask(SMALL, 20.0)
send(child._connection, BatchWanted(HUNG))
print(child.pid, flush=True)
input()
"""


def test_it_ends_with_its_parent() -> None:
    """A parent that was killed says nothing, and nobody watches any more: it ends though it hangs."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=PIPE, stdout=PIPE
    ) as parent:
        assert parent.stdout is not None
        worker = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    ended, _, _ = select.select([worker], [], [], LONG)
    os.close(worker)

    assert ended == [worker]


def test_a_python_that_is_not_there_is_named() -> None:
    """With the setting, the reason and the remedy."""
    with pytest.raises(SourceError) as error:
        spawn(("/nowhere/python", "-c", ""), os.environ)

    assert str(error.value) == (
        "probe.python /nowhere/python cannot be run (No such file or directory): name a Python that has torch, such "
        "as vLLM's"
    )
