"""What all tests share: the golden files' flag, and tools that must be there in CI."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml_stub import build

GOLDEN = Path(__file__).parent / "golden"
READINGS = Path(__file__).parent / "readings"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden, the only way in which a golden file changes; its diff is the review."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files from what the program says")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Return a check that a text equals a golden file."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert text == path.read_text(), f"differs from {path}; --update-golden rewrites it"

    return check


def find_tool(name: str) -> str:
    """Return a program's path: where it is absent, the test is skipped on a developer's machine and fails in CI."""
    path = shutil.which(name)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed: see .ci/run")
    return path


@pytest.fixture
def tool() -> Callable[[str], str]:
    """Return the look-up of programs."""
    return find_tool


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the stand-in for NVIDIA's management library, built once."""
    find_tool("gcc")
    return build(tmp_path_factory.mktemp("nvml"))
