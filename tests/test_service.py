"""The service on a real systemd: started, reloaded, killed, hung and taken away, as a user without rights."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from solpi_exporter.service.unit import CONFIG, FLAGS, UNIT, UNIT_NAME
from tests.booted import LIBRARIES, PROJECT, PYTHON, Booted, booted
from tests.http_client import request
from tests.nvml_stub import Stub
from tests.process import Page, uuid
from tests.scraped_demo import free_port
from tests.serving import eventually

STUB = "/opt/stub"
DYNAMIC_USERS = range(61184, 65520)  # systemd.exec(5)
WELL = ("gpus 2",)
SETTINGS = """
[http]
listen = "127.0.0.1:{port}"
[gpu]
interval = {interval}
timeout = 1.0
[engine]
read_from = "beginning"
[[engine.server]]
name = "vllm"
journal = "vllm.service"
"""
DROP_IN = f"""
[Service]
Environment=PYTHONPATH={LIBRARIES}:{PROJECT}
Environment=LD_LIBRARY_PATH={STUB}:{PYTHON}/lib NVML_STUB={STUB}/control
Environment=SOLPI_HOST_INTERVAL=0.5 SOLPI_PROBE_ENABLED=false
WatchdogSec=4
TimeoutAbortSec=1
RestartSec=100ms
"""
REPORT = (
    "(APIServer pid=7) INFO 11-29 15:53:40 [loggers.py:273] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg "
    "generation throughput: 640.0 tokens/s, Running: 7 reqs, Waiting: 0 reqs, GPU KV cache usage: 41.0%, "
    "Prefix cache hit rate: 0.0%"
)
ENGINE = f"""
[Service]
ExecStart=/bin/sh -c 'while :; do echo "{REPORT}"; sleep 0.2; done'
""".replace("%,", "%%,").replace('%"', '%%"')


class Service:
    """The exporter's service in a booted host."""

    def __init__(self, host: Booted, stub: Stub, port: int) -> None:
        self.host = host
        self.stub = stub
        self.port = port

    def configure(self, interval: float = 0.5) -> None:
        self.host.write(f"/{CONFIG}", SETTINGS.format(port=self.port, interval=interval))

    def systemctl(self, verb: str, unit: str = UNIT_NAME) -> int:
        return self.host.run("systemctl", verb, unit, check=False).returncode

    def told(self, name: str, unit: str = UNIT_NAME) -> str:
        return self.host.out("systemctl", "show", "--value", "-p", name, unit)

    def page(self) -> Page | None:
        try:
            return Page(request(self.port, "/metrics").text)
        except OSError:
            return None

    def value(self, name: str, **labels: str) -> float | None:
        page = self.page()
        return None if page is None else page.value(name, **labels)

    def restart_well(self) -> None:
        """Let it run, on GPUs that are well."""
        self.stub.say(*WELL)
        self.configure()
        self.systemctl("reset-failed")
        assert self.systemctl("restart") == 0, self.host.out("journalctl", "-u", UNIT_NAME, "-n", "30")


