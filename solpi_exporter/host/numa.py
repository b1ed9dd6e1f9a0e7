"""Whether the processes that use a GPU run next to it. GPUs come in by bus id: host/ knows nothing of NVML.

The roots of sysfs and procfs are arguments.
"""

from collections.abc import Iterable
from pathlib import Path

from solpi_exporter.host.files import PROC, SYS, cpu_list, read
from solpi_exporter.host.process import allowed_cpus


def node_cpus(sys: Path = SYS) -> dict[int, frozenset[int]]:
    """Return the CPUs that are online by NUMA node, without nodes of memory alone."""
    folders = (sys / "devices/system/node").glob("node[0-9]*")
    nodes = {int(folder.name.removeprefix("node")): cpu_list(read(folder / "cpulist") or "") for folder in folders}
    return {node: cpus for node, cpus in nodes.items() if cpus}


def gpu_node(bus_id: str, sys: Path = SYS) -> int | None:
    """Return the NUMA node of a GPU by the bus id that NVML gives, such as "00000000:00:06.0"; None if not known."""
    domain, _, place = bus_id.lower().partition(":")
    # The kernel writes the domain with four digits, and more only where it needs them.
    text = read(sys / "bus/pci/devices" / f"{domain.lstrip('0'):0>4}:{place}" / "numa_node")
    node = -1 if text is None else int(text)
    return node if node >= 0 else None


def runs_beside(
    bus_id: str, pids: Iterable[int], nodes: dict[int, frozenset[int]], sys: Path = SYS, proc: Path = PROC
) -> bool | None:
    """Return whether all CPUs on which the processes may run are of the GPU's node; None if that is not known.

    `nodes` is node_cpus(). On a host with one node the answer says nothing, so it is None.
    """
    node = gpu_node(bus_id, sys)
    online = frozenset[int]().union(*nodes.values())
    # A process without restriction may run on CPUs that are not there.
    allowed = frozenset[int]().union(*(allowed_cpus(pid, proc) for pid in pids)) & online
    if len(nodes) < 2 or node not in nodes or not allowed:
        return None
    return allowed <= nodes[node]
