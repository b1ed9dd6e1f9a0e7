"""Whether NVIDIA's MPS runs on this host, by the names that procfs has of all processes. Its root is an argument.

A process that is hidden, by `hidepid` or in another pid namespace, is not seen.
"""

import os
from pathlib import Path

from solpi_exporter.host.files import PROC, read

# As much as the kernel keeps of nvidia-cuda-mps-server, and of -control, which starts one for the next client.
NAME = "nvidia-cuda-mps"


def mps_runs(proc: Path = PROC) -> bool | None:
    """Return whether a process of MPS is seen; None where processes cannot be listed.

    Names are read without any lock that a process which hangs could hold.
    """
    try:
        entries = os.listdir(proc)
    except OSError:
        return None
    names = (read(f"{proc}/{pid}/comm") for pid in entries if pid.isdecimal())
    return any(name is not None and name.startswith(NAME) for name in names)
