"""What the service manager is told, by systemd's notify protocol (sd_notify(3)): ready, status, and that it is alive.

The main loop tells it, and nobody else: a daemon whose loop hangs does not feed the watchdog, and is started anew.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from solpi_exporter.board import Entry, State

SHARE = 0.5  # of the watchdog's time, after which it is fed: one that comes late is no harm
UNWELL = frozenset({State.DOWN, State.PENDING})


def tell_nobody(text: str) -> None:
    """Tell nobody: no service manager has started this."""


@dataclass(slots=True)
class Supervisor:
    """`tell` takes a message; `patience` is how long the watchdog waits to be fed, in seconds, None without one."""

    tell: Callable[[str], None] = tell_nobody
    patience: float | None = None
    _is_ready: bool = False
    _status: str = ""
    _fed: float = -inf

    def look(self, entries: Sequence[Entry], *, is_ready: bool, now: float) -> None:
        """Tell what is new; `now` is in monotonic seconds."""
        if self.patience is not None and now - self._fed >= SHARE * self.patience:
            self._fed = now
            self.tell("WATCHDOG=1")
        status = status_of(entries)
        if status != self._status:
            self._status = status
            self.tell(f"STATUS={status}")
        if is_ready and not self._is_ready:
            self._is_ready = True
            self.tell("READY=1")

    def reloading(self) -> None:
        """Tell that it is about to become itself again; READY follows. Until then the watchdog has to wait."""
        self.tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nWATCHDOG=1")

    def stopping(self) -> None:
        """Tell that it ends."""
        self.tell("STOPPING=1")


def status_of(entries: Sequence[Entry]) -> str:
    """Return one line on the sources that are polled."""
    polled = [one for one in entries if one.state in UNWELL or one.state is State.OK]
    unwell = [f"{one.source} {one.state.value}" for one in polled if one.state in UNWELL]
    return f"{len(polled) - len(unwell)} of {len(polled)} sources are well" + "".join(f", {one}" for one in unwell)


def supervisor_of(environment: Mapping[str, str]) -> Supervisor:
    """Return the service manager that has started this process, as the environment names it."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return Supervisor()
    name = f"\0{address[1:]}" if address.startswith("@") else address  # of the abstract namespace

    def tell(text: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one, suppress(OSError):
            one.setblocking(False)  # a manager that does not listen must not hold the loop up
            one.sendto(text.encode(), name)

    microseconds = environment.get("WATCHDOG_USEC", "")
    is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return Supervisor(tell, int(microseconds) / 1e6 if is_ours and microseconds.isdecimal() else None)
