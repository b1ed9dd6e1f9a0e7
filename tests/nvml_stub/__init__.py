"""A stand-in for NVIDIA's management library, so that the real binding and real programs run on GPUs that do not exist.

`stub.c` is compiled as libnvidia-ml.so.1; what its GPUs are and do stands in a control file, which may be replaced at
any time. Its lines, with GPUs by their physical number (the last digits of the UUID), the first one `gpus`:

    gpus N                      how many there are, up to 64; one unless said
    order G ...                 which of them NVML enumerates, in the order of its index; all, unless said
    generation N                handles of before this line changed are refused (2), as after a reset
    version V                   the driver's version
    mig G N                     G is in MIG mode, with N instances: NVML's index 0, 1, ... and GPU instance 1, 2, ...
    busy G PERCENT              the load; 50 unless said, and power, samples and counters follow it
    reasons G MASK              why its clocks are held down, as bits; 0 unless said, and 1 while it is idle
    pid G PID BYTES             a process computes on G; under MIG in its first instance
    field G ID VALUE            a field value, in place of the stub's
    gpm off                     GPM is not supported
    init CODE                   nvmlInit fails
    error G CODE                every call that is given G, its index, UUID or handle, fails
    call-error CALL G|* CODE    this call fails, on G or always; CALL is the name of the C function
    hang-init                   nvmlInit does not return for as long as the line is there
    hang G                      nor does any call that is given G
    hang-call CALL G|*          nor this call
    xid G XID SEQ               one event; each SEQ above the last of its GPU is a new one
    events-error CODE           waiting for events fails at once

Of several lines on one call the first holds. Any other line, GPU or call is a mistake in the test: the process aborts.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
SOURCE = Path(__file__).parent / "stub.c"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")


def build(folder: Path) -> Path:
    """Compile the library into a folder and return its path; raises CalledProcessError where gcc refuses."""
    library = folder / LIBRARY
    subprocess.run(["gcc", *FLAGS, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


@dataclass(frozen=True, slots=True)
class Stub:
    """A built library and the control file of those that load it."""

    library: Path
    control: Path

    def say(self, *lines: str) -> None:
        """Replace the control file, in one step: no call sees half of it."""
        new = self.control.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self.control)

    def environment(self) -> dict[str, str]:
        """Return this process's environment with the stub in it, for a child."""
        path = f"{self.library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        return os.environ | {"LD_LIBRARY_PATH": path, "NVML_STUB": str(self.control)}
