"""How host/ reads: small files of procfs and sysfs, whole and at once; what cannot be read is not known."""

from collections.abc import Collection
from pathlib import Path

# Where Linux keeps them; the functions of host/ take other roots.
PROC = Path("/proc")
SYS = Path("/sys")
CGROUPS = SYS / "fs/cgroup"


def read(path: Path | str) -> str | None:
    """Return a file's text; None where it is missing or forbidden, or the kernel declines (EOPNOTSUPP, ESRCH)."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:
        return None


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list in the kernel's form, such as "0-3,8"."""
    bounds = [part.split("-") for part in text.strip().split(",") if part]
    return frozenset(cpu for bound in bounds for cpu in range(int(bound[0]), int(bound[-1]) + 1))


def cpu_ranges(cpus: Collection[int]) -> str:
    """Return CPUs as a list in the kernel's form, the reverse of `cpu_list`."""
    ordered = sorted(cpus)
    firsts = [cpu for cpu in ordered if cpu - 1 not in cpus]
    lasts = [cpu for cpu in ordered if cpu + 1 not in cpus]
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in zip(firsts, lasts, strict=True)
    )
