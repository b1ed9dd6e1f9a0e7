"""The runbooks: a section for each alert, with a query that works and a command."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from solpi_exporter.rules.files import ALERTS
from tests.rules.test_files import NAME, known_names

TEXT = (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text()
SECTIONS = {title: body for title, _, body in (one.partition("\n") for one in TEXT.split("\n## ")[1:])}
CONFIRM = re.compile(r"^- Confirm: `([^`]+)`.*\n- `([^`]+)`", re.MULTILINE)


def test_every_alert_has_one_section() -> None:
    """In the order of the rules; GitHub's anchor of a title is what `runbook_url` ends with."""
    assert set(SECTIONS) == {alert.name for alert in ALERTS}
    assert len(SECTIONS) == TEXT.count("\n## ")


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_says_how_to_confirm_and_what_to_try(title: str) -> None:
    """One query of metrics that there are, one command, and a remedy."""
    match = CONFIRM.search(SECTIONS[title])

    assert match is not None
    assert set(NAME.findall(match[1])) <= known_names()
    assert "\n- Remedy: " in SECTIONS[title]


def test_prometheus_understands_every_query(tool: Callable[[str], str], tmp_path: Path) -> None:
    """As rules, which is how promtool reads them."""
    queries = {title: match[1] for title, body in SECTIONS.items() if (match := CONFIRM.search(body))}
    rules = [{"record": f"runbook:{title}", "expr": query} for title, query in queries.items()]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))

    outcome = subprocess.run(
        [tool("promtool"), "check", "rules", str(tmp_path / "queries.yml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
