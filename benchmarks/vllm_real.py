"""The exporter beside a real vLLM: what it tells, against vLLM's own /metrics, its log, and a client that measures.

    python -m benchmarks.vllm_install VENV
    python -m benchmarks.vllm_real --python VENV/bin/python [--model FOLDER] [--folder FOLDER] [--seconds 20 40]

The model is made where there is none. One exporter has the log and the endpoint, the other one the log alone. Prints a
table, and fails if a comparison does. It takes two minutes, and little else should run on the host meanwhile.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import await_metrics, free_port, scrape
from benchmarks.vllm_checks import (
    Table,
    check_clients,
    check_counters,
    check_facts,
    check_histograms,
    check_latency,
)
from benchmarks.vllm_client import Stage, hang_up, run_stage
from benchmarks.vllm_gauges import Sampler, check_gauges, check_idle
from benchmarks.vllm_model import write_model
from benchmarks.vllm_server import MODEL_NAME, get, is_idle, vllm
from solpi_exporter import __version__

CLIENTS = (2, 16)  # of a stage in which the KV cache suffices, and of one in which it does not
HANG_UPS = 4
SETTLE_SECONDS = 5.0  # after the last step: the log's last reports, our next poll, and the age of a page


@dataclass(frozen=True, slots=True)
class Ports:
    """Where vLLM, the exporter with everything, and that with the log alone listen."""

    vllm: int
    both: int
    log_only: int


@contextmanager
def exporter(folder: Path, name: str, *flags: str) -> Iterator[int]:
    """Run an exporter that asks endpoints each second; yield its port."""
    port = free_port()
    command = [sys.executable, "-m", "solpi_exporter", "run", "--no-gpu", "--no-probe", *flags]
    command += ["--state-dir", str(folder / f"state-{name}"), "--listen", f"127.0.0.1:{port}"]
    environment = {**os.environ, "SOLPI_ENGINE_ENDPOINT_INTERVAL": "1"}
    with (folder / f"exporter-{name}.log").open("wb") as output:
        process = subprocess.Popen(command, stderr=output, env=environment)
    try:
        await_metrics(port, f"solpi-exporter ({name})")
        yield port
    finally:
        process.terminate()
        process.wait()


def await_idle(port: int) -> None:
    """Return once vLLM has nothing to do, and everybody has told so."""
    while not is_idle(port):
        time.sleep(0.5)
    time.sleep(SETTLE_SECONDS)


def run_stages(ports: Ports, seconds: list[float], table: Table) -> list[Stage]:
    """Load vLLM in stages, and compare the latency of each."""
    stages: list[Stage] = []
    for clients, duration in zip(CLIENTS, seconds, strict=True):
        before = scrape(ports.both)[1]
        stage = run_stage(ports.vllm, MODEL_NAME, clients, duration)
        await_idle(ports.vllm)
        check_latency(table, stage, before, scrape(ports.both)[1])
        stages.append(stage)
    return stages


def compare(ports: Ports, log: Path, seconds: list[float], table: Table) -> str:
    """Load vLLM, then hold everything against everything; return what it answers to /version."""
    await_idle(ports.vllm)
    with Sampler(ports.vllm, ports.both, ports.log_only) as sampler:
        stages = run_stages(ports, seconds, table)
    served, both = get(ports.vllm, "/metrics"), scrape(ports.both)[1]
    check_counters(table, served, both, "once idle")
    check_clients(table, stages, both)
    check_histograms(table, served, both)
    for _ in range(HANG_UPS):
        hang_up(ports.vllm, MODEL_NAME)
    await_idle(ports.vllm)
    served, both, log_only = get(ports.vllm, "/metrics"), scrape(ports.both)[1], scrape(ports.log_only)[1]
    check_counters(table, served, both, f"{HANG_UPS} hang-ups later")
    check_gauges(table, sampler, log)
    check_idle(table, served, {"log and endpoint": both, "log alone": log_only})
    version = get(ports.vllm, "/version")
    check_facts(table, log, version, served, {"log and endpoint": both, "log alone": log_only})
    return version


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="an interpreter that has vLLM")
    parser.add_argument("--model", type=Path, help="the model's folder, made if missing; else a temporary one")
    parser.add_argument("--folder", type=Path, help="where to leave the logs; they are removed by default")
    parser.add_argument("--seconds", type=float, nargs=len(CLIENTS), default=[20.0, 40.0], help="of each stage")
    options = parser.parse_args()
    table = Table()
    with ExitStack() as stack:
        folder = (options.folder or Path(stack.enter_context(TemporaryDirectory()))).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        log, model = folder / "vllm.log", (options.model or folder / "model").absolute()
        if not model.exists():
            write_model(model)
        port = stack.enter_context(vllm(options.python.absolute(), model, log))
        both = ("--log-file", str(log), "--metrics-url", f"http://127.0.0.1:{port}/metrics")
        log_only = ("--log-file", str(log), "--from", "beginning")
        ports = Ports(
            port,
            stack.enter_context(exporter(folder, "both", *both)),
            stack.enter_context(exporter(folder, "log-only", *log_only)),
        )
        version = compare(ports, log, options.seconds, table)
    print(f"solpi-exporter {__version__}, Python {platform.python_version()}, {os.cpu_count()} CPUs, vLLM {version}\n")
    table.print()
    raise SystemExit(table.failed)


if __name__ == "__main__":
    main()
