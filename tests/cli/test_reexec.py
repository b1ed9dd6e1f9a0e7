"""Taking one's own place."""

import subprocess
import sys

import pytest

from solpi_exporter.cli.reexec import command_line

TWICE = """
import os, sys, threading
from solpi_exporter.cli.reexec import reexec
print(os.getpid(), sys.flags.optimize, sys.argv[1:])
if "--quiesced" not in sys.argv:
    threading.Thread(target=threading.Event().wait).start()
    reexec(quiesced=True)
"""


def test_a_thread_that_hangs_does_not_hold_it() -> None:
    """The pid stays, as do Python's own options and the arguments; what was printed before is not lost."""
    result = subprocess.run(
        [sys.executable, "-O", "-c", TWICE, "run"], capture_output=True, text=True, timeout=30, check=True
    )

    first, second = result.stdout.splitlines()
    pid = first.split()[0]
    assert (first, second) == (f"{pid} 1 ['run']", f"{pid} 1 ['run', '--quiesced']")


@pytest.mark.parametrize("begin", [("-m", "solpi_exporter"), ("-X", "dev", "/opt/bin/solpi-exporter")])
def test_only_the_flag_changes(begin: tuple[str, ...]) -> None:
    """However it was started; the flag is there once, or not at all."""
    original = ["python", *begin, "run", "--listen", ":1"]
    running, quiesced = [sys.executable, *original[1:]], [sys.executable, *original[1:], "--quiesced"]

    assert command_line(original, quiesced=True) == quiesced
    assert command_line(original, quiesced=False) == running
    assert command_line(quiesced, quiesced=True) == quiesced
    assert command_line(quiesced, quiesced=False) == running


def test_an_interpreter_that_is_gone_is_told() -> None:
    """An upgrade may have taken it away; the caller goes on and can end in order."""
    code = (
        "import sys; from solpi_exporter.cli.reexec import reexec; "
        "sys.executable = '/nowhere/python'; print(reexec(quiesced=True))"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert result.stdout == "/nowhere/python: No such file or directory\n"
