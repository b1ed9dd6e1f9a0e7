"""What an engine's log may hold of its users, and what a host may hold of itself, leaves the exporter nowhere."""

import os
from pathlib import Path

import pytest

from benchmarks.faults.daemon import Daemon, running
from benchmarks.faults.vllm import Vllm, answering
from tests.http_client import request as fetch
from tests.serving import eventually

SECRET = "Xylophon-4711"  # of no alphabet but its own, so that it is found wherever it goes
SETTINGS = """
state_dir = "{folder}/state-{secret}"
[gpu]
enabled = false
[probe]
enabled = false
[log]
level = "debug"
format = "{form}"
[engine]
read_from = "beginning"
endpoint_interval = 0.25
[[engine.server]]
name = "vllm"
log = "{log}"
metrics_url = "http://127.0.0.1:{port}/metrics"
"""
HEAD = "(APIServer pid=7) {level} {{now}} [{source}] "
SAID = (
    HEAD.format(level="INFO", source="logger.py:43") + f"Received request cmpl-1: prompt: '{SECRET}', params: None.\n",
    HEAD.format(level="DEBUG", source="async_llm.py:1") + f"Request {SECRET} added.\n",
    HEAD.format(level="ERROR", source="core.py:710") + f"EngineCore encountered a fatal error: {SECRET}\n",
    HEAD.format(level="ERROR", source="core.py:710") + f"ValueError: {SECRET} is too long\n",
    HEAD.format(level="WARNING", source="scheduler.py:9") + f"Failing 2 request(s) due to KV load failure {SECRET}\n",
    f"Traceback (most recent call last):\n  File {SECRET}\nRuntimeError: {SECRET}\n",
    f'{{{{"level": "INFO", "message": "{SECRET}\n',
    f'{{{{"log": "Avg prompt throughput: {SECRET}", "stream": "stdout"}}}}\n',
    HEAD.format(level="INFO", source="loggers.py:273") + f"Engine {SECRET}: Avg prompt throughput: x tokens/s\n",
    HEAD.format(level="INFO", source="api_server.py:1") + f"127.0.0.1 - POST /v1/completions?key={SECRET} 200 OK\n",
    f"\x00\xff{SECRET}\n",
)
ODD = f"""
# HELP vllm:odd {SECRET}
vllm:request_failure_total{{prompt="{SECRET}"}} 1
vllm:num_requests_running{{engine="0",model_name="llama-8b-shape",prompt="{SECRET}"}} 3
{SECRET}
"""


class Indiscreet(Vllm):
    """An engine whose /metrics has secrets, too."""

    def text(self) -> str:
        return super().text() + ODD


@pytest.fixture(scope="module", params=["json", "logfmt", "console"])
def outputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run a daemon, with its log in one of its forms, beside an indiscreet engine; return all that leaves it."""
    folder = tmp_path_factory.mktemp("host")
    vllm = Indiscreet(folder / f"vllm-{SECRET}.log")
    vllm.report()
    for line in SAID:
        vllm.say(line)
    vllm.report()
    with answering(vllm) as endpoint:
        places = {"folder": folder, "log": vllm.log, "port": endpoint.server_port}
        settings = SETTINGS.format(secret=SECRET, form=request.param, **places)
        with running(Daemon(folder, settings, os.environ)) as daemon:
            assert eventually(lambda: daemon.shows("solpi_engine_steps_total") and _lines(daemon) > len(SAID))
            return _all_of(daemon, folder)


def _lines(daemon: Daemon) -> float:
    page = daemon.page()
    return 0.0 if page is None else page.value("solpi_log_lines_total", server="vllm") or 0.0


def _all_of(daemon: Daemon, folder: Path) -> dict[str, str]:
    openmetrics = "application/openmetrics-text"
    pages = {path: fetch(daemon.port, path).text for path in ("/", "/metrics", "/-/ready", "/-/healthy", "/nowhere")}
    kept = {str(path): path.read_text(errors="replace") for path in (folder / f"state-{SECRET}").iterdir()}
    return {
        **pages,
        "OpenMetrics": fetch(daemon.port, "/metrics", Accept=openmetrics).text,
        "log": (folder / "log").read_text(),
        **kept,
    }


def test_no_line_of_an_engine_leaves_the_process(outputs: dict[str, str]) -> None:
    """Neither on a page nor in a metric, nor in the exporter's own log or state, however broken it is."""
    texts = {
        place: text.replace(f"vllm-{SECRET}.log", "").replace(f"state-{SECRET}", "") for place, text in outputs.items()
    }

    assert [place for place, text in texts.items() if SECRET in text] == []


def test_no_path_is_shown_to_whoever_passes_by(outputs: dict[str, str]) -> None:
    """Where logs and state lie is for the exporter's own log."""
    shown = ("/", "/metrics", "/-/ready", "/-/healthy", "/nowhere", "OpenMetrics")

    assert [place for place in shown if SECRET in outputs[place]] == []