@pytest.fixture(scope="module")
def service(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Boot a host with an engine, and install the exporter on it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for namespaces and mounts")
    folder = tmp_path_factory.mktemp("stub")
    folder.chmod(0o755)
    stub = Stub(Path(shutil.copy(library, folder)), folder / "control")
    stub.say(*WELL)
    with booted({folder: STUB}) as host:
        one = Service(host, stub, free_port())
        host.solpi("install")
        one.configure()
        host.write(f"/etc/systemd/system/{UNIT_NAME}.d/test.conf", DROP_IN)
        host.write("/run/systemd/system/vllm.service", ENGINE)
        host.run("systemctl", "daemon-reload")
        host.run("systemctl", "start", "vllm.service")
        yield one


def test_it_is_active_once_everything_was_polled(service: Service) -> None:
    """systemctl start returns then, and status says how the sources fare."""
    service.restart_well()

    page = service.page()
    assert page is not None
    assert page.gpus(0, 1) == ["ok", "ok"]
    assert service.told("ActiveState") == "active"
    assert "sources are well" in service.told("StatusText")


def test_it_runs_as_a_user_without_rights(service: Service) -> None:
    """One that systemd has made up, without capabilities, on a system that it cannot write to."""
    service.restart_well()

    status = service.host.out("cat", f"/proc/{service.told('MainPID')}/status")

    (uid,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:"))
    assert uid in DYNAMIC_USERS
    assert "CapEff:\t0000000000000000" in status
    assert service.told("ProtectSystem") == "strict"


def test_it_follows_another_units_journal_and_finds_its_gpus(service: Service) -> None:
    """The engine's log, and by its unit the processes that NVML lists, though they are another user's."""
    service.restart_well()
    pid = service.told("MainPID", "vllm.service")
    service.stub.say(*WELL, f"pid 1 {pid} 4096")

    assert eventually(lambda: service.value("solpi_engine_requests", server="vllm", state="running") == 7.0)
    assert eventually(lambda: service.value("solpi_engine_gpu_info", server="vllm", uuid=uuid(1)) == 1.0)


def test_a_driver_that_hangs_does_not_hold_the_start_up(service: Service) -> None:
    """Nor does the watchdog take it for a loop that hangs."""
    service.systemctl("stop")
    service.stub.say("gpus 2", "hang-init")

    started = service.systemctl("start")

    page = service.page()
    assert page is not None
    assert (started, page.source("gpu")) == (0, "down")
    restarts = service.told("NRestarts")
    assert not eventually(lambda: service.told("NRestarts") != restarts, 6.0)


def test_reload_takes_settings_that_fit_and_refuses_others(service: Service) -> None:
    """The same process goes on, with the new ones or with those that it had; a refusal fails the reload."""
    service.restart_well()
    pid = service.told("MainPID")
    before = service.value("solpi_config_last_reload_success_timestamp_seconds")
    assert before is not None

    service.host.write(f"/{CONFIG}", "nonsense = 1")
    assert service.systemctl("reload") != 0
    assert eventually(lambda: service.value("solpi_config_last_reload_successful") == 0.0)
    assert service.value("solpi_config_last_reload_success_timestamp_seconds") == before

    service.configure(interval=0.4)
    assert service.systemctl("reload") == 0
    assert eventually(lambda: (service.value("solpi_config_last_reload_success_timestamp_seconds") or 0.0) > before)
    assert eventually(lambda: service.told("ActiveState") == "active")
    assert service.told("MainPID") == pid


def lines(service: Service) -> float:
    return service.value("solpi_log_lines_total", server="vllm") or 0.0


def test_killed_it_comes_back_and_has_missed_no_line(service: Service) -> None:
    """What the engine logged meanwhile is read after, and nothing twice."""
    service.restart_well()
    assert eventually(lambda: lines(service) > 5.0)
    before = service.told("MainPID")
    service.host.run("kill", "-KILL", before)
    assert eventually(lambda: service.told("MainPID") not in (before, "0") and service.page() is not None)
    service.systemctl("stop", "vllm.service")
    logged = len(service.host.out("journalctl", "-u", "vllm.service", "-o", "cat", "-q").splitlines())

    came = eventually(lambda: lines(service) == logged)
    assert came, (lines(service), logged)
    service.systemctl("start", "vllm.service")


def test_a_main_loop_that_hangs_is_ended_and_started_anew(service: Service) -> None:
    """The watchdog is fed by nothing else."""
    service.restart_well()
    before = service.told("MainPID")

    service.host.run("kill", "-STOP", before)

    assert eventually(lambda: service.told("MainPID") not in (before, "0") and service.page() is not None, 30.0)
    said = service.host.out("journalctl", "-u", UNIT_NAME, "-o", "cat")
    assert "Watchdog timeout" in said


def test_the_probe_runs_within_what_the_unit_allows(service: Service) -> None:
    """torch is refused some system calls, and gets on without."""
    drop_in = f"/etc/systemd/system/{UNIT_NAME}.d/with-probe.conf"
    service.host.write(drop_in, "[Service]\nEnvironment=SOLPI_PROBE_ENABLED=true SOLPI_PROBE_DEVICE=cpu")
    service.host.run("systemctl", "daemon-reload")
    service.restart_well()

    assert eventually(lambda: (service.value("solpi_probe_runs_total", outcome="success") or 0.0) > 0.0, 60.0)

    service.host.run("rm", drop_in)
    service.host.run("systemctl", "daemon-reload")


def test_a_stop_is_over_within_two_seconds(service: Service) -> None:
    """By systemd's own clock, with a success."""
    service.restart_well()

    assert service.systemctl("stop") == 0

    begun, over = (
        int(service.told(name)) for name in ("ActiveExitTimestampMonotonic", "InactiveEnterTimestampMonotonic")
    )
    assert over - begun < 2_000_000
    assert service.told("Result") == "success"


def test_settings_that_do_not_fit_stop_the_start(service: Service) -> None:
    """Before the daemon is run at all; the journal has the line."""
    service.systemctl("stop")
    service.host.write(f"/{CONFIG}", "nonsense = 1")
    service.host.write("/etc/systemd/system/" + UNIT_NAME + ".d/once.conf", "[Service]\nRestart=no")
    service.host.run("systemctl", "daemon-reload")

    assert service.systemctl("start") != 0
    assert "nonsense: unknown setting" in service.host.out("journalctl", "-u", UNIT_NAME, "-o", "cat", "-n", "20")


def test_its_log_lands_in_the_journal_with_its_fields(service: Service) -> None:
    """So that it is found by what it tells of, and not by a search in texts."""
    service.restart_well()

    said = service.host.out(
        "journalctl", "-u", UNIT_NAME, "-o", "json", "-n", "1", "SOLPI_EVENT=listening", f"SOLPI_PORT={service.port}"
    )

    entry = json.loads(said)
    assert entry["MESSAGE"] == f"listening address=127.0.0.1:{service.port} port={service.port}"
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"]) == ("6", "solpi-exporter")


def test_uninstall_takes_away_what_was_laid_down(service: Service) -> None:
    """But the settings, which were changed; the unit, its flags and the rules are gone."""
    service.systemctl("stop")

    said = service.host.solpi("uninstall").stdout

    assert f"/{CONFIG}: keep, since it was changed" in said
    places = (UNIT, FLAGS, CONFIG, "etc/solpi-exporter/rules")
    assert [place for place in places if not service.host.run("test", "-e", f"/{place}", check=False).returncode] == [
        CONFIG
    ]
