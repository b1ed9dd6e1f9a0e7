"""The command line: parses, calls, and turns outcomes into exit statuses. The only package that imports click."""

import click

from solpi_exporter import __version__
from solpi_exporter.cli.dashboards import dashboards
from solpi_exporter.cli.demo import demo
from solpi_exporter.cli.install import install, uninstall
from solpi_exporter.cli.metrics import metrics
from solpi_exporter.cli.probe import probe
from solpi_exporter.cli.quiesce import quiesce, resume
from solpi_exporter.cli.read import read
from solpi_exporter.cli.record import record
from solpi_exporter.cli.repin import repin
from solpi_exporter.cli.rules import rules
from solpi_exporter.cli.serve import check, once, run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="solpi-exporter")
def main() -> None:
    """Show what the control layer costs each token of an LLM inference host.

    The exporter samples the GPUs through NVML, follows the serving engine's log and /metrics, runs a small decode
    probe, and serves it all to Prometheus. `solpi-exporter demo` shows it on a recorded server, with or without a GPU.
    """


for command in (
    *(run, once, demo, check, quiesce, resume, record, read, probe, repin),
    *(metrics, rules, dashboards, install, uninstall),
):
    main.add_command(command)
