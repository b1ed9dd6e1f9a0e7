"""run, once and check: the daemon, one exposition, and whether the settings fit."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from solpi_exporter.cli import signals
from solpi_exporter.cli.options import Fatal, common_options, flags_tree, settings_from
from solpi_exporter.cli.reexec import FLAG, reexec
from solpi_exporter.cli.signals import Signals
from solpi_exporter.config import Settings
from solpi_exporter.daemon import RESTART, Daemon
from solpi_exporter.logsetup import make_logger
from solpi_exporter.probe.baseline_file import BaselineUnusable, read_baseline
from solpi_exporter.sources import World
from solpi_exporter.statedir import QUIESCED, RUNNING, StateDirBusy

INTERRUPTED = 130  # as a shell calls a program that Ctrl-C ended


@click.command(short_help="Run the daemon.")
@common_options
@click.option(FLAG, is_flag=True, help="Start without touching the GPUs, until `solpi-exporter resume`.")
def run(config: Path | None, quiesced: bool, **flags: Any) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Without any flag it samples the host's GPUs, runs the decode probe if torch can be imported, and serves
    http://HOST:10048/metrics. Give it the serving engine as well:

    \b
      solpi-exporter run --log-file /var/log/vllm.log --metrics-url http://127.0.0.1:8000/metrics

    SIGUSR1 makes it let go of the GPUs and SIGUSR2 take them up again: `solpi-exporter quiesce` and `resume` send them.
    """
    settings = settings_from(config, flags_tree(**flags))
    log = make_logger(settings.log.format, settings.log.level)
    asked = Signals(QUIESCED if quiesced else RUNNING, log.info)

    def on_listen(port: int) -> None:
        log.info("listening", address=settings.http.listen, port=port)
        if quiesced:
            log.info("quiesced", remedy="`solpi-exporter resume` ends it")
        if settings.http.listen.endswith(":0"):
            click.echo(f"listening on port {port}")

    status = serve(settings, World(), asked.stop, on_listen, quiesced=quiesced)
    if status in (0, RESTART) and asked.may_change():
        log.info("reexecuting", mode=asked.wanted)
        log.error("reexec_failed", error=reexec(quiesced=asked.wanted == QUIESCED))  # where it succeeds, all ends here
        status = RESTART
    leave(status)


@click.command(short_help="Print one exposition and exit.")
@common_options
def once(config: Path | None, **flags: Any) -> None:
    """Poll every source once, print the exposition and exit.

    Logs are read from their beginning, whatever --from says, and the probe runs at once, which takes some seconds;
    --no-probe skips it.
    """
    settings = settings_from(config, flags_tree(**flags))
    daemon = build(settings, World(), one_shot=True)
    if sys.stderr.isatty():
        click.echo(f"reading {', '.join(daemon.pending()) or 'nothing but myself'} ...", err=True)
    try:
        exposition, status = daemon.once()
    except KeyboardInterrupt:
        leave(INTERRUPTED)
    click.echo(exposition, nl=False)
    leave(status)


@click.command(short_help="Check the settings and exit.")
@common_options
def check(config: Path | None, **flags: Any) -> None:
    """Check the settings of file, environment and flags, and exit: 0 if they fit, 2 with one line if not."""
    settings = settings_from(config, flags_tree(**flags))
    if settings.probe.baseline is not None:
        try:
            read_baseline(Path(settings.probe.baseline))
        except BaselineUnusable as error:
            raise Fatal(f"probe.baseline: {error}") from error
    servers = ", ".join(server.name for server in settings.engine.server) or "none"
    probe = str(settings.probe.enabled).lower()
    click.echo(f"ok: listen {settings.http.listen}, servers {servers}, probe {probe}")


def build(settings: Settings, world: World, *, one_shot: bool = False, quiesced: bool = False) -> Daemon:
    """Put the daemon together; end the program where its state directory or its baseline cannot be had."""
    log = make_logger(settings.log.format, settings.log.level)
    try:
        return Daemon(settings, log, world, one_shot=one_shot, quiesced=quiesced)
    except StateDirBusy as error:
        raise Fatal(str(error)) from error
    except BaselineUnusable as error:
        raise Fatal(f"probe.baseline: {error}") from error


def serve(
    settings: Settings,
    world: World,
    stop: threading.Event,
    on_listen: Callable[[int], None],
    *,
    quiesced: bool = False,
) -> int:
    """Run the daemon until `stop` and return its status; end the program where its address cannot be had."""
    daemon = build(settings, world, quiesced=quiesced)
    listen = settings.http.listen
    try:
        web = daemon.bind(listen)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Fatal(f"http.listen {listen}: {reason}; choose another with --listen") from error
    on_listen(web.port)
    return daemon.serve(web, stop)


def leave(status: int) -> NoReturn:
    """Exit, past a thread that hangs in a driver or in torch, which the interpreter would wait for or tear down."""
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread.name != signals.THREAD for thread in threading.enumerate() if thread != threading.main_thread()):
        os._exit(status)
    sys.exit(status)
