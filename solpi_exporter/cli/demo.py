"""demo: the real daemon on a recorded server and its H200."""

import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from solpi_exporter.cli.options import common_options, flags_tree, settings_from
from solpi_exporter.cli.serve import leave, serve
from solpi_exporter.cli.signals import stop_on_signals
from solpi_exporter.clock import FastClock
from solpi_exporter.demo.recording import RUNS, load_run
from solpi_exporter.demo.stage import playing
from solpi_exporter.demo.timeline import Timeline
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.sources import World
from solpi_exporter.web import WebServer

CHAPTERS = {
    "a-before": "launched kernel by kernel, no async scheduling",
    "b-after": "CUDA graphs and async scheduling",
    "c-kv-pressure": "KV cache cut to 8,192 tokens: preemptions",
}


@click.command(short_help="Run the daemon on a recorded server.")
@common_options
@click.option("--speed", type=click.FloatRange(0.1, 100), default=1.0, show_default=True, help="Play so much faster.")
@click.option("--for", "seconds", type=click.FloatRange(min=0, min_open=True), help="End by itself after SECONDS.")
def demo(config: Path | None, speed: float, seconds: float | None, **flags: Any) -> None:
    """Run the whole daemon on a recorded vLLM server and its NVIDIA H200.

    GPU readings, log and /metrics of the same run are played on one clock: first launched kernel by kernel, then with
    CUDA graphs, then short of KV cache. The decode probe is real and runs on whatever torch finds here.
    """
    stop = stop_on_signals()
    clock = FastClock(speed)
    timeline = Timeline([load_run(name) for name in RUNS], clock)
    with ExitStack() as stack:
        log_file = Path(stack.enter_context(TemporaryDirectory(prefix="solpi-demo-"))) / "vllm.log"
        server = stack.enter_context(playing(log_file, timeline, clock))
        base = {
            "http": {"listen": "127.0.0.1:10048"},
            "engine": {
                "read_from": "beginning",
                "server": [{"name": "demo", "log": str(log_file), "metrics_url": server.url, "gpus": [0]}],
            },
        }
        settings = settings_from(config, flags_tree(**flags), base)
        driver = ReplayDriver(timeline.recording(), lambda: timeline.now().elapsed, lambda: timeline.now().round)
        if seconds is not None:
            timer = threading.Timer(seconds, stop.set)
            timer.daemon = True
            timer.start()
            stack.callback(timer.cancel)
        played = None if flags["log_file"] or flags["metrics_url"] or flags["no_engine"] else (server.url, log_file)
        announce = partial(_announce, played, timeline, speed)
        status = serve(settings, World(clock, driver, is_recorded=True), stop, announce)
    leave(status)


def _announce(played: tuple[str, Path] | None, timeline: Timeline, speed: float, web: WebServer) -> None:
    """Say where to look; `played` is where the recorded server is, None where others are followed in its place."""
    click.echo(f"{'exporter':<17} http://127.0.0.1:{web.port}/metrics (page: http://127.0.0.1:{web.port}/)")
    if played is not None:
        click.echo(f"{'recorded vLLM':<17} {played[0]}")
        click.echo(f"{'its log':<17} {played[1]}")
    for start, run in timeline.chapters():
        click.echo(f"{'from ' + _clock(start / speed):<17} {CHAPTERS[run.name]}")
    click.echo(f"{'again at ' + _clock(timeline.seconds / speed):<17} Ctrl-C ends it")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
