"""The host as a source."""

import os
from pathlib import Path
from typing import Any

import pytest

from solpi_exporter.host.source import METRICS, EngineProcesses, GpuPlace, HostSource
from solpi_exporter.source import Source
from tests.fakes import values
from tests.host.machine import TICK, Machine, as_nobody, needs_root

PSI = "some avg10=0.22 avg60=0.17 avg300=0.05 total=5500000\n"


class Host:
    """A machine, the servers on it, and the source that reads them."""

    def __init__(self, root: Path) -> None:
        self.machine = Machine(root)
        self.engines: list[EngineProcesses] = []
        self.source = HostSource(lambda: self.engines, proc=self.machine.proc, sys=self.machine.sys)

    def poll(self) -> dict[str, dict[tuple[str, ...], Any]]:
        return values([sample for reading in self.source.poll() for sample in reading.samples()])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_it_is_a_source() -> None:
    """It is called "host"; interval and time-out are the caller's."""
    source: Source = HostSource(list, interval=1.0, timeout=2.0)

    assert (source.name, source.interval, source.timeout) == ("host", 1.0, 2.0)
    source.close()


def test_a_host_that_tells_nothing_yields_nothing(host: Host) -> None:
    """Without procfs and sysfs there is no series and no failure."""
    assert host.poll() == {}


def test_everything_known_is_shown(host: Host) -> None:
    """Every metric of the source, in base units, under its labels."""
    machine = host.machine
    machine.online("0-1")
    machine.cpu(0, 2_000_000)
    machine.cpu(1, 2_000_000)
    machine.write("proc/pressure/cpu", PSI)
    machine.nodes("0-3", "4-7")
    machine.gpu("0000:17:00.0", 1)
    machine.process(42, cpus="4-7", ticks=(TICK, TICK))
    machine.threads(42, {42: 1_000_000_000})
    machine.throttled("/app.slice/vllm.service", 1_000_000)
    host.engines = [EngineProcesses("s", (42,), (GpuPlace(3, "GPU-a", "00000000:17:00.0", (42,)),))]
    host.poll()
    machine.process(42, cpus="4-7", ticks=(2 * TICK, 3 * TICK))
    machine.threads(42, {42: 1_500_000_000})
    machine.throttled("/app.slice/vllm.service", 1_250_000)

    shown = host.poll()

    assert shown == {
        "solpi_host_cpu_frequency_hertz": {(): 2e9},
        "solpi_host_cpu_governor_info": {("performance",): 1.0},
        "solpi_host_pressure_waiting_seconds_total": {("cpu",): 5.5},
        "solpi_host_gpu_numa_match": {("3", "GPU-a"): 1.0},
        "solpi_engine_cpu_throttled_seconds_total": {("s",): 0.25},
        "solpi_engine_run_delay_seconds_total": {("s",): 0.5},
        "solpi_engine_cpu_seconds_total": {("s",): 3.0},
    }
    assert shown.keys() == {metric.name for metric in METRICS}


def test_servers_are_kept_apart(host: Host) -> None:
    """In one cgroup each counts its throttling; CPU time is each one's own."""
    for pid in (42, 43):
        host.machine.process(pid)
    host.machine.throttled("/app.slice/vllm.service", 0)
    host.engines = [EngineProcesses("a", (42,)), EngineProcesses("b", (43,))]
    host.poll()
    host.machine.process(43, ticks=(TICK, 0))
    host.machine.throttled("/app.slice/vllm.service", 1_000_000)

    shown = host.poll()

    assert shown["solpi_engine_cpu_throttled_seconds_total"] == {("a",): 1.0, ("b",): 1.0}
    assert shown["solpi_engine_cpu_seconds_total"] == {("a",): 0.0, ("b",): 1.0}


def test_a_server_whose_processes_are_not_known_yields_nothing(host: Host) -> None:
    """Neither one without pids nor one whose pids are not there has a total."""
    host.engines = [EngineProcesses("a", ()), EngineProcesses("b", (42,))]

    assert host.poll() == {}


@pytest.mark.parametrize("engines", [[], [EngineProcesses("a", ())]])
def test_totals_outlive_the_processes(host: Host, engines: list[EngineProcesses]) -> None:
    """Also when the server is no longer named at all."""
    host.machine.process(42)
    host.engines = [EngineProcesses("a", (42,))]
    host.poll()
    host.machine.process(42, ticks=(TICK, 0))
    host.poll()
    host.machine.remove("proc/42")
    host.engines = engines

    assert host.poll() == {"solpi_engine_cpu_seconds_total": {("a",): 1.0}}


def test_a_gpu_of_two_servers_has_one_series(host: Host) -> None:
    """It matches if the processes of both run beside it."""
    host.machine.nodes("0-3", "4-7")
    host.machine.gpu("0000:17:00.0", 1)
    host.machine.process(42, cpus="4-7")
    host.machine.process(43, cpus="0-7")
    place = "00000000:17:00.0"
    host.engines = [
        EngineProcesses("a", (42,), (GpuPlace(0, "GPU-a", place, (42,)),)),
        EngineProcesses("b", (43,), (GpuPlace(0, "GPU-a", place, (43,)),)),
    ]

    assert host.poll()["solpi_host_gpu_numa_match"] == {("0", "GPU-a"): 0.0}


def test_this_host_is_read() -> None:
    """On the real one, this process has CPU time, and no total falls from poll to poll."""
    source = HostSource(lambda: [EngineProcesses("s", (os.getpid(),))])

    polls = [values([sample for reading in source.poll() for sample in reading.samples()]) for _ in range(3)]

    seconds = [poll["solpi_engine_cpu_seconds_total"]["s",] for poll in polls]
    assert seconds == sorted(seconds)
    assert seconds[0] == 0.0


@needs_root
def test_another_user_has_the_same_series() -> None:
    """The exporter runs as a user of its own and reads a server of root: nothing is missing for it."""
    source = HostSource(lambda: [EngineProcesses("s", (os.getpid(),))])
    own = sorted({sample.metric.name for reading in source.poll() for sample in reading.samples()})
    imports = "from solpi_exporter.host.source import EngineProcesses, HostSource"
    server = f"HostSource(lambda: [EngineProcesses('s', ({os.getpid()},))])"

    found = as_nobody(imports, f"sorted({{s.metric.name for r in {server}.poll() for s in r.samples()}})")

    assert found == own
    assert "solpi_engine_cpu_seconds_total" in found
