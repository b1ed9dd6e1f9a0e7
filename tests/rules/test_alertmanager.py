"""The example for Alertmanager: who is told, and which cause silences what, in a real one."""

import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from solpi_exporter.rules.files import ALERTS
from tests.conftest import find_tool
from tests.rules.cases import ALERT_FILES
from tests.serving import eventually

EXAMPLE = ALERT_FILES.parent / "alertmanager.example.yml"


@dataclass(frozen=True, slots=True)
class Pair:
    """A cause, and an alert that it silences, or must leave alone; labels beside the alert's name."""

    cause: str
    of: dict[str, str]
    other: str
    labels: dict[str, str]
    silenced: bool

    def __str__(self) -> str:
        """What pytest calls it."""
        verb = "silences" if self.silenced else "leaves"
        return f"{self.cause}-{verb}-{self.other}-{'-'.join(self.labels.values())}"


HOST = {"instance": "a"}
SERVER = {**HOST, "server": "vllm"}
GPU = {**HOST, "gpu": "0", "uuid": "GPU-0"}
PROBE = {**HOST, "device": "cuda:0", "uuid": "GPU-0"}


def pairs(cause: str, of: dict[str, str], *silenced: str, by: str) -> Iterator[Pair]:
    """Yield that a cause silences some alerts of its own, and the same ones not where `by` is another or missing."""
    for other in silenced:
        yield Pair(cause, of, other, of, True)
        yield Pair(cause, of, other, {**of, by: "another"}, False)
        yield Pair(cause, of, other, {**of, "instance": "b"}, False)


