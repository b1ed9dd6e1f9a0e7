"""The demo as a newcomer runs it, scraped by a real Prometheus that answers the questions the product is for."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solpi_exporter.probe.split import PHASES
from tests.browser import Seen, browse
from tests.http_client import request
from tests.scraped_demo import ask, demo_running, prometheus_scraping
from tests.serving import eventually

# The five readings that must always be there, and the engine's own token: what people look at first.
QUERIES = {
    "GPU utilization": "max_over_time(solpi_gpu_utilization_ratio[1m]) > 0.9",
    "KV-cache usage": "max_over_time(solpi_engine_kv_cache_usage_ratio[1m]) > 0.9",
    "token latency P50 (engine)": (
        "histogram_quantile(0.5, sum by (le) (rate(solpi_engine_inter_token_latency_seconds_bucket[1m]))) > 0"
    ),
    "token latency P99 (engine)": (
        "histogram_quantile(0.99, sum by (le) (rate(solpi_engine_inter_token_latency_seconds_bucket[1m]))) > 0"
    ),
    "token latency P99 (probe)": "histogram_quantile(0.99, sum by (le, batch) (solpi_probe_step_seconds_bucket)) > 0",
    "preemptions": "max_over_time(solpi_engine_preemptions_total[1m]) > 100",
    "queue length": 'max_over_time(solpi_engine_requests{state="waiting"}[1m]) > 0',
    "own token, launched kernel by kernel": 'max_over_time(solpi_engine_control_ratio{basis="endpoint"}[1m]) > 0.5',
    "own token, as graphs": 'min_over_time(solpi_engine_control_ratio{basis="endpoint"}[1m]) < 0.1',
    "own token, busy": "max_over_time(solpi_engine_token_busy_seconds[1m]) > 0.003",
    "own token, lost": "max_over_time(solpi_engine_token_lost_seconds[1m]) > 0.005",
    "probe phases sum to the token": (
        "abs(sum by (batch) (solpi_probe_phase_seconds)"
        ' - sum by (batch) (solpi_probe_token_seconds{mode="eager_sync"})) < 1e-9'
    ),
    "joules a token": (
        "sum by (instance, server) (rate(solpi_gpu_energy_joules_total[20s])"
        " * on (instance, uuid) group_right solpi_engine_gpu_info)"
        " / sum by (instance, server) (rate(solpi_engine_generation_tokens_total[20s])) > 0.02 < 20"
    ),
    "the sawtooth": "sum by (le, uuid) (rate(solpi_gpu_utilization_samples_ratio_bucket[20s])) > 0",
    "XIDs have a class": (
        'solpi_gpu_xid_errors_total{xid="79"} * on (instance, xid) group_left (class, action) solpi_xid_info == 0'
    ),
    "scrapes succeed": "min_over_time(up[1m]) == 1",
}


# What the page shows by section: KV cache, running, waiting, preemptions, P50 and P99; utilisation; the two splits.
_PERCENT, _MS = r"[\d.]+ %", r"[\d.,]+ ms"
SECTIONS = {
    "engines": rf"demo engine 0 {_PERCENT} \d+ \d+ \d+ \+\d+ {_MS} {_MS}",
    "gpus": rf"0 NVIDIA H200 {_PERCENT} ok",
    "own": rf"demo engine 0 {_MS} between tokens {_PERCENT} lost busy {_PERCENT} {_MS} lost {_PERCENT} {_MS}",
    "probe": rf"batch \d+ measured P50 {_MS} P99 {_MS} {_MS} a token {_PERCENT} control layer"
    + "".join(f" {phase} {_PERCENT} {_MS}" for phase in PHASES),
    "sources": r"gpu ok \d+ s ago .*probe ok",
}


@pytest.fixture(scope="module")
def demo() -> Iterator[int]:
    with demo_running() as port:
        yield port


@pytest.fixture(scope="module")
def prometheus(demo: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with prometheus_scraping(tmp_path_factory.mktemp("prometheus"), {"targets": [f"127.0.0.1:{demo}"]}) as port:
        yield port


@pytest.mark.parametrize("question", QUERIES)
def test_prometheus_answers(prometheus: int, question: str) -> None:
    """Each of the five readings, the engine's own token, and the probe's identity, within two rounds of the demo."""
    assert eventually(lambda: bool(ask(prometheus, QUERIES[question])), timeout=60.0), question


def shows_all(seen: Seen) -> bool:
    return all(f'id="{name}"' in seen.dom and re.search(SECTIONS[name], seen.section(name)) for name in SECTIONS)


@pytest.mark.parametrize("scripts", [True, False])
def test_the_page_shows_the_readings_and_both_splits(demo: int, scripts: bool) -> None:
    """With figures in every place, from nowhere else, without a complaint, and without what is nobody's business."""
    url = f"http://127.0.0.1:{demo}/"

    seen = browse(url, shows_all, scripts=scripts)

    for name, pattern in SECTIONS.items():
        assert re.search(pattern, seen.section(name)), seen.section(name)
    assert {asked for asked in seen.requested if not asked.startswith("data:")} == {url}
    assert seen.complaints == []
    assert not re.search(r"vllm\.log|127\.0\.0\.1|solpi-demo|/tmp", seen.dom)


def test_promtool_accepts_the_demo(demo: int, tool: Callable[[str], str]) -> None:
    """With everything on at once."""
    check = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=request(demo, "/metrics").body, capture_output=True, check=False
    )

    assert (check.returncode, check.stdout + check.stderr) == (0, b"")


def test_the_demo_ends_by_itself(tmp_path: Path) -> None:
    """--for SECONDS, with status 0; it prints the addresses to open."""
    result = subprocess.run(
        [sys.executable, "-m", "solpi_exporter", "demo", "--no-probe", "--listen", "127.0.0.1:0", "--for", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 0
    assert re.search(r"^exporter +http://127.0.0.1:\d+/metrics", result.stdout, re.MULTILINE)
    assert re.search(r"^recorded vLLM +http://127.0.0.1:\d+/metrics", result.stdout, re.MULTILINE)
