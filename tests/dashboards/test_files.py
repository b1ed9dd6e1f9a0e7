"""The dashboards as files: what is committed is what the code makes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from solpi_exporter.dashboards.files import DASHBOARDS, stale, write
from solpi_exporter.dashboards.frame import DATA_SOURCE_VARIABLE
from tests.dashboards.read import FOLDER


def test_the_committed_files_are_not_stale() -> None:
    """`make docs` writes them."""
    assert stale(FOLDER) == []
    assert {path.name for path in FOLDER.iterdir()} == set(DASHBOARDS)


def test_what_was_written_is_not_stale(tmp_path: Path) -> None:
    """In a folder that was not there."""
    write(tmp_path / "new")

    assert stale(tmp_path / "new") == []


def test_the_provisioning_example_fits_them() -> None:
    """The provider looks where the README has them written; the data source is of the kind that the variable offers."""
    (provider,) = provisioned("dashboards/solpi.yaml")["providers"]
    (source,) = provisioned("datasources/prometheus.yaml")["datasources"]

    assert f"dashboards --out {provider['options']['path']}" in (FOLDER.parent.parent / "README.md").read_text()
    assert source["type"] == DATA_SOURCE_VARIABLE["query"]


def provisioned(name: str) -> dict[str, list[dict[str, Any]]]:
    tree: dict[str, list[dict[str, Any]]] = yaml.safe_load((FOLDER.parent / "provisioning" / name).read_text())
    return tree


@pytest.mark.parametrize("content", [None, b"{}\n", b"\xff"])
def test_a_file_that_is_missing_or_differs_is_stale(content: bytes | None, tmp_path: Path) -> None:
    """And is named, alone."""
    write(tmp_path)
    path = tmp_path / "solpi-gpu.json"
    path.unlink() if content is None else path.write_bytes(content)

    assert stale(tmp_path) == ["solpi-gpu.json"]
