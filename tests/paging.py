"""From a daemon to the pager: a real Prometheus with our rules, a real Alertmanager with the example, both faster."""

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from solpi_exporter.rules.files import rule_files
from solpi_exporter.rules.limits import chosen
from tests.conftest import find_tool
from tests.scraped_demo import ask, free_port

EXAMPLE = Path(__file__).parent.parent / "grafana" / "alertmanager.example.yml"
FASTER = 30  # five minutes are ten seconds
SCRAPE = "500ms"  # of a quarter of a minute
EVALUATION = 1.0  # seconds: half a minute
# What is compared with times that are not divided: reports that are stamped with whole seconds, and news.
AGES = {"silence": 4.0, "xid_seconds": 30.0}

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=offset )(\d+)([smhd])\b")
_TIMES = re.compile(
    r"^(\s*(?:for|keep_firing_for|interval|group_wait|group_interval|repeat_interval): )(\d+)([smhd])$", re.M
)


def seconds(duration: str) -> int:
    """Return the seconds of a duration as rules write it; of none, 0."""
    return int(duration[:-1]) * _SECONDS[duration[-1]] if duration else 0


def faster(text: str) -> str:
    """Return a rule file or routing with every duration in it divided; none becomes shorter than a second."""

    def shortened(duration: str) -> str:
        return f"{max(1, seconds(duration) // FASTER)}s"

    text = _DURATION.sub(lambda one: shortened(one[0].removeprefix("offset ")), text)
    return _TIMES.sub(lambda one: one[1] + shortened(one[2] + one[3]), text)


@dataclass(frozen=True, slots=True)
class Pager:
    """What was delivered: when each alert came first, by receiver and host, and how many notifications by receiver."""

    prometheus: int
    told: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    heard: Counter[str] = field(default_factory=Counter)

    def take(self, receiver: str, body: bytes) -> None:
        """Note the alerts of a notification that fire."""
        self.heard[receiver] += 1
        for alert in json.loads(body)["alerts"]:
            if alert["status"] == "firing":
                labels = alert["labels"]
                told = self.told.setdefault((receiver, labels.get("instance", "")), {})
                told.setdefault(labels["alertname"], time.time())

    def pages(self, host: str) -> dict[str, float]:
        """Return for what somebody was paged, and when first (Unix seconds)."""
        return self.told.get(("pager", host), {})

    def fired(self) -> dict[str, dict[str, float]]:
        """Return, by host, which alerts have fired whether anybody was told or not, and when first (Unix seconds)."""
        found: dict[str, dict[str, float]] = {}
        for series in ask(self.prometheus, 'ALERTS{alertstate="firing"}[1h]'):
            labels, first = series["metric"], series["values"][0][0]
            told = found.setdefault(labels.get("instance", ""), {})
            told[labels["alertname"]] = min(first, told.get(labels["alertname"], first))
        return found


@contextmanager
def receiving(pager: Pager) -> Iterator[int]:
    """Take what Alertmanager sends, and yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            pager.take(self.path.strip("/"), self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing of what came."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(5.0)


@contextmanager
def running(folder: Path, *command: str) -> Iterator[None]:
    """Run a server until the block ends."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.kill()


def remembered(folder: Path, samples: Iterable[str]) -> None:
    """Give Prometheus a past: samples as OpenMetrics writes them."""
    past = folder / "past.om"
    past.write_text("".join(f"{line}\n" for line in samples) + "# EOF\n")
    command = [find_tool("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(past), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def paging(folder: Path, hosts: Mapping[str, int], past: Iterable[str] = ()) -> Iterator[Pager]:
    """Watch daemons by host and port, and yield what the pager hears of them."""
    pager, alertmanager = Pager(free_port()), free_port()
    for name, text in rule_files(chosen(AGES)).items():
        (folder / name).write_text(faster(text))
    targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": host}} for host, port in hosts.items()]
    tree = {
        "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": f"{EVALUATION:.0f}s"},
        "rule_files": [str(folder / "solpi-*.yml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
        "scrape_configs": [{"job_name": "solpi", "static_configs": targets}],
    }
    (folder / "prometheus.json").write_text(json.dumps(tree))
    remembered(folder, past)
    with receiving(pager) as port:
        routing = faster(EXAMPLE.read_text()).replace("127.0.0.1:9/", f"127.0.0.1:{port}/")
        (folder / "routing.yml").write_text(routing)
        with (
            running(
                folder,
                find_tool("prometheus-alertmanager"),
                f"--config.file={folder / 'routing.yml'}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address=127.0.0.1:{alertmanager}",
                "--cluster.listen-address=",
            ),
            running(
                folder,
                find_tool("prometheus"),
                f"--config.file={folder / 'prometheus.json'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{pager.prometheus}",
                "--rules.alert.resend-delay=1s",  # what is sent before Alertmanager is found comes again
            ),
        ):
            yield pager
