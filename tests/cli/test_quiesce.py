"""Letting go of the GPUs and taking them up again: real daemons, real signals."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest
from click.testing import CliRunner

from solpi_exporter.cli import main
from solpi_exporter.statedir import PID_FILE, StateDir
from tests.cli.test_commands import solpi
from tests.http_client import request
from tests.serving import eventually

HOLDER = """
import signal, sys
from pathlib import Path
from solpi_exporter.statedir import StateDir
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
state = StateDir(Path(sys.argv[1]))
print("held", flush=True)
input()
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Running:
    """A daemon in a process of its own, on a port that stays the same when it starts anew."""

    def __init__(self, folder: Path, *flags: str, leaked: int | None = None) -> None:
        self.state = str(folder / "state")
        self.port = free_port()
        self._log = folder / "log"
        arguments = (*flags, "--listen", f"127.0.0.1:{self.port}", "--state-dir", self.state)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "solpi_exporter", "run", "--log-format", "logfmt", *arguments],
                stderr=log,
                pass_fds=() if leaked is None else (leaked,),
            )

    def is_ready(self) -> bool:
        """Return whether it answers that every source has been polled; not while it starts."""
        try:
            return request(self.port, "/-/ready").status == 200
        except (OSError, HTTPException):
            return False

    def state_of(self, source: str) -> list[str]:
        begin = f'solpi_source_state{{source="{source}",state="'
        text = request(self.port, "/metrics").text if self.is_ready() else ""
        lines = [line for line in text.splitlines() if line.startswith(begin) and line.endswith(" 1.0")]
        return [line.removeprefix(begin).partition('"')[0] for line in lines]

    def log(self) -> str:
        return self._log.read_text()

    def open_files(self) -> set[str]:
        """Return what it holds open; what it closes while we look is not."""
        folder, found = f"/proc/{self.process.pid}/fd", set()
        for number in os.listdir(folder):
            with suppress(FileNotFoundError):
                found.add(os.readlink(f"{folder}/{number}"))
        return found

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(10.0)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def begin(*flags: str, leaked: int | None = None) -> Running:
        started.append(Running(tmp_path, *flags, leaked=leaked))
        daemon = started[-1]
        assert eventually(lambda: daemon.is_ready() or daemon.process.poll() is not None)
        assert daemon.is_ready(), daemon.log()
        return daemon

    yield begin
    for one in started:
        one.process.kill()
        one.process.wait(10.0)


@pytest.mark.parametrize("command", ["quiesce", "resume"])
def test_help_tells_what_it_does(command: str) -> None:
    """More than a list of flags: what happens, and what the status says."""
    result = solpi(command, "--help")

    assert result.returncode == 0
    assert "Status 0 once it" in result.stdout


def test_there_and_back(start: Start) -> None:
    """The GPUs are let go of and taken up again by one process; the page says so, and the daemon ends as ever."""
    daemon = start("--no-probe")
    pid = daemon.process.pid

    first = solpi("quiesce", "--state-dir", daemon.state)
    again = solpi("quiesce", "--state-dir", daemon.state)

    hint = f"`solpi-exporter resume --state-dir {daemon.state}` ends it\n"
    assert (first.returncode, first.stdout) == (0, f"quiesced: process {pid} has let go of the driver; {hint}")
    assert (again.returncode, again.stdout) == (
        0,
        f"already quiesced: process {pid} let go of the driver before; {hint}",
    )
    assert eventually(lambda: daemon.state_of("gpu") == ["quiesced"])
    assert daemon.state_of("probe") == ["off"]

    back = solpi("resume", "--state-dir", daemon.state)
    once_more = solpi("resume", "--state-dir", daemon.state)

    assert (back.returncode, back.stdout) == (0, f"resumed: process {pid} is running\n")
    assert (once_more.returncode, once_more.stdout) == (0, f"already running: process {pid} was not quiesced\n")
    assert eventually(lambda: daemon.state_of("gpu") not in ([], ["quiesced"]))
    assert daemon.stop() == 0
    assert daemon.log().count("event=stopped status=0") == 3


def test_no_descriptor_outlives_it(start: Start) -> None:
    """One that a library opened to be inherited would keep the GPU in use."""
    read, write = os.pipe()
    leak = os.readlink(f"/proc/self/fd/{write}")
    daemon = start("--no-probe", leaked=write)
    os.close(write)
    assert leak in daemon.open_files()

    solpi("quiesce", "--state-dir", daemon.state)

    assert leak not in daemon.open_files()
    assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.gpu
