"""Runs a function of the tests in namespaces of its own, where it may set limits and mount file systems."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CALL = "import json, sys; from {module} import {name}; print(json.dumps({name}(*sys.argv[1:])))"


def inside(unshare: Sequence[str], function: Callable[..., object], *arguments: str, needs: Sequence[str]) -> Any:
    """Return what `function` returns there; skip the test where the command `needs` shows that it is not permitted."""
    tried = subprocess.run([*unshare, *needs], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"not permitted: {' '.join([*unshare, *needs])} {tried.stderr.strip()}")
    call = CALL.format(module=function.__module__, name=function.__name__)
    done = subprocess.run(
        [*unshare, sys.executable, "-c", call, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60.0
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
