"""Which cgroup a process is in, and for how long CPU limits held it back. Versions 1, 2 and both side by side.

The roots of procfs and of the cgroup file system are arguments.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from solpi_exporter.host.files import CGROUPS, PROC, read

# Key in cpu.stat by version 2 and version 1, and how many make a second.
UNITS = {"throttled_usec": 1e6, "throttled_time": 1e9}


@dataclass(frozen=True, slots=True)
class Membership:
    """Where a process belongs.

    `path` is its cgroup by the unified hierarchy, or by version 1's of the CPU where the former says nothing. `folder`
    is where the CPU's controller keeps it, relative to the cgroup file system. None is not known.
    """

    path: str | None = None
    folder: str | None = None


def read_membership(pid: int, proc: Path = PROC) -> Membership:
    """Return what /proc/PID/cgroup tells."""
    lines = (read(f"{proc}/{pid}/cgroup") or "").splitlines()
    # "number:controllers:path"; the unified hierarchy has no controllers there.
    paths = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    unified = paths.get("")
    names = next((names for names in paths if "cpu" in names.split(",")), None)
    if names is None:
        return Membership(unified, None if unified is None else unified.removeprefix("/"))
    # A controller belongs to one version. Version 1 mounts it under the names that it lists here.
    return Membership(paths[names] if unified in (None, "/") else unified, names + paths[names])


def throttled_seconds(folder: str, cgroups: Path = CGROUPS) -> dict[str, float]:
    """Return by level the seconds for which its own CPU limit held it back, summed over CPUs.

    From the process's cgroup up to the root, because a limit may stand on any of them and each counts for itself.
    Empty where no level has the controller, and for a cgroup of another namespace, which lies outside this root.
    """
    own = PurePosixPath(folder)
    texts = {} if ".." in own.parts else {level: read(cgroups / level / "cpu.stat") for level in (own, *own.parents)}
    if texts.get(own) is None:
        return {}
    return {str(level): seconds for level, text in texts.items() for seconds in _throttled(text or "")}


def _throttled(text: str) -> Iterator[float]:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in UNITS:
            yield int(value) / UNITS[key]
