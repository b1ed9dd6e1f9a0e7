"""run, once and check: the daemon, one exposition, and whether the settings fit."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from structlog.typing import FilteringBoundLogger

from solpi_exporter.cli import signals
from solpi_exporter.cli.inherited import inherited
from solpi_exporter.cli.options import Fatal, common_options, flags_tree, settings_from
from solpi_exporter.cli.reexec import FLAG, reexec
from solpi_exporter.cli.signals import Signals
from solpi_exporter.config import Settings
from solpi_exporter.daemon import RESTART, Daemon
from solpi_exporter.logsetup import make_logger
from solpi_exporter.probe.baseline_file import BaselineUnusable, read_baseline
from solpi_exporter.reloads import Reload, Reloads
from solpi_exporter.sources import World
from solpi_exporter.statedir import QUIESCED, RUNNING, StateDirBusy
from solpi_exporter.supervisor import supervisor_of
from solpi_exporter.web import Protection, WebServer

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
    SIGHUP makes it take up its settings anew; where they do not fit, those that it has stay in force.
    """
    settings = settings_from(config, flags_tree(**flags))
    log = make_logger(settings.log.format, settings.log.level)
    supervisor, reloads = supervisor_of(os.environ), Reloads(time.time())
    refused = partial(_refused, config, flags, reloads, log)
    asked = Signals(QUIESCED if quiesced else RUNNING, log.info, refused)
    listening: list[socket.socket] = []
    status = serve(
        settings,
        World(supervisor=supervisor, reloads=reloads),
        asked.stop,
        partial(_tell, log, settings.http.listen, listening, quiesced),
        quiesced=quiesced,
        reload=Reload(refused, asked.reload) if settings.http.reload else None,
        inherited=inherited(os.environ),
    )
    if status in (0, RESTART) and asked.may_change():
        supervisor.reloading()
        log.info("reexecuting", mode=asked.wanted)
        stays = _address(config, flags) == settings.http.listen
        error = reexec(quiesced=asked.wanted == QUIESCED, sockets=listening if stays else ())
        log.error("reexec_failed", error=error)  # where it succeeds, all ends above
        status = RESTART
    supervisor.stopping()
    leave(status)


def _refused(config: Path | None, flags: Mapping[str, Any], reloads: Reloads, log: FilteringBoundLogger) -> str | None:
    """Return, log and note why the settings as they are now cannot be taken."""
    try:
        checked(config, flags)
        reloads.error = None
    except Fatal as error:
        reloads.error = error.message
        log.error("reload_refused", error=error.message, remedy="mend it and reload; what was in force still is")
    return reloads.error


def _tell(
    log: FilteringBoundLogger, address: str, listening: list[socket.socket], quiesced: bool, web: WebServer
) -> None:
    """Log where it listens, and keep the sockets for the program that this one may become."""
    listening.extend(web.keep())
    log.info("listening", address=address, port=web.port)
    if quiesced:
        log.info("quiesced", remedy="`solpi-exporter resume` ends it")
    if address.endswith(":0"):
        click.echo(f"listening on port {web.port}")


def _address(config: Path | None, flags: Mapping[str, Any]) -> str | None:
    """Return where the next program will listen; None where it will not start."""
    try:
        return settings_from(config, flags_tree(**flags)).http.listen
    except Fatal:
        return None


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
    settings = checked(config, flags)
    servers = ", ".join(server.name for server in settings.engine.server) or "none"
    probe = str(settings.probe.enabled).lower()
    click.echo(f"ok: listen {settings.http.listen}, servers {servers}, probe {probe}")


def checked(config: Path | None, flags: Mapping[str, Any]) -> Settings:
    """Return the settings, with what they name looked at; end the program where something does not fit."""
    settings = settings_from(config, flags_tree(**flags))
    if settings.probe.baseline is not None:
        try:
            read_baseline(Path(settings.probe.baseline))
        except BaselineUnusable as error:
            raise Fatal(f"probe.baseline: {error}") from error
    protection_of(settings)
    return settings


def protection_of(settings: Settings) -> Protection:
    """Return what the web configuration asks for; end the program where that cannot be kept."""
    if settings.http.web_config is None:
        return Protection()
    from solpi_exporter.protection import ProtectionError, load  # 6 MB that most do not need

    try:
        return load(Path(settings.http.web_config))
    except ProtectionError as error:
        raise Fatal(f"http.web_config: {error}") from error


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
    on_listen: Callable[[WebServer], None],
    *,
    quiesced: bool = False,
    reload: Reload | None = None,
    inherited: Sequence[socket.socket] = (),
) -> int:
    """Run the daemon until `stop` and return its status; end the program where its address cannot be had."""
    protection = protection_of(settings)
    daemon = build(settings, world, quiesced=quiesced)
    listen = settings.http.listen
    try:
        web = daemon.bind(listen, reload, inherited, protection)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Fatal(f"http.listen {listen}: {reason}; choose another with --listen") from error
    on_listen(web)
    return daemon.serve(web, stop)


def leave(status: int) -> NoReturn:
    """Exit, past a thread that hangs in a driver or in torch, which the interpreter would wait for or tear down."""
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread.name != signals.THREAD for thread in threading.enumerate() if thread != threading.main_thread()):
        os._exit(status)
    sys.exit(status)
