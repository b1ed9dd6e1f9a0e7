"""quiesce and resume: ask the daemon that holds a state directory to let go of the GPUs, and to take them up again."""

import math
import os
import shlex
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from solpi_exporter.cli.options import CONFIG, Fatal, known_state_dir
from solpi_exporter.cli.signals import MODES
from solpi_exporter.statedir import Holder, holder

PAUSE_SECONDS = 0.1

Command = TypeVar("Command", bound=Callable[..., Any])


def _options(command: Command) -> Command:
    timeout = click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        default=30.0,
        help="Wait so long for the daemon to follow.  [default: 30]",
    )
    state_dir = click.option("--state-dir", metavar="DIR", help="The state directory that the daemon was started with.")
    return CONFIG(state_dir(timeout(command)))


@click.command(short_help="Make the daemon let go of the GPUs.")
@_options
def quiesce(config: Path | None, state_dir: str | None, timeout: float) -> None:
    """Make the running daemon let go of the driver, so that a GPU can be reset or its MIG mode changed:

    \b
      solpi-exporter quiesce --state-dir /var/lib/solpi-exporter
      nvidia-smi --gpu-reset -i 0
      solpi-exporter resume --state-dir /var/lib/solpi-exporter

    The daemon saves its state and starts anew under the same process number, which takes a second or two and reads the
    settings again. Until `resume`, or a restart without `run --quiesced`, it leaves the GPUs and the probe alone and
    reads the rest as before. That is no outage: solpi_source_state shows "quiesced" for them, not "down".

    Status 0 once it has let go, or had already; 1 if it does not follow; 2 if no daemon was found.
    """
    path = known_state_dir(config, state_dir)
    resume_command = f"`solpi-exporter resume --state-dir {shlex.quote(str(path))}` ends it"
    pid, changed = _switch(path, signal.SIGUSR1, timeout)
    click.echo(
        f"quiesced: process {pid} has let go of the driver; {resume_command}"
        if changed
        else f"already quiesced: process {pid} let go of the driver before; {resume_command}"
    )


@click.command(short_help="Make the daemon take the GPUs up again.")
@_options
def resume(config: Path | None, state_dir: str | None, timeout: float) -> None:
    """Make the daemon take up the GPUs and the probe again after `solpi-exporter quiesce`.

    It starts anew under the same process number, which takes a second or two and reads the settings again.

    Status 0 once it is running, or was already; 1 if it does not follow; 2 if no daemon was found.
    """
    pid, changed = _switch(known_state_dir(config, state_dir), signal.SIGUSR2, timeout)
    click.echo(f"resumed: process {pid} is running" if changed else f"already running: process {pid} was not quiesced")


def _switch(path: Path, request: signal.Signals, timeout: float) -> tuple[int, bool]:
    """Return the daemon's pid once it is in the mode that `request` asks for, and whether it had to be asked."""
    found, mode = _holder(path), MODES[request]
    if found is None:
        raise Fatal(
            f"state_dir {path}: no daemon holds it: name that of the one that runs, or start it with this one; "
            "a daemon in a container is asked from inside it"
        )
    if found.mode not in MODES.values():
        raise Fatal(f"state_dir {path}: process {found.pid} holds it and cannot be asked: stop it, or wait for its end")
    if found.mode == mode:
        return found.pid, False
    _send(found.pid, request)
    _wait(path, Holder(found.pid, mode), timeout)
    return found.pid, True


def _holder(path: Path) -> Holder | None:
    try:
        return holder(path)
    except OSError as error:
        raise click.ClickException(
            f"state_dir {path} cannot be read: {error.strerror}: run this as root or as the daemon's user"
        ) from error


def _send(pid: int, request: signal.Signals) -> None:
    try:
        os.kill(pid, request)
    except OSError as error:
        raise click.ClickException(
            f"process {pid} cannot be signalled: {error.strerror}: run this as root or as the daemon's user"
        ) from error


def _wait(path: Path, wanted: Holder, timeout: float) -> None:
    pause = threading.Event()
    for _ in range(math.ceil(timeout / PAUSE_SECONDS)):
        if _holder(path) == wanted:
            return
        if not Path(f"/proc/{wanted.pid}").exists():
            raise click.ClickException(
                f"process {wanted.pid} has ended instead of being {wanted.mode}: its log says why; start it again"
            )
        pause.wait(PAUSE_SECONDS)
    raise click.ClickException(
        f"process {wanted.pid} is not {wanted.mode} after {timeout:g} s: it may hang in the driver; see its log, or "
        f"stop it with `kill -KILL {wanted.pid}`; where even that does not end it, only a reboot frees the GPU"
    )
