"""install and uninstall: the files of a systemd service. What systemd is to do with them is printed, no more."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

import solpi_exporter
from solpi_exporter.cli.options import Fatal
from solpi_exporter.rules.files import rule_files
from solpi_exporter.rules.limits import chosen
from solpi_exporter.service import installed
from solpi_exporter.service.installed import Step
from solpi_exporter.service.unit import UNIT_NAME, files

RULES = "etc/solpi-exporter/rules"  # for a Prometheus on this host, or to be taken to another

ROOT = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    help="Where the host's files are, such as an image's.  [default: /]",
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done.")


@click.command(short_help="Lay down a systemd service.")
@ROOT
@DRY_RUN
@click.option("--no-probe", is_flag=True, help="For hosts on which the decode probe does not run.")
def install(root: Path, dry_run: bool, no_probe: bool) -> None:
    """Lay down a systemd unit, settings to begin with, and the alert rules; files that you have changed are kept.

    The service runs the Python and the package that run this command, as a user without rights: put them where every
    user can read them, such as /opt.
    """
    for path in (Path(sys.executable), Path(solpi_exporter.__file__)):
        reason = installed.unreadable(path)
        if reason is not None:
            raise Fatal(f"{reason}: install the exporter elsewhere, such as in a venv under /opt, and run its install")
    rules = {f"{RULES}/{name}": text for name, text in rule_files(chosen({})).items()}
    steps = installed.to_install(root, {**files(sys.executable, probe=not no_probe), **rules})
    if not dry_run:
        _try(lambda: installed.install(root, steps), root)
    _tell(steps, root, dry_run, f"systemctl daemon-reload && systemctl enable --now {UNIT_NAME}")


@click.command(short_help="Take a systemd service away.")
@ROOT
@DRY_RUN
def uninstall(root: Path, dry_run: bool) -> None:
    """Take away what `install` has laid down; files that you have changed are kept, and named.

    First: systemctl disable --now solpi-exporter
    """
    steps = installed.to_uninstall(root)
    if not steps:
        raise Fatal(f"{root}: nothing was installed there by `solpi-exporter install`")
    if not dry_run:
        _try(lambda: installed.uninstall(root, steps), root)
    _tell(steps, root, dry_run, "systemctl daemon-reload")


def _try(deed: Callable[[], None], root: Path) -> None:
    try:
        deed()
    except OSError as error:
        raise Fatal(f"{error.filename or root}: {error.strerror}; run it as root, or with another --root") from error


def _tell(steps: list[Step], root: Path, dry_run: bool, then: str) -> None:
    for line in installed.told(steps, root):
        click.echo(line)
    if dry_run:
        click.echo("nothing was done: --dry-run")
    elif root == Path("/"):
        click.echo(f"now: {then}")
