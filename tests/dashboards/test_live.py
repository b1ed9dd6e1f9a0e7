"""Every query of the dashboards, asked of a real Prometheus that scrapes the demo: a panel without data shows here."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.pages import serving_pages
from tests.dashboards.read import ASKED, CHOICES, Asked
from tests.scraped_demo import ask, demo_running, prometheus_scraping
from tests.serving import eventually

SECONDS = 50.0

# By title: why no answer is expected.
WITHOUT_ANSWER = {
    "Engine errors": "the recorded servers had no trouble",
    "XIDs": "none comes up while the demo runs",
}
QUERIES = (*ASKED, *CHOICES)
LABELS_OF_SOME = {"gpu_instance"}  # of MIG instances
LABELS_OF_SOME_ALERTS = {"instance", "server", "gpu"}

# By the end of a record's name: the same.
WITHOUT_RECORD = {
    ":avg1h": "recorded once an hour",
    ":p50_7d": "of the week before the last hour",
    "_p50_1d": "of the day before the last hour",
}


def may_be_silent(one: Asked) -> bool:
    """Whether there is a reason for having no answer."""
    return one.title in WITHOUT_ANSWER or any(name.endswith(tuple(WITHOUT_RECORD)) for name in one.metrics)


Answers = Mapping[Asked, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pin a baseline as a user does."""
    path = tmp_path_factory.mktemp("baseline") / "good.json"
    command = [sys.executable, "-m", "solpi_exporter", "probe", "--device", "cpu", "--batch", "1", "--save-baseline"]
    subprocess.run([*command, str(path)], check=True, capture_output=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def prometheus(baseline: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Scrape the demo, and beside it what it is not."""
    with (
        demo_running(SOLPI_PROBE_BASELINE=str(baseline)) as demo,
        serving_pages() as (port, names),
        prometheus_scraping(
            tmp_path_factory.mktemp("dashboards"),
            {"targets": [f"127.0.0.1:{demo}"]},
            *(
                {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name, "__metrics_path__": f"/{name}"}}
                for name in names
            ),
        ) as asked,
    ):
        yield asked


@pytest.fixture(scope="module")
def answers(prometheus: int) -> Answers:
    """Ask every query until it has an answer; return each one's first."""
    found: dict[Asked, list[dict[str, Any]]] = {}

    def all_found() -> bool:
        pending = [one for one in QUERIES if one not in found]
        found.update({one: answer for one in pending if (answer := _numbers(ask(prometheus, one.filled)))})
        return all(one in found or may_be_silent(one) for one in QUERIES)

    eventually(all_found, SECONDS)
    return found


def _numbers(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the series that have a value: a quantile of nothing is NaN."""
    return [series for series in answer if series["value"][1] != "NaN"]


@pytest.mark.parametrize("one", QUERIES, ids=str)
def test_a_query_has_an_answer(one: Asked, answers: Answers) -> None:
    """Within two rounds of the demo, beside the recorded hosts; and its series have the labels that name them."""
    assert one in answers or may_be_silent(one), one

    named = set(re.findall(r"\{\{(\w+)\}\}", one.legend)) - LABELS_OF_SOME
    named -= LABELS_OF_SOME_ALERTS if one.title == "Alerts" else set()
    for label in named if one in answers else ():
        assert any(label in series["metric"] for series in answers[one]), f"{one} has no {label}"
