"""The flags that run, once and demo share, and how they become settings: a flag beats environment, file and default."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from solpi_exporter.config import READ_FROM, Settings
from solpi_exporter.logsetup import FORMATS, LEVELS
from solpi_exporter.settings_file import ConfigError, Tree, load

Command = TypeVar("Command", bound=Callable[..., Any])


class Fatal(click.ClickException):
    """Ends the program with one line; 2, as for wrong usage."""

    exit_code = 2


CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="SOLPI_CONFIG",
    help="Settings in TOML; every one has a default.",
)

_COMMON = (
    CONFIG,
    click.option(
        "--listen",
        metavar="HOST:PORT",
        help="Where to serve; port 0 takes any free one and prints it.  [default: :10048, demo 127.0.0.1:10048]",
    ),
    click.option(
        "--web.config.file",
        "web_config",
        metavar="FILE",
        help="Prometheus' web configuration: TLS, and users with passwords.",
    ),
    click.option("--state-dir", metavar="DIR", help="Directory of this daemon's state; one daemon at a time has it."),
    click.option(
        "--log-file",
        type=click.Path(),  # in the environment, paths are separated as in PATH
        metavar="PATH",
        multiple=True,
        envvar="SOLPI_LOG_FILE",
        help="Log of a serving engine, or a quoted pattern; each makes one server named after the file's stem.",
    ),
    click.option(
        "--metrics-url",
        metavar="URL",
        envvar="SOLPI_METRICS_URL",
        help="The engine's own /metrics, such as http://127.0.0.1:8000/metrics.",
    ),
    click.option(
        "--from",
        "read_from",
        type=click.Choice(READ_FROM),
        help="Where to begin in logs that exist already.  [default: end]",
    ),
    click.option("--no-gpu", is_flag=True, help="Leave the GPUs alone."),
    click.option("--no-engine", is_flag=True, help="Leave the engine's log and /metrics alone."),
    click.option("--no-probe", is_flag=True, help="Do not run the decode probe."),
    click.option("--log-format", type=click.Choice(FORMATS), help="The exporter's own log.  [default: auto]"),
    click.option("--log-level", type=click.Choice(LEVELS), help="The least that it tells.  [default: info]"),
)


def common_options(command: Command) -> Command:
    """Give a command the common flags."""
    for option in reversed(_COMMON):
        command = option(command)
    return command


def settings_from(config: Path | None, flags: Tree, base: Tree | None = None) -> Settings:
    """Return the settings that flags, environment and file make; end the program where they do not fit."""
    try:
        return load(config, os.environ, flags, base)
    except ConfigError as error:
        raise Fatal(str(error)) from error


def flags_tree(
    *,
    listen: str | None = None,
    web_config: str | None = None,
    state_dir: str | None = None,
    log_file: tuple[str, ...] = (),
    metrics_url: str | None = None,
    read_from: str | None = None,
    no_gpu: bool = False,
    no_engine: bool = False,
    no_probe: bool = False,
    log_format: str | None = None,
    log_level: str | None = None,
) -> Tree:
    """Return the settings tree of the flags that were given."""
    servers = _servers(log_file, metrics_url)
    given = {
        "state_dir": state_dir,
        "http": {"listen": listen, "web_config": web_config},
        "gpu": {"enabled": False if no_gpu else None},
        "engine": {"enabled": False if no_engine else None, "read_from": read_from, "server": servers or None},
        "probe": {"enabled": False if no_probe else None},
        "log": {"format": log_format, "level": log_level},
    }
    return _without_none(given)


def _servers(log_file: tuple[str, ...], metrics_url: str | None) -> list[Tree]:
    """Return a server for each log; an endpoint belongs to the only one, or is a server of its own."""
    servers: list[Tree] = [{"name": _stem(path), "log": path} for path in log_file]
    if metrics_url is None:
        return servers
    if len(servers) > 1:
        raise Fatal(
            "--metrics-url with several --log-file: to which server does it belong? "
            "Write a [[engine.server]] table for each into a --config file"
        )
    return [{**(servers[0] if servers else {"name": "engine"}), "metrics_url": metrics_url}]


def _stem(path: str) -> str:
    """Return the file's stem as a server's name: vllm-*.log is vllm, and signs that a name cannot have become _."""
    stem = Path(path).stem.translate(str.maketrans("", "", "*?[]")).strip("-_.:")
    return re.sub(r"[^A-Za-z0-9_.:-]", "_", stem)[:64].lstrip("_.:-") or "engine"


def _without_none(tree: Tree) -> Tree:
    pruned = {key: _without_none(value) if isinstance(value, dict) else value for key, value in tree.items()}
    return {key: value for key, value in pruned.items() if value is not None and value != {}}


def known_state_dir(config: Path | None, state_dir: str | None) -> Path:
    """Return the state directory of a daemon, as a flag or its settings name it; end the program without one."""
    known = settings_from(config, {} if state_dir is None else {"state_dir": state_dir}).state_dir
    if known is None:
        raise Fatal("no state directory is known: name the daemon's with --state-dir, or its settings with --config")
    return Path(known)
