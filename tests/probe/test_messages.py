"""What goes over the socket, and what does not come from there."""

import pickle
import socket
import struct
import zlib
from collections.abc import Iterator

import pytest

from solpi_exporter.probe.messages import MOST_BYTES, PICKLE, Answer, BatchWanted, Beat, Damaged, receive, send
from solpi_exporter.probe.plan import GENTLE, THOROUGH, Opening, Used
from solpi_exporter.source import NeedsRestart, SourceAbsent, SourceError
from tests.fakes import FakeBench, batch_result


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


Pair = tuple[socket.socket, socket.socket]


@pytest.mark.parametrize(
    "message",
    [
        Opening("cuda:1", "auto", (1, 8), THOROUGH, layers=3),
        Opening("cpu", "small", (1,), GENTLE),
        BatchWanted(8),
        Beat(),
        Answer(batch_result(8), Used(1.5, 0.25)),
        Answer(FakeBench({}).identity, None),
        Answer(FakeBench({}).raw, None),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_sent_is_received(pair: Pair, message: Answer) -> None:
    """Frozen, with slots and all."""
    send(pair[0], message)

    assert receive(pair[1]) == message


@pytest.mark.parametrize("kind", [SourceError, SourceAbsent, NeedsRestart])
def test_an_error_keeps_its_kind_and_words(pair: Pair, kind: type[SourceError]) -> None:
    """Absent is not broken."""
    send(pair[0], kind("torch is not installed"))

    said = receive(pair[1])

    assert type(said) is kind
    assert str(said) == "torch is not installed"


def test_messages_come_one_by_one(pair: Pair) -> None:
    """However the socket cuts them."""
    for batch in (1, 2):
        send(pair[0], BatchWanted(batch))

    assert [receive(pair[1]), receive(pair[1])] == [BatchWanted(1), BatchWanted(2)]


def test_every_python_reads_the_pickles(pair: Pair) -> None:
    """The protocol is pinned, so that two versions agree."""
    send(pair[0], BatchWanted(1))

    assert pair[1].recv(100)[8:10] == bytes([0x80, PICKLE])


def framed(body: bytes, checksum: int | None = None) -> bytes:
    return struct.pack(">II", len(body), zlib.crc32(body) if checksum is None else checksum) + body


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is torch",
        struct.pack(">II", MOST_BYTES + 1, 0),
        framed(pickle.dumps(BatchWanted(1)), checksum=0),
        framed(b"no pickle"),
        framed(b""),
        framed(b"csolpi_exporter.probe.messages\nGone\n."),
        framed(b"csolpi_exporter.gone\nGone\n."),
    ],
    ids=["text", "length", "checksum", "no pickle", "nothing", "unknown class", "unknown module"],
)
def test_what_is_no_message_is_damaged(pair: Pair, data: bytes) -> None:
    """And never taken for one."""
    pair[0].sendall(data)

    with pytest.raises(Damaged):
        receive(pair[1])


@pytest.mark.parametrize("data", [b"", b"\0\0", framed(b"cut off")[:-1]])
def test_a_message_that_was_cut_off_is_the_end(pair: Pair, data: bytes) -> None:
    """Whoever sent it has gone."""
    pair[0].sendall(data)
    pair[0].close()

    with pytest.raises(EOFError):
        receive(pair[1])
