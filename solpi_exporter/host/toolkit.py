"""Which CUDA an engine's torch was built for: a driver that is older does not fail, it only slows.

Read from the files of the interpreter on the engine's command line, which are open to everyone; in a container they lie
elsewhere, and nothing is known.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from solpi_exporter.host.files import read
from solpi_exporter.host.process import Process

_CUDA = re.compile(r"^cuda\b[^=\n]*= *['\"](\d+\.\d+)", re.MULTILINE)


def torch_cuda(lineage: Iterable[Process]) -> float | None:
    """Return the CUDA version, as major.minor, of the torch beside a process or the first ancestor that has one."""
    for process in lineage:
        for word in process.command[:2]:
            version = _beside(Path(word))
            if version is not None:
                return version
    return None


def _beside(program: Path) -> float | None:
    """Return that of the environment in whose bin/ a program lies."""
    if not program.is_absolute() or program.parent.name != "bin":
        return None
    for file in sorted(program.parent.parent.glob("lib/python3*/site-packages/torch/version.py")):
        if found := _CUDA.search(read(str(file)) or ""):
            return float(found[1])
    return None
