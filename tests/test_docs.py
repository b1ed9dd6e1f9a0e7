"""What the documents say, held against the program."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from solpi_exporter.catalog import METRICS
from solpi_exporter.config import ServerSettings, Settings
from solpi_exporter.settings_file import setting_keys
from tests.engine.engines_table import BEGIN, END, generated

ROOT = Path(__file__).parent.parent
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


# Settings without a default, which stand in the example as comments.
OPTIONAL = {
    ("state_dir",),
    ("gpu", "expected"),
    ("http", "web_config"),
    *(("probe", key) for key in ("context", "layers", "baseline", "python")),
}


def examples() -> list[dict[str, Any]]:
    return [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", CONFIGURATION, re.DOTALL)]


def keys(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        yield from keys(value, (*path, key)) if isinstance(value, dict) else [(*path, key)]


def test_the_example_holds_every_default() -> None:
    """Read as a configuration, it is the program without one; every key but those without a default is in it."""
    example = examples()[0]

    assert msgspec.convert(example, Settings) == Settings()
    assert set(keys(example)) | OPTIONAL | {("engine", "server")} == {path for path, _ in setting_keys()}


def test_the_tables_of_engines_are_those_of_the_tests() -> None:
    """What a log tells, and by which names an endpoint is known; `make docs` writes them."""
    assert f"{BEGIN}{generated()}{END}" in (ROOT / "docs" / "engines.md").read_text()


def test_the_server_example_holds_every_key() -> None:
    """And is valid."""
    (server,) = examples()[1]["engine"]["server"]

    commented = set(re.findall(r"^# (\w+) = ", CONFIGURATION, re.MULTILINE))
    optional = {key for *_, key in OPTIONAL}
    assert server.keys() | commented - optional == {field.name for field in msgspec.structs.fields(ServerSettings)}
    assert msgspec.convert(examples()[1], Settings).engine.server[0].name == "qwen"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_points_to_is_there(document: Path) -> None:
    """Relative links, and files named in backquotes with their folder."""
    text = document.read_text()
    named = re.findall(r"\]\((?!http)([^)#]+)\)", text) + re.findall(
        r"`((?:docs|tests|benchmarks)/[\w./-]+\.\w+)`", text
    )

    assert [path for path in named if not (ROOT / path).exists() and not (document.parent / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_metrics_named_in_a_document_exist(document: Path) -> None:
    """A name that was changed would be searched for in vain."""
    known = {metric.name for metric in METRICS}
    for name in re.findall(r"`(solpi_[a-z_]+[a-z])(?:\{[^`]*)?`", document.read_text()):
        assert name in known or name.startswith("solpi_exporter"), name
