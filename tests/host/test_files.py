"""Reading small files of procfs and sysfs."""

from pathlib import Path

import pytest

from solpi_exporter.host.files import cpu_list, cpu_ranges, read


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    """Its text is returned as it is; bytes that are no UTF-8 are replaced."""
    (tmp_path / "file").write_bytes(b"one\ntwo\xff\n")

    assert read(tmp_path / "file") == "one\ntwo\N{REPLACEMENT CHARACTER}\n"


def test_what_is_not_there_is_not_known(tmp_path: Path) -> None:
    """A missing file and a folder in its place are both None."""
    assert read(tmp_path / "missing") is None
    assert read(tmp_path) is None


def test_a_file_that_opens_and_fails_to_read_is_not_known() -> None:
    """The kernel may decline only when it is read, as a pressure file does with EOPNOTSUPP when PSI is off."""
    with open("/proc/self/mem", "rb", buffering=0) as memory, pytest.raises(OSError, match="Input/output"):
        memory.read(1)

    assert read("/proc/self/mem") is None


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set()), ("", set()), ("0-1,4-5", {0, 1, 4, 5})],
)
def test_a_list_of_cpus_is_read(text: str, cpus: set[int]) -> None:
    """Ranges include both ends; nothing at all is no CPU."""
    assert cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["0-3,8", "5", "", "0-1,4-5", "0,2,4"])
def test_a_list_of_cpus_is_written_as_the_kernel_does(text: str) -> None:
    """What is read from it is written as it was."""
    assert cpu_ranges(cpu_list(text)) == text