PAIRS = (
    *pairs("SolpiExporterDown", HOST, "SolpiProbeStale", "SolpiSourceDown", by="instance"),
    Pair("SolpiExporterDown", HOST, "SolpiTokenLatencyHigh", SERVER, True),
    Pair("SolpiExporterDown", HOST, "SolpiWatchdog", {}, False),
    Pair("SolpiExporterDown", HOST, "NodeDiskFull", HOST, False),
    *pairs("SolpiEngineDead", SERVER, "SolpiSwapStorm", "SolpiKvCachePressure", "SolpiQueueGrowing", by="server"),
    *pairs("SolpiEngineDead", SERVER, "SolpiEngineStuck", "SolpiEngineDown", "SolpiEngineErrors", by="server"),
    Pair("SolpiEngineDead", SERVER, "SolpiGpuXidCritical", GPU, False),
    *pairs("SolpiEngineDown", SERVER, "SolpiTokenLatencySpike", "SolpiEngineStuck", by="server"),
    Pair("SolpiEngineDown", SERVER, "SolpiEngineDead", SERVER, False),
    *pairs("SolpiEngineStuck", SERVER, "SolpiGpuBusyWithoutTokens", "SolpiQueueGrowing", by="server"),
    *pairs("SolpiSwapStorm", SERVER, "SolpiKvCachePressure", "SolpiTokenLatencySpike", by="server"),
    *pairs("SolpiSwapStorm", SERVER, "SolpiPreemptions", "SolpiTokenLatencyHigh", by="server"),
    Pair("SolpiSwapStorm", SERVER, "SolpiEngineDead", SERVER, False),
    *pairs("SolpiKvCachePressure", SERVER, "SolpiPreemptions", "SolpiTokenLatencySpike", by="server"),
    *pairs("SolpiTokenLatencyHigh", SERVER, "SolpiTokenLatencySpike", by="server"),
    *pairs("SolpiGpuLost", GPU, "SolpiGpuXidCritical", "SolpiGpuHardwareThrottled", by="uuid"),
    Pair("SolpiGpuLost", GPU, "SolpiGpusMissing", HOST, True),
    Pair("SolpiGpuLost", GPU, "SolpiGpusMissing", {"instance": "b"}, False),
    Pair("SolpiGpuLost", GPU, "SolpiTokenLatencyHigh", SERVER, False),  # it has no uuid
    *pairs("SolpiGpuHung", GPU, "SolpiGpuRecoveryNeeded", by="uuid"),
    Pair("SolpiGpuHung", GPU, "SolpiSourceDown", HOST, True),
    *pairs("SolpiGpuHardwareThrottled", PROBE, "SolpiGpuTokenSlower", by="uuid"),
    *pairs("SolpiGpuXidCritical", GPU, "SolpiGpuRecoveryNeeded", by="uuid"),
    Pair("SolpiGpuXidCritical", GPU, "SolpiControlRegression", {**HOST, "device": "cpu"}, False),
    *pairs("SolpiControlRegression", PROBE, "SolpiTokenSlower", "SolpiSyncSlower", "SolpiHostStarved", by="device"),
    Pair("SolpiControlRegression", PROBE, "SolpiGpuTokenSlower", PROBE, False),
    *pairs("SolpiEccAndPersistenceOff", GPU, "SolpiPersistenceModeOff", by="uuid"),
)


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """A real one."""

    url: str

    def tell(self, alerts: list[dict[str, str]]) -> None:
        """Let alerts fire."""
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        request = urllib.request.Request(f"{self.url}/api/v2/alerts", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=5).close()

    def state(self, job: str, name: str) -> str:
        """Return how the alert of a case fares."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5) as answer:
            alerts = json.load(answer)
        wanted = {"job": job, "alertname": name}.items()
        return next((one["status"]["state"] for one in alerts if wanted <= one["labels"].items()), "absent")

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """Yield an Alertmanager with the example as it is; its receivers lead to a port where nobody listens."""
    port, folder = free_port(), tmp_path_factory.mktemp("alertmanager")
    command = [find_tool("prometheus-alertmanager"), f"--config.file={EXAMPLE}", f"--storage.path={folder}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        one = Alertmanager(f"http://127.0.0.1:{port}")
        try:
            assert eventually(one.is_up), (folder / "log").read_text()
            yield one
        finally:
            process.kill()


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_cause_silences_what_follows_from_it_and_no_more(pair: Pair, alertmanager: Alertmanager) -> None:
    """On the same host, server, GPU; each case has a job of its own."""
    job = str(pair)

    alertmanager.tell([{"job": job, "alertname": pair.cause, **pair.of}])
    assert eventually(lambda: alertmanager.state(job, pair.cause) == "active")
    alertmanager.tell([{"job": job, "alertname": pair.other, **pair.labels}])

    expected = "suppressed" if pair.silenced else "active"
    assert eventually(lambda: alertmanager.state(job, pair.other) == expected), alertmanager.state(job, pair.other)


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (["alertname=SolpiWatchdog", "severity=info"], "dead-mans-switch"),
        (["alertname=SolpiGpuLost", "severity=critical"], "pager"),
        (["alertname=SolpiQueueGrowing", "severity=warning"], "tickets"),
        (["alertname=SolpiKvCacheFull", "severity=info"], "nobody"),
    ],
)
def test_who_is_told(labels: list[str], receiver: str) -> None:
    """By severity; the watchdog goes where its silence is noticed."""
    command = [find_tool("amtool"), "config", "routes", "test", f"--config.file={EXAMPLE}"]

    outcome = subprocess.run([*command, f"--verify.receivers={receiver}", *labels], capture_output=True, check=False)

    assert outcome.returncode == 0, outcome.stdout


def test_amtool_takes_it() -> None:
    """Debian's, of 0.25."""
    outcome = subprocess.run([find_tool("amtool"), "check-config", str(EXAMPLE)], capture_output=True, check=False)

    assert outcome.returncode == 0, outcome.stdout


def test_it_names_alerts_that_there_are() -> None:
    """A misspelt name would silence nothing; each pattern is for two alerts at least."""
    names = {alert.name for alert in ALERTS}
    text = re.sub(r"^\s*#.*$", "", EXAMPLE.read_text(), flags=re.MULTILINE)

    for pattern in re.findall(r'alertname!?=~?"([^"]+)"', text):
        for part in re.sub(r"^Solpi\((.*)\)$", r"\1", pattern).split("|"):
            assert any(re.fullmatch(f"(Solpi)?{part}", name) for name in names), part
