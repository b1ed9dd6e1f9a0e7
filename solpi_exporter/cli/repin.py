"""repin: ask the daemon that uses a state directory to pin a new baseline of the probe."""

from pathlib import Path

import click

from solpi_exporter.cli.options import CONFIG, Fatal, known_state_dir, settings_from
from solpi_exporter.probe.repin import RepinMarker


@click.command(short_help="Make the daemon gather a new baseline of the probe.")
@CONFIG
@click.option("--state-dir", metavar="DIR", help="The state directory that the daemon was started with.")
def repin(config: Path | None, state_dir: str | None) -> None:
    """Make the daemon drop the baseline that it has pinned, and gather another over the next day.

    For a change that is meant to stay: a baseline is what the host did on its first good day, and is never replaced by
    itself, lest a regression after an upgrade become the new normal. The daemon follows at its next cycle.

    Where probe.baseline names a file that fits this host, that is what is pinned, and nothing changes.

    Status 0 once it is asked for, 2 where the state directory is not there or may not be written to.
    """
    path = known_state_dir(config, state_dir)
    try:
        RepinMarker(path).ask()
    except OSError as error:
        raise Fatal(f"state_dir {path} cannot be written: {error.strerror}") from error
    click.echo("asked for: the daemon drops its baseline at the next cycle, and has another after a good day")
    given = settings_from(config, {}).probe.baseline
    if given is not None or config is None:  # without the daemon's settings it is not known whether there is one
        click.echo(
            f"but where {given or 'a file'} is its probe.baseline and fits this host, that stays, and nothing changes: "
            "put another in its place and restart the daemon, or remove the setting"
        )
