"""What tests have at the other end of the socket: scripted workers, programs that are none, a process without end."""

import io
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from solpi_exporter.probe.child import Child, spawn
from solpi_exporter.probe.plan import GENTLE, Opening

ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent / "scripted_worker.py"
PYTHON = (sys.executable, "-S")  # without site-packages, so without torch
SMALL = Opening("cpu", "small", (1,), GENTLE, context=16, layers=1)

MUTE = "import sys; sys.stdin.read()"
BABBLER = "import os; os.write(0, b'hello, this is torch ' * 9); import sys; sys.stdin.read()"
DEAF = (
    "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write(0, bytes(8))\nwhile 1: signal.pause()"
)


def scripted(*arguments: str) -> Child:
    """Start a worker with a scripted bench."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    return spawn((*PYTHON, str(SCRIPT), *arguments), environment)


def program(text: str) -> Child:
    """Start a program that is no worker."""
    return spawn((*PYTHON, "-c", text), os.environ)


@dataclass
class FakeProcess:
    """A process that heeds no signal while `status` is None; `signals` are those that it was sent."""

    status: int | None = None
    pid: int = 4711
    signals: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.status

    def wait(self, timeout: float | None = None) -> int:
        if self.status is None:
            raise subprocess.TimeoutExpired("fake", timeout or 0.0)
        return self.status

    def terminate(self) -> None:
        self.signals.append("TERM")

    def kill(self) -> None:
        self.signals.append("KILL")


def child_of(process: FakeProcess) -> Child:
    """Return a child that is this process, and whose connection is closed at the other end."""
    ours, theirs = socket.socketpair()
    theirs.close()
    return Child(process, ours, io.BytesIO())