def test_no_file_of_the_driver_stays_open(start: Start) -> None:
    """NVML had some, and the probe's CUDA context others: with none of them left, a GPU can be reset."""
    daemon = start()
    assert eventually(lambda: "/dev/nvidia-uvm" in daemon.open_files(), 60.0)

    solpi("quiesce", "--state-dir", daemon.state)

    assert not any(path.startswith("/dev/nvidia") for path in daemon.open_files())


def test_a_signal_for_the_mode_it_is_in_changes_nothing(start: Start) -> None:
    """Nor does one that comes while it starts anew, before it could handle it: neither kills."""
    daemon = start("--no-probe")

    daemon.process.send_signal(signal.SIGUSR2)
    assert eventually(lambda: "event=already_running" in daemon.log())
    daemon.process.send_signal(signal.SIGUSR1)
    daemon.process.send_signal(signal.SIGUSR1)
    assert eventually(lambda: "event=reexecuting mode=quiesced" in daemon.log())
    daemon.process.send_signal(signal.SIGUSR1)
    assert eventually(lambda: "event=already_quiesced" in daemon.log())

    assert eventually(lambda: daemon.state_of("gpu") == ["quiesced"])
    assert daemon.log().count("event=reexecuting") == 1
    assert daemon.stop() == 0


def test_an_end_beside_another_wish_is_an_end(start: Start) -> None:
    """With status 0, whichever program it reaches."""
    daemon = start("--no-probe")

    daemon.process.send_signal(signal.SIGUSR1)

    assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--state-dir", "/nowhere/state"), "state_dir /nowhere/state: no daemon holds it: name that of the one"),
        ((), "no state directory is known: name the daemon's with --state-dir"),
    ],
)
def test_nobody_there(arguments: tuple[str, ...], message: str) -> None:
    """One line that says what to name, status 2."""
    result = solpi("quiesce", *arguments)

    assert result.returncode == 2
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.count("\n") == 1


def test_a_stale_pid_is_not_signalled(tmp_path: Path) -> None:
    """A process that was given the number of a daemon that crashed lives on."""
    settings = tmp_path / "a.toml"
    settings.write_text(f'state_dir = "{tmp_path}"\n')
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / PID_FILE).write_text(f"{other.pid}\nrunning\n")

        result = solpi("quiesce", "--config", str(settings))

        other.communicate(b"\n")
    assert result.returncode == 2
    assert f"state_dir {tmp_path}: no daemon holds it" in result.stderr
    assert other.returncode == 0


def test_what_takes_no_request_is_not_signalled(tmp_path: Path) -> None:
    """An older version would die of it; this very process holds the directory."""
    state = StateDir(tmp_path, "")

    result = solpi("quiesce", "--state-dir", str(tmp_path))

    assert result.returncode == 2
    assert f"process {os.getpid()} holds it and cannot be asked" in result.stderr
    state.close()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Return a function that starts a process which holds the directory and is no daemon."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(manner: str) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-c", HOLDER, str(tmp_path), manner]
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_a_daemon_that_does_not_follow_is_named(tmp_path: Path, held: Callable[[str], subprocess.Popen[bytes]]) -> None:
    """After the time that was given, with what to do, status 1."""
    process = held("deaf")

    result = solpi("quiesce", "--state-dir", str(tmp_path), "--timeout", "0.3")

    assert result.returncode == 1
    assert f"process {process.pid} is not quiesced after 0.3 s: it may hang in the driver" in result.stderr
    assert f"kill -KILL {process.pid}" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_daemon_that_ends_instead_is_not_waited_for(
    tmp_path: Path, held: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    """It is told at once, status 1."""
    process = held("mortal")
    command = subprocess.Popen(
        [sys.executable, "-m", "solpi_exporter", "quiesce", "--state-dir", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    process.wait(10.0)

    _, stderr = command.communicate(timeout=10.0)

    assert command.returncode == 1
    assert f"process {process.pid} has ended instead of being quiesced" in stderr


def test_who_may_not_signal_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As whom to run it, status 1."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    state = StateDir(tmp_path)

    result = CliRunner().invoke(main, ["quiesce", "--state-dir", str(tmp_path)])

    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: process {os.getpid()} cannot be signalled: Operation not permitted: "
        "run this as root or as the daemon's user\n"
    )
    state.close()


def test_a_directory_that_cannot_be_read(tmp_path: Path) -> None:
    """Is not taken for one that nobody holds."""
    (tmp_path / "state").write_text("")

    result = solpi("resume", "--state-dir", str(tmp_path / "state"))

    assert result.returncode == 1
    assert "cannot be read: Not a directory" in result.stderr
