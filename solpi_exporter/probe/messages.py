"""What the two processes of a probe in a worker say to each other: pickles over a stream socket, one a message.

Read on both sides, by two Pythons that may differ. Nobody but a process that we start ourselves is at the other end.
"""

import pickle
import socket
import struct
import zlib
from dataclasses import dataclass

from solpi_exporter.probe.plan import Opening, Used
from solpi_exporter.probe.result import BatchResult, Costs, Identity
from solpi_exporter.source import SourceError

PICKLE = 4  # known to every Python that can run this; the newest of one may not be to the other
HEADER = struct.Struct(">II")  # bytes of the pickle, and their CRC-32
MOST_BYTES = 64 << 20  # a result has some kilobytes: a larger length is none


@dataclass(frozen=True, slots=True)
class CostsWanted:
    """Begins a cycle. Answered by Costs."""


@dataclass(frozen=True, slots=True)
class BatchWanted:
    """Asks for one batch size. Answered by a BatchResult."""

    batch: int


@dataclass(frozen=True, slots=True)
class Beat:
    """Comes before an answer that takes long: the worker is at it still."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked for, and how long a GPU was used until then."""

    value: Identity | Costs | BatchResult
    used: Used | None


Request = Opening | CostsWanted | BatchWanted
Said = Answer | Beat | SourceError


class Damaged(Exception):
    """What came is no message."""


def send(connection: socket.socket, message: Request | Said) -> None:
    """Send a message; raise OSError where nobody is there any more, or within the socket's time limit."""
    body = pickle.dumps(message, PICKLE)
    connection.sendall(HEADER.pack(len(body), zlib.crc32(body)) + body)


def receive(connection: socket.socket) -> object:
    """Return the next message; raise EOFError where there will be none, Damaged, or what the socket raises."""
    length, checksum = HEADER.unpack(_exactly(connection, HEADER.size))
    if length > MOST_BYTES:
        raise Damaged(f"a message of {length} bytes")
    body = _exactly(connection, length)
    if zlib.crc32(body) != checksum:  # asked first: a damaged pickle may load, as something else
        raise Damaged("a wrong checksum")
    try:
        return pickle.loads(body)  # noqa: S301 - from a process of our own
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        raise Damaged(str(error)) from error


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data
