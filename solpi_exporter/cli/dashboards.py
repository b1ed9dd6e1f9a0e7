"""dashboards: the Grafana dashboards, written or checked."""

from pathlib import Path

import click

from solpi_exporter.cli.options import Fatal


@click.command(short_help="Write the Grafana dashboards.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Write them here.")
@click.option(
    "--check",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Say which are not as this version has them.",
)
def dashboards(out: Path | None, check: Path | None) -> None:
    """Write the Grafana dashboards, or check those of a folder:

    \b
      solpi-exporter dashboards --out /var/lib/grafana/dashboards/solpi
      solpi-exporter dashboards --check grafana/dashboards

    They are classic JSON for Grafana 10.4 and later, to be imported by hand or provisioned.

    Status 0; 1 where a file is stale or missing, 2 where one cannot be written.
    """
    if (out is None) == (check is None):
        raise click.UsageError("give --out DIR or --check DIR")
    from solpi_exporter.dashboards.files import stale  # the daemon has no use for it

    if out is not None:
        _write(out)
    if check is not None and (found := stale(check)):
        raise click.ClickException(
            f"{check}: not as this version has them: {', '.join(found)}: run `solpi-exporter dashboards --out {check}`"
        )


def _write(folder: Path) -> None:
    from solpi_exporter.dashboards.files import write

    try:
        write(folder)
    except OSError as error:
        raise Fatal(f"{error.filename or folder} cannot be written: {error.strerror}") from error
