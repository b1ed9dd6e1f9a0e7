"""Pictures of the dashboards: drawn with Grafana's components, in Chromium, from a real Prometheus.

    python -m benchmarks.pictures [--minutes 6] [--out docs/pictures]

Three hosts play the recorded vLLM and its H200; their probes replay cycles of an H200, one of them with a fault towards
the end; one host is stopped before the picture is taken. Needs Node.js, Debian's chromium, fonts-inter, pngquant and
prometheus, and what `npm ci` brings to grafana/render (400 MB).
"""

import argparse
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.faults.probes import probe_settings, recorded_worker
from benchmarks.panels import Shown, drawn, prometheus
from tests.conftest import find_tool
from tests.dashboards.pages import serving_pages
from tests.scraped_demo import demo_running, prometheus_scraping

ROOT = Path(__file__).parent.parent
RENDER = ROOT / "grafana" / "render"
SPEED = 2
COLOURS = "64"  # of a picture: a third of the bytes, and nobody sees it
RATE_INTERVAL = "20s"
WIDTH = 1600
CELL, HEAD, FOOT = 38, 56, 16  # pixels, as page.jsx places panels
LEFT_SECONDS = 20.0  # for which the stopped host is missing
FAULTY_SHARE = 0.6  # of the time after which a probe meets its fault

# By host: which recorded cycles its probe replays.
HOSTS = {"decode-1": "late read-back", "decode-2": "slow dispatch", "decode-3": "loaded host"}
STOPPED = "decode-3"
CHOICES: Mapping[str, Sequence[str]] = {
    "datasource": (),
    "job": (),
    "instance": tuple(HOSTS),
    "server": ("demo",),
    "gpu": (),
    "batch": ("1", "8"),
}


@contextmanager
def hosts(folder: Path) -> Iterator[tuple[ExitStack, dict[str, int], Path]]:
    """Run them; yield what stops the last one, their ports, and the file that puts the fault into the first."""
    ports: dict[str, int] = {}
    faulty = {}
    with ExitStack() as stack, ExitStack() as last:
        for host, fault in HOSTS.items():
            (folder / host).mkdir()
            faulty[host] = recorded_worker(fault, folder / host)
            config = folder / host / "config.toml"
            config.write_text(probe_settings(folder / host))
            demo = demo_running(SPEED, SOLPI_CONFIG=str(config))
            ports[host] = (last if host == STOPPED else stack).enter_context(demo)
        yield last, ports, faulty[next(iter(HOSTS))]


def _recorded(port: int) -> dict[str, Any]:
    """Return the target of a host whose page was recorded: its GPU has what the played one has not."""
    return {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": "recorded", "__metrics_path__": "/h200"}}


def taken(dashboard: dict[str, Any], shown: Shown, port: int, out: Path) -> int:
    """Draw one dashboard into a file; return how many of its panels have no data."""
    panels = list(drawn(dashboard, shown, prometheus(port)))
    page = {
        "title": dashboard["title"],
        "width": WIDTH,
        "start": 1000 * shown.start,
        "end": 1000 * shown.end,
        "panels": panels,
    }
    build = RENDER / "build"
    (build / "data.js").write_text(f"window.DASHBOARD = {json.dumps(page)};\n")
    (build / "page.html").write_text((RENDER / "page.html").read_text())
    height = HEAD + CELL * max(one["place"]["y"] + one["place"]["h"] for one in panels) + FOOT
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        command = [find_tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}"]
        command += [f"--window-size={WIDTH},{height}", "--virtual-time-budget=10000", f"--screenshot={out}"]
        subprocess.run([*command, (build / "page.html").as_uri()], check=True, capture_output=True, timeout=120)
    subprocess.run([find_tool("pngquant"), "--force", "--ext", ".png", COLOURS, str(out)], check=True)
    return sum(one["kind"] != "row" and not one["frames"] for one in panels)


def main() -> None:
    """Play, scrape, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    subprocess.run(["npm", "run", "--silent", "bundle"], cwd=RENDER, check=True)
    seconds = 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="pictures-") as name, hosts(Path(name)) as (last, ports, faulty):
        targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": host}} for host, port in ports.items()]
        with serving_pages() as (pages, _), prometheus_scraping(Path(name), *targets, _recorded(pages)) as port:
            start = time.time()
            time.sleep(FAULTY_SHARE * seconds)
            faulty.touch()
            time.sleep((1 - FAULTY_SHARE) * seconds - LEFT_SECONDS)
            last.close()
            time.sleep(LEFT_SECONDS)
            shown = Shown(math.ceil(start), math.floor(time.time()), RATE_INTERVAL, CHOICES)
            for path in sorted((ROOT / "grafana" / "dashboards").glob("*.json")):
                empty = taken(json.loads(path.read_text()), shown, port, options.out / f"{path.stem}.png")
                print(f"{path.stem}: {empty} panels without data")


if __name__ == "__main__":
    main()
