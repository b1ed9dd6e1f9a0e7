"""Listening sockets that outlive a program."""

import os
import socket
import subprocess
import sys

from solpi_exporter.cli.inherited import inherited

# Becomes itself once, as reexec does; the second finds what the first listened on.
TWICE = """
import os, socket, sys
from solpi_exporter.cli.inherited import inherited
from solpi_exporter.cli.reexec import reexec
found = inherited(os.environ)
if found:
    print([one.getsockname()[1] for one in found], [name for name in os.environ if name.startswith("LISTEN_")])
    found[0].setblocking(True)
    found[0].accept()[0].sendall(b"hello")
else:
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(4)]
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    caller = socket.create_connection(sockets[0].getsockname())
    print([one.getsockname()[1] for one in sockets], flush=True)
    if os.fork() == 0:
        print(caller.recv(5).decode(), flush=True)
        os._exit(0)
    reexec(quiesced=False, sockets=sockets)
"""


def test_who_has_connected_before_is_answered_after() -> None:
    """The sockets are there in their order, whatever had their descriptors; no child is told of them."""
    result = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=30, check=True)

    first, *others = result.stdout.splitlines()
    assert sorted(others) == sorted([f"{first} []", "hello"])


def test_sockets_for_another_process_are_left_alone() -> None:
    """A parent's environment may still speak of its own."""
    environment = {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid() + 1)}

    assert inherited(environment) == []
    assert environment == {}


def test_a_socket_that_was_left_does_not_block() -> None:
    """The event loop asks it; nor is it left to what is started from here."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        saved = os.dup(3) if os.path.exists("/proc/self/fd/3") else None
        os.dup2(one.fileno(), 3)
        try:
            (found,) = inherited({"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())})
            assert (found.getblocking(), found.get_inheritable(), found.getsockname()) == (
                False,
                False,
                one.getsockname(),
            )
            found.detach()
        finally:
            os.close(3) if saved is None else os.dup2(saved, 3)
