"""metrics: the reference of every metric, from the table that the code itself uses."""

import click

from solpi_exporter.catalog import reference


@click.command(short_help="Print the reference of every metric.")
def metrics() -> None:
    """Print the reference of every metric as Markdown: name, type, labels, meaning."""
    click.echo(reference(), nl=False)
