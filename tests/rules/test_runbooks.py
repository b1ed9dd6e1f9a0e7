"""The runbooks: a section for each alert, with a query that answers where it fires, and commands that there are."""

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml

from solpi_exporter.cli import main
from solpi_exporter.gpu.xid import Class, look_up
from solpi_exporter.rules.files import ALERTS
from solpi_exporter.rules.gpu import OTHER_ACTIONS, URGENT_ACTIONS
from tests.rules import test_control, test_engine, test_exporter, test_gpu
from tests.rules.cases import Case, ask_promtool, fires
from tests.rules.test_files import NAME, known_names

TEXT = (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text()
SECTIONS = {title: body for title, _, body in (one.partition("\n") for one in TEXT.split("\n## ")[1:])}
CONFIRM = re.compile(r"^- Confirm: `([^`]+)`.*\n- `([^`]+)`", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`|^    (.+)$", re.MULTILINE)
SPANS = [span or line for span, line in CODE.findall(TEXT)]
QUERIES = [span for span in SPANS if NAME.search(span) or span.startswith("ALERTS")]
COMMANDS = [
    part
    for span in SPANS
    for part in re.split(r"[|;]", span)
    if part.split()[:1] == ["solpi-exporter"] and part.split()[1:]
]
ASKING = ("quiesce", "resume", "repin")  # and without it they end with status 2
WATCHDOG = fires("SolpiWatchdog", "nothing there", test_exporter.NOTHING, 0)
CASES = (*test_control.CASES, *test_engine.CASES, *test_gpu.CASES, *test_exporter.CASES, WATCHDOG)
FIRING = [case for case in CASES if case.fires]


def test_every_alert_has_one_section() -> None:
    """In the order of the rules; GitHub's anchor of a title is what `runbook_url` ends with."""
    assert list(SECTIONS) == [alert.name for alert in ALERTS]
    assert len(SECTIONS) == TEXT.count("\n## ")


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_says_how_to_confirm_and_what_to_try(title: str) -> None:
    """A meaning, one query, one command, and a remedy."""
    assert CONFIRM.search(SECTIONS[title])
    assert SECTIONS[title].lstrip()[0].isupper()
    assert "\n- Remedy: " in SECTIONS[title]


def test_a_section_that_another_names_is_there() -> None:
    """Under the alert's name, as the reader looks for it."""
    assert set(re.findall(r"\bSolpi[A-Z]\w+", TEXT)) == set(SECTIONS)


@pytest.mark.parametrize(
    ("title", "actions"),
    [("SolpiGpuXidCritical", URGENT_ACTIONS), ("SolpiGpuXid", OTHER_ACTIONS)],
    ids=["critical", "warning"],
)
def test_a_code_is_told_where_it_alerts(title: str, actions: str) -> None:
    """NVIDIA's first step for it is one of those that the alert asks for."""
    codes = [look_up(int(code)) for code in re.findall(r"\b\d{2,3}\b", SECTIONS[title].split("- Remedy: ")[1])]

    assert codes
    assert {code.action.value for code in codes} <= set(actions.split("|"))
    assert Class.APPLICATION not in {code.kind for code in codes}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_shell_understands_the_command(title: str, tool: Callable[[str], str]) -> None:
    """Quotes and pipes are whole: it is pasted as it stands."""
    match = CONFIRM.search(SECTIONS[title])
    assert match is not None

    outcome = subprocess.run([tool("bash"), "-n", "-c", match[2]], capture_output=True, text=True, check=False)

    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_asks_for_what_there_is(query: str) -> None:
    """Every metric is in the catalogue, or recorded by a rule; so are those that a remedy names."""
    assert set(NAME.findall(query)) <= known_names()


def test_prometheus_understands_every_query(tool: Callable[[str], str], tmp_path: Path) -> None:
    """As rules, which is how promtool reads them."""
    rules = [{"record": f"runbook:query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))

    outcome = subprocess.run(
        [tool("promtool"), "check", "rules", str(tmp_path / "queries.yml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("case", FIRING, ids=str)
def test_the_query_confirms_its_alert(case: Case, tool: Callable[[str], str], tmp_path: Path) -> None:
    """On whatever series the alert fires, the query of its section shows something, and does not fail."""
    match = CONFIRM.search(SECTIONS[case.alert])
    assert match is not None
    assert case.fires
    test = {
        "expr": f"count({match[1]}) > bool 0",
        "eval_time": f"{next(iter(case.fires))}m",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }

    outcome = ask_promtool(case, {"promql_expr_test": [test]}, tool("promtool"), tmp_path)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_alert_is_confirmed() -> None:
    """None is left out above for want of a case."""
    assert {case.alert for case in FIRING} == set(SECTIONS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_ours_is_one(command: str) -> None:
    """With options that it has; one that asks the daemon for something says where its state is."""
    name, *arguments = shlex.split(command)[1:]
    called = main.commands[name]

    given, left, _ = called.make_parser(click.Context(called)).parse_args(arguments)

    assert left == []
    assert "state_dir" in given or name not in ASKING
