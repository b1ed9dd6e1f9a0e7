"""Every recording through the whole program, over HTTP, against a golden file whose diff is the review."""

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from solpi_exporter.board import Board
from solpi_exporter.clock import SystemClock
from solpi_exporter.collector import BoardCollector
from solpi_exporter.config import EngineSettings, GpuSettings, HostSettings, ProbeSettings, ServerSettings, Settings
from solpi_exporter.demo.recording import frames_of, load_device
from solpi_exporter.exposition import Exposition
from solpi_exporter.gpu.driver import Device, DriverAbsent
from solpi_exporter.gpu.events import XidSource
from solpi_exporter.gpu.recording import Recording, load, recording_of
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.runner import Runner
from solpi_exporter.sources import World
from tests.conftest import GOLDEN
from tests.fakes import RECORDINGS, SHIPPED, FakeClock, FakeDriver, capturing_log, load_json
from tests.serving import comparable, serving

LOGS = sorted([*RECORDINGS.rglob("*.log"), *SHIPPED.rglob("*.log")])
EXPOSITIONS = sorted([*RECORDINGS.rglob("*.metrics*.txt"), *SHIPPED.rglob("*.metrics.txt")])
PHASES = ("idle", "eager_b1", "graph_b1", "matmul")
SHUTDOWN = re.compile(rb"^.*hutting down FastAPI", re.MULTILINE)
NO_HOST = HostSettings(enabled=False)  # this machine's
WITHOUT = {"gpu": GpuSettings(enabled=False), "probe": ProbeSettings(enabled=False), "host": NO_HOST}


def name_of(path: Path) -> str:
    return f"{path.parent.name}__{path.name.removesuffix('.txt')}.prom"


def settings_of(server: ServerSettings) -> Settings:
    return Settings(engine=EngineSettings(read_from="beginning", server=(server,)), **WITHOUT)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_recorded_log(path: Path, golden: Callable[[Path, str], None], tmp_path: Path) -> None:
    """What a log alone yields, read from its beginning to where its server is shut down, after which nothing runs."""
    log = tmp_path / "vllm.log"
    log.write_bytes(SHUTDOWN.split(path.read_bytes())[0])
    with serving(settings_of(ServerSettings(name="vllm", log=str(log)))) as daemon:
        golden(GOLDEN / name_of(path), comparable(daemon.metrics()))


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
    path: Path, golden: Callable[[Path, str], None], recorded_server: Callable[[Path], str]
) -> None:
    """What an engine's /metrics alone yields."""
    server = ServerSettings(name="vllm", metrics_url=recorded_server(path))

    with serving(settings_of(server)) as daemon:
        golden(GOLDEN / name_of(path), comparable(daemon.metrics()))


def played(recording: Recording, start: float, seconds: float) -> str:
    """Return what is shown at the end of a stretch of a recording that is polled every 5 s."""
    clock = FakeClock(now=start, wall=0.0)
    driver = ReplayDriver(recording, clock.monotonic)
    gpu = GpuSource(driver, clock, 5.0, 10.0)
    uuid = driver.ask(Device(0), "nvmlDeviceGetUUID")
    sources = (gpu, XidSource(driver, clock, lambda: [(0, uuid)]))
    board = Board()
    log, _ = capturing_log()
    for source in sources:
        board.add(source.name, source.timeout)
    runners = [Runner(source, board, clock, log) for source in sources]
    while clock.now <= start + seconds:
        for runner in runners:
            runner.poll()
        clock.now += 5.0
    exposition = Exposition(BoardCollector(board.snapshot), lambda: board.snapshot().version, clock, threading.Lock())
    return comparable(exposition.render()[0].decode())


@pytest.mark.parametrize("phase", PHASES)
def test_recorded_load(phase: str, golden: Callable[[Path, str], None]) -> None:
    """What the H200 of the lab shows at the end of one phase of its load."""
    samples = load_json(RECORDINGS / "h200-nvml" / "readings.json")
    times = [sample["t"] for sample in samples if sample["phase"] == phase]
    start = times[0] if phase != "idle" else times[-6]
    recording = recording_of([(samples[0]["t"], load_device()), *frames_of(samples)])

    golden(GOLDEN / f"h200-nvml__{phase}.prom", played(recording, start, min(5.0, times[-1] - start)))


def test_recorded_gpu(golden: Callable[[Path, str], None]) -> None:
    """Every family that an H200 shows, after the load of `benchmarks/gpu_load.py`."""
    recording = load((RECORDINGS / "h200-nvml" / "recording.json").read_text())

    golden(GOLDEN / "h200-nvml__recording.prom", played(recording, recording.start, 40.0))


def test_nothing_there(golden: Callable[[Path, str], None]) -> None:
    """No driver, no engine, no probe: a valid exposition that says so."""
    driver = FakeDriver([], connects=[DriverAbsent("no NVIDIA driver")] * 1000)
    settings = Settings(probe=ProbeSettings(enabled=False), host=NO_HOST)

    with serving(settings, World(SystemClock(), driver)) as daemon:
        golden(GOLDEN / "nothing.prom", comparable(daemon.metrics()))


def test_every_golden_file_is_a_test() -> None:
    """A file that nothing compares with would be a claim that nobody checks."""
    phases = {f"h200-nvml__{phase}.prom" for phase in (*PHASES, "recording")}
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
