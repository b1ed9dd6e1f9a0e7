"""Listening sockets that outlive a program, by systemd's protocol (sd_listen_fds(3)): found at the start, handed on.

Whoever connects meanwhile waits in the socket's queue; a port that was closed would refuse them.
"""

import fcntl
import os
import socket
from collections.abc import MutableMapping, Sequence

FIRST = 3  # descriptors from here on, one after the other
ABOVE_ALL = 512  # descriptors to copy to, so that none of those to be handed on is overwritten before its turn


def inherited(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the sockets that were left to this process; what says so is taken out, since no child is meant."""
    count, pid = (environment.pop(name, "") for name in ("LISTEN_FDS", "LISTEN_PID"))
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    sockets = [socket.socket(fileno=FIRST + index) for index in range(int(count))]
    for one in sockets:
        one.set_inheritable(False)
        one.setblocking(False)
    return sockets


def hand_on(sockets: Sequence[socket.socket], environment: MutableMapping[str, str]) -> None:
    """Leave sockets to the program that this process becomes; to be called last, since it takes descriptors over."""
    copies = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, ABOVE_ALL) for one in sockets]
    for place, copy in enumerate(copies, FIRST):
        os.dup2(copy, place, inheritable=True)
    if copies:
        environment.update(LISTEN_FDS=str(len(copies)), LISTEN_PID=str(os.getpid()))
