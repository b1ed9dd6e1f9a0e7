"""How fast the host's CPUs run, who governs that, and how long work waited for CPU, memory and disks.

The roots of sysfs and procfs are arguments.
"""

from pathlib import Path

from solpi_exporter.host.files import PROC, SYS, cpu_list, read

RESOURCES = ("cpu", "memory", "io")

# Older kernels on x86 interrupt a CPU to learn its frequency, and may wait 10 ms for the answer.
MOST_CPUS = 16


def frequency_hertz(sys: Path = SYS) -> float | None:
    """Return the mean frequency of the sampled CPUs (scaling_cur_freq); None where the kernel does not tell."""
    texts = [read(sys / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in sampled_cpus(sys)]
    # Some drivers say "<unknown>" or 0 for a CPU that sleeps.
    kilohertz = [int(text) for text in texts if text is not None and text.strip().isdecimal() and int(text) > 0]
    return 1e3 * sum(kilohertz) / len(kilohertz) if kilohertz else None


def governors(sys: Path = SYS) -> tuple[str, ...]:
    """Return the names of the governors in use among the sampled CPUs."""
    texts = [read(sys / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor") for cpu in sampled_cpus(sys)]
    return tuple(sorted({text.strip() for text in texts if text is not None and text.strip()}))


def sampled_cpus(sys: Path = SYS) -> list[int]:
    """Return at most MOST_CPUS of the CPUs that are online, evenly spread: the same ones at every poll."""
    online = sorted(cpu_list(read(sys / "devices/system/cpu/online") or ""))
    count = min(len(online), MOST_CPUS)
    return [online[number * len(online) // count] for number in range(count)]


def pressure_seconds(proc: Path = PROC) -> dict[str, float]:
    """Return by resource the seconds since boot in which some task waited for it; without those not accounted for."""
    texts = {resource: read(proc / "pressure" / resource) for resource in RESOURCES}
    totals = {resource: _some_total(text) for resource, text in texts.items() if text is not None}
    return {resource: total / 1e6 for resource, total in totals.items() if total is not None}


def _some_total(text: str) -> int | None:
    """Return the microseconds of "some avg10=0.00 ... total=123"."""
    for line in text.splitlines():
        kind, *fields = line.split()
        if kind == "some":
            return next((int(field.removeprefix("total=")) for field in fields if field.startswith("total=")), None)
    return None
