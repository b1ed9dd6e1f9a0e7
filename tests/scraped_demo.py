"""The demo as a newcomer runs it, and a real Prometheus with our rules that scrapes it every second."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from solpi_exporter.rules.files import rule_files
from solpi_exporter.rules.limits import chosen
from tests.conftest import find_tool
from tests.http_client import request

SPEED = 20


@contextmanager
def demo_running(speed: int = SPEED, **settings: str) -> Iterator[int]:
    """Run the demo at speed, with settings as environment variables, and yield its port."""
    command = [sys.executable, "-m", "solpi_exporter", "demo", "--speed", str(speed), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"http://127.0.0.1:(\d+)/metrics", first)
        assert found is not None, first
        try:
            yield int(found[1])
        finally:
            process.terminate()
        assert process.wait(10.0) == 0


@contextmanager
def prometheus_scraping(folder: Path, *targets: dict[str, Any]) -> Iterator[int]:
    """Run a real Prometheus with our rules that scrapes groups of targets every second, and yield its port."""
    config = folder / "prometheus.yml"
    (folder / "rules").mkdir()
    for name, text in rule_files(chosen({})).items():
        (folder / "rules" / name).write_text(text)
    job = {"job_name": "solpi", "static_configs": targets}
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    tree = {"global": often, "rule_files": [str(folder / "rules" / "*.yml")], "scrape_configs": [job]}
    config.write_text(json.dumps(tree))  # JSON is YAML
    port = free_port()
    command = [
        find_tool("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield port
        finally:
            process.terminate()


def free_port() -> int:
    """Return a port that was free just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ask(port: int, query: str) -> list[dict[str, Any]]:
    """Return the result of an instant query, empty while Prometheus is starting; fail where it refuses it."""
    try:
        answer = request(port, f"/api/v1/query?query={urllib.parse.quote(query)}")
    except OSError:
        return []
    assert answer.status != 400, answer.text
    result: list[dict[str, Any]] = json.loads(answer.body)["data"]["result"] if answer.status == 200 else []
    return result
