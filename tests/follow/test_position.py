"""What proves that a file is still the one that was read."""

from dataclasses import asdict

import pytest

from solpi_exporter.follow.position import HEAD_BYTES, MARK_BYTES, Pread, Proof, Record

CONTENT = b"".join(b"prompt: secret words, number %05d\n" % number for number in range(200))
OFFSET = 4000


def reading(data: bytes) -> Pread:
    """Return what reads at offsets of some bytes."""
    return lambda length, offset: data[offset : offset + length]


def proof_of(data: bytes, offset: int) -> Proof:
    """Return the proof of a file that was read up to an offset."""
    return Proof.of(offset, data[: min(offset, HEAD_BYTES)], data[max(0, offset - MARK_BYTES) : offset])


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + b"#" + data[place + 1 :]


@pytest.mark.parametrize("offset", [1, MARK_BYTES, HEAD_BYTES, OFFSET, len(CONTENT)])
def test_it_holds_for_the_file_itself(offset: int) -> None:
    """However little was read, and whatever came after it."""
    proof = proof_of(CONTENT, offset)

    assert proof.holds(reading(CONTENT))
    assert proof.holds(reading(CONTENT[:offset]))
    assert proof.holds(reading(CONTENT[:offset] + b"something else"))


@pytest.mark.parametrize("place", [0, HEAD_BYTES - 1, OFFSET - MARK_BYTES, OFFSET - 1])
def test_it_does_not_hold_after_a_change_before_the_offset(place: int) -> None:
    """In the first bytes as well as in the last ones, one changed byte is another file."""
    assert not proof_of(CONTENT, OFFSET).holds(reading(changed(CONTENT, place)))


@pytest.mark.parametrize("size", [0, 1, HEAD_BYTES, OFFSET - 1])
def test_it_does_not_hold_for_a_shorter_file(size: int) -> None:
    """One that was cut before the offset has lost what was read."""
    assert not proof_of(CONTENT, OFFSET).holds(reading(CONTENT[:size]))


def test_the_last_bytes_alone_prove_nothing_elsewhere() -> None:
    """They count at their offset only."""
    assert not proof_of(CONTENT, OFFSET).holds(reading(CONTENT[:HEAD_BYTES] + b"\n" + CONTENT[HEAD_BYTES:]))


@pytest.mark.parametrize(("offset", "strong"), [(0, False), (HEAD_BYTES - 1, False), (HEAD_BYTES, True)])
def test_short_files_prove_little(offset: int, strong: bool) -> None:
    """Only a full head is taken to be found in no other file."""
    assert proof_of(CONTENT, offset).is_strong is strong


def test_nuls_prove_nothing() -> None:
    """A hole is like every other one: it is as if nothing had been read."""
    assert proof_of(bytes(OFFSET), OFFSET) == Proof()


def test_a_hole_at_the_beginning_leaves_the_end() -> None:
    """Then the last bytes are all there is, and that is not strong."""
    data = bytes(HEAD_BYTES) + CONTENT
    proof = proof_of(data, OFFSET)

    assert not proof.is_strong
    assert proof.holds(reading(data))
    assert not proof.holds(reading(changed(data, OFFSET - 1)))


def test_a_hole_at_the_end_leaves_the_beginning() -> None:
    """A crash of the host may leave NULs just before the offset."""
    data = CONTENT[:HEAD_BYTES] + bytes(OFFSET)
    proof = proof_of(data, OFFSET)

    assert proof.is_strong
    assert proof.holds(reading(data))
    assert not proof.holds(reading(changed(data, 0)))


def test_the_state_holds_none_of_the_log() -> None:
    """What an engine logs may be anybody's words."""
    kept = [value for value in asdict(proof_of(CONTENT, OFFSET)).values() if isinstance(value, str)]

    assert len(kept) == 2
    for text in kept:
        assert len(text) == 32
        assert set(text) <= set("0123456789abcdef")


@pytest.mark.parametrize(("size", "unread"), [(5000, 1000), (OFFSET, 0), (10, 0)])
def test_what_is_unread_of_a_record(size: int, unread: int) -> None:
    """It is what was there and not read; never less than nothing."""
    record = Record("vllm.log", "/vllm.log", 1, 2, proof_of(CONTENT, OFFSET), size, 0)

    assert record.unread == unread
    assert record.identity == (1, 2)
