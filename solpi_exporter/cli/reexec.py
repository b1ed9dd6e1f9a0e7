"""The program takes its own place: same pid, same settings, nothing left of what a library held of the driver.

A CUDA context cannot be given up within a process, nor can a thread that hangs in the driver; exec ends both.
"""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from solpi_exporter.cli.inherited import hand_on

FLAG = "--quiesced"
DESCRIPTORS = "/proc/self/fd"
STDERR = 2


def reexec(*, quiesced: bool, sockets: Sequence[socket.socket] = ()) -> str:
    """Begin anew with or without the flag, and with listening sockets; where that cannot be, return why."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # its reader may be gone
            stream.flush()
    arguments = command_line(sys.orig_argv, quiesced=quiesced)
    try:
        _keep_standard_streams_only()
        hand_on(sockets, os.environ)
        os.execv(sys.executable, arguments)  # noqa: S606 - the interpreter that runs, with the arguments that it had
    except OSError as error:
        return f"{sys.executable}: {error.strerror}"


def command_line(original: Sequence[str], *, quiesced: bool) -> list[str]:
    """Return the interpreter's command line, its own options and -m or the script included, with the flag as asked."""
    kept = [argument for argument in original[1:] if argument != FLAG]
    return [sys.executable, *kept, *([FLAG] if quiesced else [])]


def _keep_standard_streams_only() -> None:
    """Let exec close everything else: a library may have opened /dev/nvidia* to be inherited, which holds the GPU."""
    for descriptor in map(int, os.listdir(DESCRIPTORS)):
        if descriptor > STDERR:
            with suppress(OSError):  # that of the listing itself is closed by now
                os.set_inheritable(descriptor, False)
