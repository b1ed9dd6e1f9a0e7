"""What host this is: its CPU and its kernel. The root of procfs is an argument."""

from pathlib import Path

from solpi_exporter.host.files import PROC, read


def cpu_model(proc: Path = PROC) -> str | None:
    """Return the CPU's name, such as "AMD EPYC 9654 96-Core Processor"; None where the kernel does not tell.

    An ARM kernel knows no names: there it is "ARM 0x41 0xd4f", implementer and part.
    """
    told = _first_cpu(read(proc / "cpuinfo") or "")
    if told.get("model name"):
        return told["model name"]
    implementer, part = told.get("CPU implementer"), told.get("CPU part")
    return None if implementer is None or part is None else f"ARM {implementer} {part}"


def kernel_release(proc: Path = PROC) -> str | None:
    """Return the kernel's release, as `uname -r` prints it."""
    text = read(proc / "sys/kernel/osrelease")
    return None if text is None else text.strip() or None


def _first_cpu(text: str) -> dict[str, str]:
    """Return what /proc/cpuinfo says of the first CPU."""
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}
