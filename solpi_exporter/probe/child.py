"""A worker process as its parent sees it: one question at a time over one socket, and an end that is waited for.

remote.py  ->  child.py  =  socket  =  worker.py
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol

from solpi_exporter.probe.messages import Answer, Beat, Damaged, Request, receive, send
from solpi_exporter.source import SourceError

END_SECONDS = 0.4  # after SIGTERM, and again after SIGKILL: both together are less than a stop of the daemon may take
LAST_WORDS = 4096  # bytes


class Process(Protocol):
    """What is used of subprocess.Popen."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def poll(self) -> int | None:
        """Return its status once it has ended, and let the kernel forget it."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for that; raise TimeoutExpired."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        ...

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        ...


class Lost(Exception):
    """The worker cannot be asked any more; the message says what it did instead of answering."""


class Child:
    """Asks the worker at the other end of `connection`; what it prints goes to the file `printed`."""

    def __init__(self, process: Process, connection: socket.socket, printed: IO[bytes]) -> None:
        self._process = process
        self._connection = connection
        self._printed = printed

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it is no more."""
        return self._process.poll() is not None

    def ask(self, request: Request, silence: float) -> Answer | SourceError:
        """Return what it answers, an error included; raise Lost where it is silent for so many seconds, or gone."""
        self._connection.settimeout(silence)
        try:
            send(self._connection, request)
            while isinstance(said := receive(self._connection), Beat):
                pass
        except TimeoutError as error:
            raise Lost(f"gave no sign of life for {silence:g} s") from error
        except Damaged as error:
            raise Lost(f"gave an answer that cannot be read ({error})") from error
        except (EOFError, OSError) as error:
            raise Lost(self._fate()) from error
        if not isinstance(said, Answer | SourceError):
            raise Lost("gave an answer that is none")
        self._printed.seek(0)  # its own place as well: what it prints over months takes no memory
        self._printed.truncate()
        return said

    def end(self) -> bool:
        """End it, if it has not ended; return whether it has. In the kernel, where it may hang, it heeds no signal."""
        self._connection.close()
        self._printed.close()
        return self._ends(self._process.terminate) or self._ends(self._process.kill)

    def _ends(self, ask: Callable[[], None]) -> bool:
        ask()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _fate(self) -> str:
        """Return what became of a process that has closed its connection, with its last words."""
        try:
            status = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        words = self._last_words()
        if status < 0:
            return f"was ended by signal {-status} ({signal.strsignal(-status)}, {words}): see the kernel log"
        return f"ended with status {status} ({words})"

    def _last_words(self) -> str:
        self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - LAST_WORDS))
        lines = self._printed.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a word")


def spawn(command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start a worker; raise SourceError where it cannot be.

    Its answers have the socket to themselves: what torch, or its Python at its start, prints goes elsewhere. In a
    session of its own, Ctrl-C does not reach it.
    """
    ours, theirs = socket.socketpair()
    printed = os.fdopen(os.memfd_create("printed"), "w+b", buffering=0)  # no folder for temporary files is needed
    try:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - the interpreter that the settings name, and our own code
                command, stdin=theirs.fileno(), stdout=printed, stderr=printed, env=environment, start_new_session=True
            )
    except OSError as error:
        ours.close()
        printed.close()
        raise SourceError(
            f"probe.python {command[0]} cannot be run ({error.strerror}): name a Python that has torch, such as vLLM's"
        ) from error
    return Child(process, ours, printed)
