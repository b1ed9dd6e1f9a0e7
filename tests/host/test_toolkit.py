"""Which CUDA an engine's torch was built for."""

from pathlib import Path

import pytest

from solpi_exporter.host.process import Process
from solpi_exporter.host.toolkit import torch_cuda

# As torch 2.11 writes it.
VERSION = "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n"


def environment(root: Path, text: str = VERSION) -> Path:
    torch = root / "lib/python3.12/site-packages/torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text(text)
    return root / "bin"


def process(*command: str) -> Process:
    return Process(10, 1, command, None, 1)


def test_it_stands_beside_the_interpreter(tmp_path: Path) -> None:
    """In the environment whose python runs the server."""
    assert torch_cuda([process(str(environment(tmp_path) / "python3"), "-m", "vllm")]) == 13.0


def test_it_stands_beside_the_script(tmp_path: Path) -> None:
    """Where the interpreter is the system's and the script an environment's."""
    assert torch_cuda([process("/usr/bin/python3-none", str(environment(tmp_path) / "vllm"), "serve")]) == 13.0


def test_a_process_with_a_title_has_the_one_of_its_parent(tmp_path: Path) -> None:
    """An engine core overwrites its command line; its parent does not."""
    parent = process(str(environment(tmp_path) / "python3"))

    assert torch_cuda([process("VLLM::EngineCore"), parent]) == 13.0


@pytest.mark.parametrize("text", ["", "cuda: Optional[str] = None\n", "__version__ = '2.13.0+cpu'\ncuda = None\n"])
def test_a_torch_without_cuda_has_none(tmp_path: Path, text: str) -> None:
    """It is not known, rather than 0."""
    assert torch_cuda([process(str(environment(tmp_path, text) / "python3"))]) is None


@pytest.mark.parametrize("command", [(), ("python3",), ("/nowhere/bin/python3", "-m", "vllm"), ("VLLM::EngineCore",)])
def test_a_process_of_another_file_system_tells_nothing(command: tuple[str, ...]) -> None:
    """What a container's path names lies elsewhere."""
    assert torch_cuda([process(*command)]) is None
