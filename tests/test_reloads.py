"""A daemon that takes up its settings anew: by SIGHUP, and by HTTP where that is on."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from benchmarks.faults.daemon import Daemon, running
from tests.http_client import request
from tests.process import Page
from tests.scraped_demo import free_port
from tests.serving import eventually

SETTINGS = """
state_dir = "{folder}/state"
[http]
reload = true
[gpu]
enabled = {gpu}
[probe]
enabled = false
[log]
format = "json"
"""
LOADED = "solpi_config_last_reload_success_timestamp_seconds"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon that leaves the GPUs alone, from a file of its own."""
    folder = tmp_path / "host"
    with running(Daemon(folder, SETTINGS.format(folder=folder, gpu="false"), os.environ)) as one:
        assert eventually(lambda: one.page() is not None)
        yield one


def page(daemon: Daemon) -> Page:
    shown = daemon.page()
    assert shown is not None
    return shown


def write(daemon: Daemon, text: str) -> None:
    (daemon.folder / "config.toml").write_text(text)


def hang_up(daemon: Daemon) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)


def gpus_are(daemon: Daemon, state: str) -> bool:
    shown = daemon.page()
    return shown is not None and shown.source("gpu") == state


def test_other_settings_are_taken_by_the_same_process(daemon: Daemon) -> None:
    """A source that was off is polled; since when they are in force is told."""
    assert daemon.process is not None
    before = page(daemon).value(LOADED)
    write(daemon, SETTINGS.format(folder=daemon.folder, gpu="true"))

    hang_up(daemon)

    assert eventually(lambda: gpus_are(daemon, "absent"))
    after = page(daemon).value(LOADED)
    assert before is not None
    assert after is not None
    assert after > before
    assert daemon.process.poll() is None


def test_settings_that_do_not_fit_are_refused(daemon: Daemon) -> None:
    """What was in force goes on; a metric and one line in the log say so, and mended ones are taken."""
    write(daemon, "nonsense = 1")

    hang_up(daemon)

    assert eventually(lambda: page(daemon).value("solpi_config_last_reload_successful") == 0.0)
    assert page(daemon).source("gpu") == "off"
    assert '"event": "reload_refused"' in (daemon.folder / "log").read_text()

    write(daemon, SETTINGS.format(folder=daemon.folder, gpu="true"))
    hang_up(daemon)
    assert eventually(lambda: gpus_are(daemon, "absent"))
    assert page(daemon).value("solpi_config_last_reload_successful") == 1.0


def test_it_can_be_asked_for_over_http(daemon: Daemon) -> None:
    """By POST or PUT; what is wrong is for the log, since it may name a path."""
    write(daemon, "nonsense = 1")
    refused = request(daemon.port, "/-/reload", "POST")
    write(daemon, SETTINGS.format(folder=daemon.folder, gpu="true"))
    taken = request(daemon.port, "/-/reload", "PUT")

    assert (refused.status, refused.text) == (500, "Refused: the log says why. What was in force still is.\n")
    assert (taken.status, taken.text) == (200, "Reloading.\n")
    assert eventually(lambda: gpus_are(daemon, "absent"))


def test_nobody_is_refused_while_it_reloads(daemon: Daemon) -> None:
    """Whoever connects meanwhile waits in the queue of the socket, which stays."""
    stop, refused, connected = Event(), [0], [0]

    def connect() -> None:
        while not stop.is_set():
            try:
                socket.create_connection(("127.0.0.1", daemon.port), 5.0).close()
                connected[0] += 1
            except ConnectionRefusedError:
                refused[0] += 1

    thread = Thread(target=connect, daemon=True)
    thread.start()
    write(daemon, SETTINGS.format(folder=daemon.folder, gpu="true"))
    hang_up(daemon)
    there = eventually(lambda: gpus_are(daemon, "absent"))
    stop.set()
    thread.join(10.0)

    assert there
    assert refused == [0]
    assert connected[0] > 0


def test_another_address_is_listened_on_after_it(tmp_path: Path) -> None:
    """The old one is given up."""
    old, new = free_port(), free_port()
    config = tmp_path / "config.toml"
    config.write_text(f'[http]\nlisten = "127.0.0.1:{old}"\n')
    command = [sys.executable, "-m", "solpi_exporter", "run", "--no-gpu", "--no-probe", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert eventually(partial(answers, old))
            config.write_text(f'[http]\nlisten = "127.0.0.1:{new}"\n')
            process.send_signal(signal.SIGHUP)
            assert eventually(partial(answers, new))
            assert not answers(old)
        finally:
            process.kill()


def answers(port: int) -> bool:
    """Whether somebody does there."""
    try:
        return request(port, "/-/healthy").status == 200
    except OSError:
        return False


@pytest.mark.gpu
def test_on_a_gpu_the_probe_goes_on_after_it(tmp_path: Path) -> None:
    """Its context goes with the old program: what it holds of the GPU is no more than before."""
    settings = f'state_dir = "{tmp_path}/state"\n[probe]\ninterval = 5\nshape = "1b"\nbatches = [1]\nrotation = []\n'
    folder = tmp_path / "host"
    with running(Daemon(folder, settings, os.environ)) as one:
        assert eventually(partial(has_probed, one, 0.0), 90.0)
        assert eventually(lambda: held(one) > 0.0, 60.0)
        before, loaded = held(one), page(one).value(LOADED) or 0.0

        hang_up(one)

        assert eventually(partial(has_probed, one, loaded), 90.0)
        assert eventually(lambda: 0.0 < held(one) <= 1.05 * before, 60.0)


def has_probed(daemon: Daemon, since: float) -> bool:
    """Whether settings that were loaded after a time are in force, and the probe has run under them."""
    shown = daemon.page()
    if shown is None or (shown.value(LOADED) or 0.0) <= since:
        return False
    return (shown.value("solpi_probe_runs_total", outcome="success") or 0.0) > 0.0


def held(daemon: Daemon) -> float:
    """Return the bytes of GPUs that the exporter itself holds."""
    return sum(
        page(daemon).value("solpi_gpu_process_memory_bytes", kind="probe", gpu=str(gpu)) or 0.0 for gpu in (0, 1)
    )
