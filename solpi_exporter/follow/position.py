"""Where a log has been read to, as it is kept over a restart, and what proves that a file is still the same one.

A path says where to look, device and inode are a hint: both come back for other files. Only content proves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

HEAD_BYTES = 1024
MARK_BYTES = 256

Identity = tuple[int, int]  # device and inode
Pread = Callable[[int, int], bytes]  # length and offset, as os.pread has them


@dataclass(frozen=True, slots=True)
class Proof:
    """Hashes of a file's first bytes, and of the last ones before `offset`, up to which it was read.

    Empty where there are only NULs: holes are all alike. Hashes, since what an engine logs may be anybody's words, and
    the state is no place for them.
    """

    offset: int = 0
    head_bytes: int = 0
    head: str = ""
    mark_bytes: int = 0
    mark: str = ""

    @classmethod
    def of(cls, offset: int, head: bytes, mark: bytes) -> "Proof":
        """Return the proof of a file that begins with `head` and has `mark` before `offset`.

        Where that proves nothing, behind a hole, it is as if nothing had been read.
        """
        proof = cls(offset, len(head), _digest(head), len(mark), _digest(mark))
        return proof if proof.head or proof.mark else cls()

    @property
    def is_strong(self) -> bool:
        """Whether it holds for no other file: short ones may well begin alike."""
        return self.head_bytes == HEAD_BYTES and bool(self.head)

    def holds(self, pread: Pread) -> bool:
        """Return whether this is the file, or a copy of it; raise OSError where that cannot be read."""
        if self.head and _digest(pread(self.head_bytes, 0)) != self.head:
            return False
        return not self.mark or _digest(pread(self.mark_bytes, self.offset - self.mark_bytes)) == self.mark


@dataclass(frozen=True, slots=True)
class Record:
    """One file's content as far as it was read, whatever the file is called by now.

    `name` is the path at which it was written, `real` that path without symbolic links; `size` is that
    last seen, `mtime` (Unix nanoseconds) that of the last look at the names: later generations have changed later.
    `skipping`: the offset is inside a line that is too long. `done`: it was read to
    its end after it had been replaced, and let go.
    """

    name: str
    real: str
    device: int
    inode: int
    proof: Proof
    size: int
    mtime: int
    skipping: bool = False
    done: bool = False

    @property
    def identity(self) -> Identity:
        """Device and inode."""
        return self.device, self.inode

    @property
    def unread(self) -> int:
        """Bytes that are known to have been there and were not read."""
        return max(0, self.size - self.proof.offset)


@dataclass(frozen=True, slots=True)
class Position:
    """Of files: the patterns they were found by, and their records, older generations first. Of a journal: a cursor.

    `time` is that of the entry at the cursor (Unix seconds).
    """

    patterns: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    cursor: str | None = None
    time: float | None = None


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest() if data.strip(b"\0") else ""
