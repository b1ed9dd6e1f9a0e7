"""Where to begin in a file that exists at the first look, and what to show of it: the lines around the last start."""

import re

from solpi_exporter.follow.generation import BLOCK
from solpi_exporter.follow.opened import Opened

TAIL_BYTES = 1 << 16
SEARCH_BYTES = 1 << 30  # how far back the last start is looked for in a log that is joined at its end: a second or two


def last_line_end(file: Opened, size: int) -> int:
    """Return the offset after the last newline within the last block of the file, so that no line is cut in two."""
    start = max(0, size - BLOCK)
    tail = file.pread(size - start, start)
    end = tail.rfind(b"\n") + 1
    return start + end if end else size


def around_last(landmark: re.Pattern[bytes], file: Opened, end: int) -> bytes:
    """Return a block of complete lines around the file's last match of `landmark`; its first block where there is none.

    Around, because a server names its version some lines before its engine starts, and the engine its sizes after.
    """
    start = end
    while start > max(0, end - SEARCH_BYTES):
        start = max(0, start - BLOCK)
        matches = list(landmark.finditer(file.pread(2 * BLOCK, start)))
        if matches:
            begin = max(0, start + matches[-1].start() - BLOCK // 2)
            data = file.pread(min(BLOCK, end - begin), begin)
            return _complete(data if begin == 0 else data.partition(b"\n")[2])
    return _complete(file.pread(min(BLOCK, end), 0))


def before(file: Opened, end: int) -> bytes:
    """Return the last complete lines before an offset: a record there may go on behind it."""
    begin = max(0, end - TAIL_BYTES)
    data = file.pread(end - begin, begin)
    return data if begin == 0 else data.partition(b"\n")[2]


def _complete(data: bytes) -> bytes:
    """Return the part of `data` that ends with its last newline."""
    return data[: data.rfind(b"\n") + 1]
