"""Every recording through the whole program, over HTTP, against a golden file whose diff is the review."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from solpi_exporter.clock import SystemClock
from solpi_exporter.config import EngineSettings, GpuSettings, ProbeSettings, ServerSettings, Settings
from solpi_exporter.daemon import World
from solpi_exporter.gpu.driver import DriverAbsent
from solpi_exporter.gpu.replay import ReplayDriver
from tests.conftest import GOLDEN
from tests.fakes import RECORDINGS, SHIPPED, FakeDriver, load_json
from tests.serving import comparable, serving

LOGS = sorted([*RECORDINGS.rglob("*.log"), *SHIPPED.rglob("*.log")])
EXPOSITIONS = sorted([*RECORDINGS.rglob("*.metrics*.txt"), *SHIPPED.rglob("*.metrics.txt")])
WITHOUT = {"gpu": GpuSettings(enabled=False), "probe": ProbeSettings(enabled=False)}


def name_of(path: Path) -> str:
    return f"{path.parent.name}__{path.name.removesuffix('.txt')}.prom"


def settings_of(server: ServerSettings) -> Settings:
    return Settings(engine=EngineSettings(read_from="beginning", server=(server,)), **WITHOUT)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_recorded_log(path: Path, golden: Callable[[str, str], None]) -> None:
    """What a log alone yields, with the file read from its beginning."""
    with serving(settings_of(ServerSettings(name="vllm", log=str(path)))) as daemon:
        golden(name_of(path), comparable(daemon.metrics()))


@pytest.fixture
def recorded_server() -> Iterator[Callable[[Path], str]]:
    """Return a function that serves a recorded exposition and gives its address."""
    served = {"body": b""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(served["body"])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()

        def serve(path: Path) -> str:
            served["body"] = path.read_bytes()
            return f"http://127.0.0.1:{server.server_port}/metrics"

        yield serve
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("path", EXPOSITIONS, ids=name_of)
def test_recorded_endpoint(
    path: Path, golden: Callable[[str, str], None], recorded_server: Callable[[Path], str]
) -> None:
    """What an engine's /metrics alone yields."""
    server = ServerSettings(name="vllm", metrics_url=recorded_server(path))

    with serving(settings_of(server)) as daemon:
        golden(name_of(path), comparable(daemon.metrics()))


@pytest.mark.parametrize("phase", ["idle", "eager_b1", "graph_b1", "matmul"])
def test_recorded_gpu(phase: str, golden: Callable[[str, str], None]) -> None:
    """What the recorded H200 yields in one phase of its load."""
    samples = load_json(RECORDINGS / "h200-nvml" / "readings.json")
    device = load_json(SHIPPED / "vllm-0.24.0-h200" / "device.json")
    time = [sample["t"] for sample in samples if sample["phase"] == phase][5]
    settings = Settings(engine=EngineSettings(enabled=False), probe=ProbeSettings(enabled=False))

    with serving(settings, World(SystemClock(), ReplayDriver(device, samples, lambda: time))) as daemon:
        golden(f"h200-nvml__{phase}.prom", comparable(daemon.metrics()))


def test_nothing_there(golden: Callable[[str, str], None]) -> None:
    """No driver, no engine, no probe: a valid exposition that says so."""
    driver = FakeDriver([], connects=[DriverAbsent("no NVIDIA driver")] * 1000)
    settings = Settings(probe=ProbeSettings(enabled=False))

    with serving(settings, World(SystemClock(), driver)) as daemon:
        golden("nothing.prom", comparable(daemon.metrics()))


def test_every_golden_file_is_a_test() -> None:
    """A file that nothing compares with would be a claim that nobody checks."""
    phases = {f"h200-nvml__{phase}.prom" for phase in ("idle", "eager_b1", "graph_b1", "matmul")}
    expected = {name_of(path) for path in (*LOGS, *EXPOSITIONS)} | phases | {"nothing.prom"}

    assert {path.name for path in GOLDEN.iterdir()} == expected


def test_promtool_accepts_every_golden_file(tool: Callable[[str], str]) -> None:
    """Prometheus' own linter has nothing to say of any of them."""
    for path in sorted(GOLDEN.iterdir()):
        exposition = path.read_text().replace(" CLOCK\n", " 1.0\n")
        check = subprocess.run(
            [tool("promtool"), "check", "metrics"], input=exposition, capture_output=True, text=True, check=False
        )
        assert (check.returncode, check.stdout + check.stderr) == (0, ""), path.name
