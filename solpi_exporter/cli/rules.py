"""rules: the alert rules for Prometheus, with the limits that a site wants."""

import math
from pathlib import Path

import click

from solpi_exporter.cli.options import Fatal
from solpi_exporter.rules.limits import LIMITS, UnknownLimit, chosen
from solpi_exporter.rules.rule import RUNBOOKS


@click.command(short_help="Print or write the alert rules for Prometheus.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write files there instead of printing.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a limit; may be repeated.")
@click.option("--runbooks", default=RUNBOOKS, show_default=True, metavar="URL", help="Where you keep docs/runbooks.md.")
@click.option("--limits", is_flag=True, help="Print every limit with its meaning, and end.")
def rules(out: Path | None, changes: tuple[str, ...], runbooks: str, limits: bool) -> None:
    """Print or write the recording and alert rules for Prometheus 2.42 and later.

    They need no name of a job: every metric in them is this exporter's own. docs/runbooks.md explains each alert.

    Status 0; 2 where a limit is none, or a file cannot be written.
    """
    values = _values(changes)
    if limits:
        for limit in LIMITS:
            click.echo(f"{limit.name:20} {values[limit.name]:>8g} {limit.unit:11} {limit.meaning}")
        return
    from solpi_exporter.rules.files import printed, rule_files  # bring a YAML library; the daemon has no use for it

    if out is None:
        click.echo(printed(values, runbooks), nl=False)
        return
    for name, text in rule_files(values, runbooks).items():
        _write(out / name, text)


def _values(changes: tuple[str, ...]) -> dict[str, float]:
    try:
        return dict(chosen(dict(_change(one) for one in changes)))
    except UnknownLimit as error:
        raise Fatal(f"--set {error}: there is no such limit; `solpi-exporter rules --limits` prints them") from error


def _change(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Fatal(f"--set {text}: give a name and a number, such as kv_usage=0.9")
    return name, number


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise Fatal(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"wrote {path}")
