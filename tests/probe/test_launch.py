"""How a worker is started: with this package, and with nothing else of the Python that starts it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from solpi_exporter.probe import launch
from solpi_exporter.probe.child import Lost
from solpi_exporter.probe.launch import BEGIN, MODULE, PACKAGE, environment, start
from solpi_exporter.probe.messages import CostsWanted
from solpi_exporter.source import SourceAbsent
from tests.probe.workers import PYTHON, SMALL

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"

# Torch and pynvml are stand-ins; whatever else is not the standard library's cannot be imported without site-packages.
CLOSURE = """
import sys
from unittest.mock import MagicMock
for name in ("torch", "torch.nn", "torch.nn.functional", "pynvml"):
    sys.modules[name] = MagicMock()
import solpi_exporter.probe.worker, solpi_exporter.probe.device
foreign = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__"}
print(*sorted(foreign))
"""


def test_it_needs_torch_pynvml_and_the_standard_library() -> None:
    """All of it, with what is imported once a bench is made: a serving engine's Python has no more."""
    result = subprocess.run(
        [*PYTHON, "-c", CLOSURE], env={"PYTHONPATH": str(PACKAGE.parent)}, capture_output=True, text=True, check=True
    )

    assert result.stdout.split() == ["pynvml", "solpi_exporter", "torch"]


def test_a_python_without_torch_has_no_probe() -> None:
    """That is no outage, and its own interpreter is named in the remedy."""
    child = start(PYTHON, "cpu")
    said = child.ask(SMALL, 20.0)
    child.end()

    assert type(said) is SourceAbsent
    assert str(said) == f"torch is not installed: run {sys.executable} -m pip install 'torch>=2.4'"


def test_our_neighbours_stay_here(tmp_path: Path) -> None:
    """Installed, the package lies in the exporter's site-packages; nor is the working directory searched."""
    site = tmp_path / "site-packages"
    shutil.copytree(PACKAGE, site / "solpi_exporter", ignore=shutil.ignore_patterns("__pycache__", "recordings"))
    for folder in (site, tmp_path):
        (folder / "torch.py").write_text("raise AssertionError('of another Python')")
    program = BEGIN.replace("main(version)", "print(sys.modules[spec.name].__file__, sys.path); import torch")
    result = subprocess.run(
        [*PYTHON, "-c", program, str(site / "solpi_exporter"), "1"],
        env=environment(PYTHON[0], "cpu", {}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert result.stdout.startswith(str(site / "solpi_exporter" / "__init__.py"))
    assert str(tmp_path) not in result.stdout.partition("[")[2]
    assert "ModuleNotFoundError: No module named 'torch'" in result.stderr


def test_another_python_is_not_told_of_our_modules() -> None:
    """Our own is; the rest of the environment, such as library paths, is the worker's as well."""
    ours = {"PYTHONPATH": "/exporter", "PYTHONHOME": "/exporter", "LD_LIBRARY_PATH": "/cuda"}

    assert environment("/opt/vllm/bin/python", "cpu", ours) == {"LD_LIBRARY_PATH": "/cuda", "PYTHONSAFEPATH": "1"}
    assert environment(sys.executable, "cpu", ours) == ours | {"PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize(
    ("device", "visible"),
    [("auto", None), ("cuda:1", None), (UUID, UUID), (UUID.replace("GPU", "MIG"), UUID.replace("GPU", "MIG"))],
)
def test_a_gpu_that_is_named_is_the_only_one_it_sees(device: str, visible: str | None) -> None:
    """Whatever else is visible to the exporter; a number counts what the exporter sees."""
    assert environment(sys.executable, device, {}).get("CUDA_VISIBLE_DEVICES") == visible


def test_a_daemon_that_was_upgraded_under_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is of the new release, and their messages may differ."""
    monkeypatch.setattr(launch, "__version__", "0.0.1")
    child = start(PYTHON, "cpu")

    with pytest.raises(Lost, match=r"solpi-exporter is \S+ on disk and 0.0.1 in the daemon: restart the daemon"):
        child.ask(SMALL, 20.0)
    child.end()


def test_a_python_that_is_too_old_is_told() -> None:
    """In the worker's last words, not as a syntax error."""
    program = BEGIN.replace("(3, 11)", "(9, 0)")
    result = subprocess.run([*PYTHON, "-c", program, str(PACKAGE), "1"], capture_output=True, text=True)

    version = ".".join(map(str, sys.version_info[:2]))
    assert result.stderr == f"its Python is {version}: name one from 3.11 on as probe.python\n"


def test_a_worker_is_known_by_its_command_line() -> None:
    """By which its memory on a GPU is told from an engine's."""
    child = start(PYTHON, "cpu")
    child.ask(SMALL, 20.0)
    command = Path(f"/proc/{child.pid}/cmdline").read_text()
    child.end()

    assert MODULE in command
    assert os.fspath(PACKAGE) in command


def test_a_cycle_is_not_begun_without_a_bench() -> None:
    """That would be a bug of the parent's, and ends the worker."""
    child = start(PYTHON, "cpu")

    with pytest.raises(Lost, match="ended with status 1"):
        child.ask(CostsWanted(), 20.0)
    child.end()
