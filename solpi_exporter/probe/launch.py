"""How a worker is started: under which Python, with this package and nothing else of the exporter's, for which GPU.

The package is loaded from its folder by name. On the module path it would bring its neighbours along: installed, its
parent folder is the exporter's site-packages, and another Python would find that one's torch there.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from solpi_exporter import __version__
from solpi_exporter.probe.child import Child, spawn
from solpi_exporter.probe.result import UUIDS

PACKAGE = Path(__file__).parent.parent
MODULE = "solpi_exporter.probe.worker"
BEGIN = f"""
import sys
from importlib.util import module_from_spec, spec_from_file_location
if sys.version_info < (3, 11):
    sys.exit("its Python is %d.%d: name one from 3.11 on as probe.python" % sys.version_info[:2])
_, folder, version = sys.argv
spec = spec_from_file_location("solpi_exporter", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules[spec.name] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from {MODULE} import main
main(version)
"""


def start(python: Sequence[str], device: str) -> Child:
    """Start a worker under an interpreter, with its options; raise SourceError where it cannot be."""
    return spawn((*python, "-c", BEGIN, str(PACKAGE), __version__), environment(python[0], device, os.environ))


def environment(python: str, device: str, ours: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment: another Python is not told where this one finds its modules.

    Of a GPU that is named by its UUID it sees no neighbour, so that it does not open one that hangs; there is no other
    way to a MIG instance.
    """
    of_python = () if python == sys.executable else ("PYTHONPATH", "PYTHONHOME")
    kept = {name: value for name, value in ours.items() if name not in of_python}
    kept["PYTHONSAFEPATH"] = "1"  # else the directory in which the daemon was started is searched first
    if device.startswith(UUIDS):
        kept["CUDA_VISIBLE_DEVICES"] = device
    return kept
