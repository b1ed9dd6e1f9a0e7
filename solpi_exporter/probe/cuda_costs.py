"""The single things that an NVIDIA GPU and its host are asked to do, to tell what each costs."""

import time
from collections.abc import Callable

import torch

from solpi_exporter.probe.cuda_steps import event
from solpi_exporter.probe.rig import NODES, Copy
from solpi_exporter.probe.timing import NANO


class CudaCosts:
    """Does them on memory, graphs and events that are made once.

    The first half of `large` is copied over its second, where the L2 does not hold them.
    """

    def __init__(self, device: torch.device, large: torch.Tensor) -> None:
        self._device = device
        self._one = torch.zeros(1, device=device)
        self._one.add_(1)  # loads the kernel, which a capture must not
        self._events = (event(), event())
        self._graphs = {count: _chain_of(self._one, count) for count in NODES}
        flat = large.view(-1)
        half = flat.numel() // 2
        self._halves = flat[:half], flat[half : 2 * half]
        self._half_bytes = half * flat.element_size()
        self._cache_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)

    def round_trip(self) -> float:
        """Launch one small kernel, and wait for it."""
        _, done = self._events
        start = time.perf_counter_ns()
        self._one.add_(1)
        done.record()
        done.synchronize()
        return (time.perf_counter_ns() - start) * NANO

    def launch(self, times: int) -> float:
        """Return the host's time for one small kernel, of so many launched in a row on an idle stream."""
        return self.host_seconds(lambda: self._one.add_(1), times)

    def host_seconds(self, launch: Callable[[], object], times: int = 1) -> float:
        """Return the host's time for one launch, of so many in a row on an idle stream."""
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(times):
            launch()
        seconds = (time.perf_counter_ns() - start) * NANO / times
        torch.cuda.synchronize()
        return seconds

    def nodes(self, count: int) -> float:
        """Return the device's time for a graph of so many nodes that do next to nothing."""
        return self._device_seconds(self._graphs[count].replay)

    def copy(self) -> Copy | None:
        """Copy half of the large tensor over the other; None where the L2 would hold it."""
        if self._half_bytes <= self._cache_bytes:
            return None
        source, target = self._halves
        return Copy(self._device_seconds(lambda: target.copy_(source)), 2 * self._half_bytes)

    def clock(self) -> float | None:
        """Return the SM clock in hertz, None where torch cannot ask NVML."""
        try:
            from pynvml import NVMLError  # a worker's Python need not have it
        except ModuleNotFoundError:
            return None
        try:
            return torch.cuda.clock_rate(self._device) * 1e6
        except (RuntimeError, NVMLError):
            return None

    def _device_seconds(self, launch: Callable[[], object]) -> float:
        """Return the device's time of a launch behind another one, so that it does not contain the launching."""
        start, done = self._events
        launch()
        start.record()
        launch()
        done.record()
        done.synchronize()
        return float(start.elapsed_time(done)) / 1e3


def _chain_of(one: torch.Tensor, nodes: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(nodes):
            one.add_(1)
    return graph
