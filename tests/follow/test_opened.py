"""Files open for reading at offsets, plain and compressed; all of them real."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from solpi_exporter.follow.opened import STEP, CompressedFile, PlainFile, open_any

# More than is read at once, and no two parts of it alike.
CONTENT = b"".join(b"line %07d\n" % number for number in range(STEP // 10))

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": partial(gzip.compress, compresslevel=1),
    ".xz": partial(lzma.compress, preset=0),
    ".bz2": partial(bz2.compress, compresslevel=1),
}
ENDINGS = pytest.mark.parametrize("ending", list(COMPRESS))


def compressed(folder: Path, ending: str, content: bytes = CONTENT) -> Path:
    path = folder / f"vllm.log.1{ending}"
    path.write_bytes(COMPRESS[ending](content))
    return path


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_plain_file_is_read_anywhere(tmp_path: Path) -> None:
    """Fewer bytes come only at its end, none behind it."""
    path = tmp_path / "vllm.log"
    path.write_bytes(CONTENT)
    file = PlainFile(str(path))

    parts = [file.pread(7, 1000), file.pread(5, 0), file.pread(9, len(CONTENT) - 4), file.pread(9, len(CONTENT) + 4)]
    file.close()

    assert parts == [CONTENT[1000:1007], CONTENT[:5], CONTENT[-4:], b""]


def test_a_plain_file_tells_of_itself(tmp_path: Path) -> None:
    """Its size and change are those of now; a deleted one has no name any more, a renamed one has."""
    path = tmp_path / "vllm.log"
    path.write_bytes(b"one\n")
    file = PlainFile(str(path))
    path.write_bytes(b"one\ntwo\n")
    status, identity = path.stat(), file.identity
    path = path.rename(tmp_path / "vllm.log.1")
    renamed = file.status()
    path.unlink()
    deleted = file.status()
    file.close()

    assert identity == (status.st_dev, status.st_ino)
    assert (renamed.size, renamed.mtime, renamed.named) == (8, status.st_mtime_ns, True)
    assert (deleted.size, deleted.named) == (8, False)


def test_the_end_of_a_hole(tmp_path: Path) -> None:
    """It is found without reading the hole; where there is none, or nothing behind it, the offset itself is told."""
    path = tmp_path / "vllm.log"
    path.touch()
    os.truncate(path, 1 << 30)
    with path.open("ab") as writer:
        writer.write(b"data")
    file = PlainFile(str(path))

    ends = [file.data_after(offset) for offset in (0, 1 << 30, 1 << 31)]
    file.close()

    assert (1 << 30) - (1 << 16) <= ends[0] <= 1 << 30
    assert ends[1:] == [1 << 30, 1 << 31]


@ENDINGS
def test_a_compressed_file_is_read_anywhere(tmp_path: Path, ending: str) -> None:
    """Onwards, over more than one step, and back again, as if it were plain."""
    file = CompressedFile(str(compressed(tmp_path, ending)))
    end = len(CONTENT)
    places = [(10, 0), (300, 5), (2 * STEP, 100), (10, end - 4), (10, end + 10), (10, 0), (10, STEP), (10, STEP - 20)]

    parts = [file.pread(length, offset) for length, offset in places]
    file.close()

    assert parts == [CONTENT[offset : offset + length] for length, offset in places]


@ENDINGS
def test_a_compressed_file_tells_no_size(tmp_path: Path, ending: str) -> None:
    """The size on the disk is not that of its content; it has no holes, and nobody writes to it."""
    path = compressed(tmp_path, ending)
    file = CompressedFile(str(path))

    status, after = file.status(), file.data_after(5)
    file.close()

    assert (status.size, status.mtime, after) == (None, path.stat().st_mtime_ns, 5)


@ENDINGS
@pytest.mark.parametrize("keep", [0.5, 0.01], ids=["half", "hundredth"])
def test_a_compressed_file_that_is_cut_off(tmp_path: Path, ending: str, keep: float) -> None:
    """Its end is never taken for the end of the log: as long as it is being made, reading it fails."""
    path = compressed(tmp_path, ending)
    os.truncate(path, int(path.stat().st_size * keep))
    file = CompressedFile(str(path))

    for _ in range(2):
        with pytest.raises(OSError, match=r".+"):
            file.pread(len(CONTENT) + 1, 0)
    file.close()


@ENDINGS
def test_a_compressed_file_that_is_damaged(tmp_path: Path, ending: str) -> None:
    """Whatever the decompressor raises is an error of reading."""
    path = compressed(tmp_path, ending)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    path.write_bytes(data)
    file = CompressedFile(str(path))

    with pytest.raises(OSError, match=r".+"):
        file.pread(len(CONTENT) + 1, 0)
    file.close()


@ENDINGS
def test_a_compressed_file_that_is_made_meanwhile(tmp_path: Path, ending: str) -> None:
    """What was cut off when it was first read is not read from a wrong place once it is whole."""
    path = compressed(tmp_path, ending)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    file = CompressedFile(str(path))
    with pytest.raises(OSError, match=r".+"):
        file.pread(len(CONTENT), 0)
    with path.open("ab") as writer:
        writer.write(whole[len(whole) // 2 :])

    parts = file.pread(10, 0), file.pread(len(CONTENT), STEP)
    file.close()

    assert parts == (CONTENT[:10], CONTENT[STEP:])


@pytest.mark.parametrize("ending", ["", *COMPRESS])
def test_a_replaced_file_is_still_what_was_opened(tmp_path: Path, ending: str) -> None:
    """Also when it has to be read from its beginning again."""
    path = tmp_path / f"vllm.log.1{ending}"
    path.write_bytes(COMPRESS.get(ending, bytes)(CONTENT))
    file = open_any(str(path))
    file.pread(10, STEP)
    path.rename(tmp_path / f"vllm.log.2{ending}")
    path.write_bytes(COMPRESS.get(ending, bytes)(b"another one"))

    begin = file.pread(10, 0)
    file.close()

    assert begin == CONTENT[:10]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vllm.log", PlainFile),
        ("vllm.log.1", PlainFile),
        ("gz", PlainFile),
        ("vllm.log.1.gz", CompressedFile),
        ("vllm.log.1.xz", CompressedFile),
        ("vllm.log.1.bz2", CompressedFile),
    ],
)
def test_the_ending_tells_what_it_is(tmp_path: Path, name: str, kind: type) -> None:
    """A file is opened by its name, and closing it gives the descriptor free."""
    (tmp_path / name).touch()
    before = open_descriptors()

    file = open_any(str(tmp_path / name))

    assert isinstance(file, kind)
    assert open_descriptors() == before + 1
    file.close()
    assert open_descriptors() == before


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Opening says so."""
    for name in ("vllm.log", "vllm.log.1.gz"):
        with pytest.raises(FileNotFoundError):
            open_any(str(tmp_path / name))
