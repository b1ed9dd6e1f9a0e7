"""From a daemon to the pager: a real Prometheus with our rules, a real Alertmanager with the example, both faster."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from solpi_exporter.rules.files import rule_files
from solpi_exporter.rules.limits import chosen
from tests.conftest import find_tool
from tests.scraped_demo import free_port

EXAMPLE = Path(__file__).parent.parent / "grafana" / "alertmanager.example.yml"
FASTER = 30  # five minutes are ten seconds: with a scrape each second still ten samples
AGES = {"silence": 8.0, "xid_seconds": 30.0}  # of an engine that reports each two seconds, and of news

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=offset )(\d+)([smhd])\b")
_TIMES = re.compile(
    r"^(\s*(?:for|keep_firing_for|interval|group_wait|group_interval|repeat_interval): )(\d+)([smhd])$", re.M
)


def faster(text: str) -> str:
    """Return a rule file or routing with every duration in it divided; none becomes shorter than a second."""

    def shortened(number: str, unit: str) -> str:
        return f"{max(1, int(number) * _SECONDS[unit] // FASTER)}s"

    text = _DURATION.sub(lambda one: shortened(one[1] or one[3], one[2] or one[4]), text)
    return _TIMES.sub(lambda one: one[1] + shortened(one[2], one[3]), text)


@dataclass(frozen=True, slots=True)
class Pager:
    """What was delivered: alert names by receiver and host, and how many notifications by receiver."""

    told: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    heard: Counter[str] = field(default_factory=Counter)

    def take(self, receiver: str, body: bytes) -> None:
        """Note the alerts of a notification that fire."""
        self.heard[receiver] += 1
        for alert in json.loads(body)["alerts"]:
            if alert["status"] == "firing":
                labels = alert["labels"]
                self.told.setdefault((receiver, labels.get("instance", "")), set()).add(labels["alertname"])

    def pages(self, host: str) -> set[str]:
        """Return for what somebody was paged."""
        return self.told.get(("pager", host), set())


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
        thread = Thread(target=server.serve_forever)
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


@contextmanager
def paging(folder: Path, hosts: Mapping[str, int]) -> Iterator[Pager]:
    """Watch daemons by host and port, and yield what the pager hears of them."""
    pager, alertmanager, prometheus = Pager(), free_port(), free_port()
    for name, text in rule_files(chosen(AGES)).items():
        (folder / name).write_text(faster(text))
    targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": host}} for host, port in hosts.items()]
    tree = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "solpi-*.yml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
        "scrape_configs": [{"job_name": "solpi", "static_configs": targets}],
    }
    (folder / "prometheus.json").write_text(json.dumps(tree))
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
                f"--web.listen-address=127.0.0.1:{prometheus}",
                "--rules.alert.resend-delay=1s",  # what is sent before Alertmanager is found comes again
            ),
        ):
            yield pager
