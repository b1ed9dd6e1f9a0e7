"""The commands as a user meets them: separate processes, exit statuses, what is printed where."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solpi_exporter import __version__
from solpi_exporter.catalog import METRICS
from tests.fakes import SHIPPED
from tests.http_client import request
from tests.serving import eventually

COMMANDS = ("run", "once", "demo", "check", "quiesce", "resume", "record", "probe", "metrics")
LOG = SHIPPED / "vllm-0.24.0-h200" / "c-kv-pressure.log"


def solpi(*arguments: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command and return its outcome."""
    return subprocess.run(
        [sys.executable, "-m", "solpi_exporter", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environment},
    )


class Background:
    """A command that runs until it is told to stop."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "solpi_exporter", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def port(self) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"listening on port (\d+)|exporter +http://127.0.0.1:(\d+)", line):
                return int(found[1] or found[2])
        raise AssertionError("it ended without listening")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Return the exit status and the seconds that stopping took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(10.0)
        return status, time.monotonic() - begun


@pytest.fixture
def background() -> Iterator[Callable[..., Background]]:
    started: list[Background] = []

    def start(*arguments: str) -> Background:
        started.append(Background(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_version() -> None:
    """Name and version."""
    assert solpi("--version").stdout == f"solpi-exporter, version {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_tells_what_it_does(command: str) -> None:
    """More than a list of flags."""
    result = solpi(command, "--help")

    assert result.returncode == 0
    assert len(result.stdout.splitlines()) >= 5
    assert f"solpi-exporter {command}" in result.stdout.replace("python -m solpi_exporter", "solpi-exporter")


def test_help_lists_every_command() -> None:
    """Each with a line of its own."""
    text = solpi("--help").stdout

    assert all(re.search(rf"^  {command} +\S", text, re.MULTILINE) for command in COMMANDS)


def test_metrics_lists_everything() -> None:
    """Also without torch, a GPU or a configuration."""
    text = solpi("metrics").stdout

    assert all(f"`{metric.name}`" in text for metric in METRICS)


def test_once_prints_an_exposition_and_nothing_else(tool: Callable[[str], str]) -> None:
    """On standard output, fit for promtool; what is missing is told on standard error, one line each."""
    result = solpi("once", "--no-probe", "--log-file", str(LOG))

    assert result.returncode == 0
    assert 'solpi_log_lines_total{server="c-kv-pressure"} 1210.0' in result.stdout
    info = 'solpi_engine_info{model="llama-8b-shape",server="c-kv-pressure",software="vllm",version="0.24.0"} 1.0'
    assert info in result.stdout
    check = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=result.stdout, capture_output=True, text=True, check=False
    )
    assert (check.returncode, check.stdout + check.stderr) == (0, "")
    assert all("level=" in line for line in result.stderr.splitlines())


def test_once_with_the_probe() -> None:
    """It probes at once, on real torch, and the published phases sum to the published token."""
    for _ in range(10):  # a machine with other work to do may need more than one try
        result = solpi(
            "once", "--no-gpu", SOLPI_PROBE_DEVICE="cpu", SOLPI_PROBE_BATCHES="[1]", SOLPI_PROBE_ROTATION="[]"
        )
        if 'solpi_probe_runs_total{outcome="success"} 1.0' in result.stdout:
            break

    phases = re.findall(r"^solpi_probe_phase_seconds\{.*\} (\S+)$", result.stdout, re.MULTILINE)
    token = re.search(r'^solpi_probe_token_seconds\{.*mode="eager_sync".*\} (\S+)$', result.stdout, re.MULTILINE)
    assert token is not None
    assert sum(map(float, phases)) == pytest.approx(float(token[1]))


def test_probe_prints_a_row_a_batch() -> None:
    """A table with a bar for each, and what it means in words; quiet about its progress in a pipe."""
    result = solpi("probe", "--device", "cpu", "--batch", "1", "--batch", "4")

    assert result.returncode == 0
    assert result.stderr == ""
    assert re.search(r"^ +1 +(\d+\.\d+ ms|noisy) ", result.stdout, re.MULTILINE)
    assert re.search(r"^ +4 +(\d+\.\d+ ms|noisy) ", result.stdout, re.MULTILINE)


def test_probe_in_a_worker() -> None:
    """As the settings say: the table is the same."""
    result = solpi("probe", "--device", "cpu", "--batch", "1", "--context", "16", SOLPI_PROBE_ISOLATION="worker")

    assert (result.returncode, result.stderr) == (0, "")
    assert re.search(r"^ +1 +(\d+\.\d+ ms|noisy) ", result.stdout, re.MULTILINE)


def test_probe_as_json() -> None:
    """One object: on what it was measured, and everything measured."""
    for _ in range(10):
        result = json.loads(solpi("probe", "--device", "cpu", "--batch", "2", "--json").stdout)
        (batch,) = result["results"]
        if batch["splits"]:
            break

    assert result["identity"]["device"] == "cpu"
    assert batch["batch"] == 2
    split = batch["splits"][0]["split"]
    phases = sum(split[phase] for phase in ("compute", "memory", "scheduling", "sync"))
    assert phases == pytest.approx(split["token"])
    assert split["control_ratio"] == pytest.approx((split["scheduling"] + split["sync"]) / split["token"])


def test_check_of_settings_that_fit(tmp_path: Path) -> None:
    """One line, status 0."""
    file = tmp_path / "a.toml"
    file.write_text('[[engine.server]]\nname = "qwen"\nlog = "/var/log/qwen.log"\n')

    result = solpi("check", "--config", str(file))

    assert (result.returncode, result.stdout) == (0, "ok: listen :10048, servers qwen, probe auto\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "--config", "/nowhere.toml"), "/nowhere.toml: cannot be read: "),
        (("run", "--listen", "nowhere"), "settings: http.listen: expected HOST:PORT"),
        (
            ("once", "--metrics-url", "localhost:8000"),
            "engine.server[0].metrics_url: expected http://HOST:PORT/metrics",
        ),
        (("run", "--state-dir", "/proc/x"), "state_dir /proc/x cannot be written: "),
        (("probe", "--batch", "0"), "probe.batches[0]: expected int >= 1"),
        (("probe", "--device", "cuda:77"), "probe.device cuda:77 is not there"),
        (("run", "--no-probe", "--listen", "a..b:1"), "http.listen a..b:1: "),
        (("run", "--no-probe", "--listen", "192.0.2.1:1"), "http.listen 192.0.2.1:1: Cannot assign requested address"),
    ],
)
def test_what_is_wrong_dies_with_one_line(arguments: tuple[str, ...], message: str) -> None:
    """Status 2, no traceback, the key and what was expected."""
    result = solpi(*arguments)

    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert sum("Error:" in line for line in result.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_stops_within_two_seconds(background: Callable[..., Background], number: signal.Signals) -> None:
    """With status 0, on either signal, whatever the probe's first run is doing."""
    running = background("run", "--listen", "127.0.0.1:0", "--log-format", "json")
    port = running.port()
    assert eventually(lambda: request(port, "/-/ready").status == 200)

    status, seconds = running.stop(number)

    assert status == 0
    assert seconds < 2.0


def test_a_second_daemon_does_not_share_the_state(background: Callable[..., Background], tmp_path: Path) -> None:
    """It is told which process has it."""
    arguments = ("run", "--no-probe", "--no-gpu", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path))
    first = background(*arguments)
    first.port()

    second = solpi(*arguments)

    assert second.returncode == 2
    assert f"in use by process {first.process.pid}" in second.stderr


def test_variables_configure_it() -> None:
    """SOLPI_... stands for a setting, and a misspelt one dies."""
    assert "unknown setting" in solpi("check", SOLPI_GPUU_INTERVAL="1").stderr
    assert "listen 127.0.0.1:1," in solpi("check", SOLPI_HTTP_LISTEN="127.0.0.1:1").stdout
