"""A real vLLM on the CPU, with a KV cache so small that it has to preempt; and what it says at /metrics.

Once it serves, its priority is lowered: its processes spin while they wait for each other, and on a host with few CPUs
the client would come too late to see when a token arrives. Where the kernel groups sessions (sched_autogroup_enabled),
only the priority of the whole session counts.
"""

import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM

from benchmarks.processes import free_port

MODEL_NAME = "tiny"
START_TIMEOUT = 180.0
NICE = 5
LOG_INTERVAL = 2  # seconds between two reports in the log; more of them than by default
FLAGS = (
    f"--served-model-name {MODEL_NAME} --load-format dummy --max-model-len 1024 --enforce-eager "
    "--num-gpu-blocks-override 24 --host 127.0.0.1"
)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_LOG_STATS_INTERVAL": str(LOG_INTERVAL),
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}

_LABEL = re.compile(r'(\w+)="([^"]*)"')

Series = dict[tuple[tuple[str, str], ...], float]


def series(text: str, name: str, *left_out: str) -> Series:
    """Return the values of an exposition's metric by their labels, of which some are left out."""
    found: Series = {}
    for labels, value in re.findall(rf"^{re.escape(name)}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE):
        kept = [(key, value) for key, value in _LABEL.findall(labels) if key not in left_out]
        found[tuple(sorted(kept))] = float(value)
    return found


def value_of(text: str, name: str, **labels: str) -> float:
    """Return the one value that has all of these labels."""
    values = [value for key, value in series(text, name).items() if labels.items() <= dict(key).items()]
    assert len(values) == 1, (name, labels, values)
    return values[0]


def get(port: int, path: str) -> str:
    """Return what a server of this host answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def _await_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            get(port, "/health")
            return
        time.sleep(0.5)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    raise SystemExit(f"vLLM does not serve; the end of {log}:\n{tail}")


def _lower_priority(leader: int) -> None:
    os.setpriority(os.PRIO_PGRP, leader, NICE)
    with suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(NICE))


@contextmanager
def vllm(python: Path, model: Path, log: Path) -> Iterator[int]:
    """Run vLLM with its log in a file; yield its port."""
    port = free_port()
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model), *FLAGS.split(), "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT},
            cwd=log.parent,  # else Python would import from where we stand
            start_new_session=True,
        )
    try:
        _await_health(process, port, log)
        _lower_priority(process.pid)
        yield port
    finally:
        process.send_signal(SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):  # its helpers do not all end with it
            os.killpg(process.pid, SIGKILL)
        process.wait()


def is_idle(port: int) -> bool:
    """Whether nothing runs and nothing waits."""
    text = get(port, "/metrics")
    return not any(value_of(text, f"vllm:num_requests_{state}") for state in ("running", "waiting"))
