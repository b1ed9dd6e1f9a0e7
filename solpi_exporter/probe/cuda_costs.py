"""The raw costs of an NVIDIA GPU and its host: one kernel, one graph, one node, one round trip, one copied byte."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from pynvml import NVMLError

from solpi_exporter.probe.cuda_steps import event
from solpi_exporter.probe.result import LATE_SHARE, Costs
from solpi_exporter.probe.timing import NANO, p50_p99, undisturbed, wakeup_overshoot

# Round trips come in bursts: together they take longer than a time slice of a busy CPU, in which a neighbour that is
# starved itself leaves the GPU alone.
BURSTS, TRIPS = 5, 40
PAUSE_SECONDS = 5e-3
# More than a hiccup of the host, less than a time slice of the GPU, which is about a millisecond.
LATE_SECONDS = 500e-6
LAUNCHES = 50  # at once; a stream holds about a thousand before a launch waits for one to finish
NODES = (50, 150)
REPEATS = 8


class CostMeter:
    """Measures them again and again, on memory, graphs and events that are made once.

    The first half of `large` is copied over its second, where the L2 does not hold them.
    """

    def __init__(self, device: torch.device, large: torch.Tensor) -> None:
        self._device = device
        self._one = torch.zeros(1, device=device)
        self._one.add_(1)  # loads the kernel, which a capture must not
        self._events = (event(), event())
        self._graphs = [_chain_of(self._one, nodes) for nodes in NODES]
        flat = large.view(-1)
        cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        self._exceeds_cache = large.numel() * large.element_size() // 2 > cache
        self._quickest = math.inf
        self._halves = flat[: flat.numel() // 2], flat[flat.numel() // 2 : flat.numel() // 2 * 2]

    def measure(
        self, replay: Callable[[], None], quiet: AbstractContextManager[object], warm_up: Callable[[], None]
    ) -> Costs:
        """Measure all; `replay` launches the graph of one step, `quiet` is held while something is timed.

        `warm_up` is called where nobody else uses the GPU: its clocks are low then, and the costs those of low clocks.
        """
        trips = self._round_trips(quiet)
        if _late(trips) <= LATE_SHARE:
            warm_up()
            trips = self._round_trips(quiet)
        self._quickest = min(self._quickest, *trips)
        with quiet, undisturbed():
            wakeup = wakeup_overshoot()
        with quiet, undisturbed():
            return Costs(
                wakeup=wakeup,
                round_trip=p50_p99(trips),
                quickest_round_trip=self._quickest if self._quickest <= LATE_SECONDS else None,
                late_round_trips=_late(trips),
                launch=self._host_seconds(lambda: self._one.add_(1), LAUNCHES),
                graph_launch=self._host_seconds(replay, 1),
                graph_node=self._node_seconds(),
                copy_bandwidth=self._copy_bandwidth() if self._exceeds_cache else None,
                clock=_clock(self._device),
            )

    def _round_trips(self, quiet: AbstractContextManager[object]) -> list[float]:
        trips = []
        torch.cuda.synchronize()
        for _ in range(BURSTS):
            with quiet, undisturbed():
                trips += [self._round_trip() for _ in range(TRIPS)]
            time.sleep(PAUSE_SECONDS)
        return trips

    def _round_trip(self) -> float:
        _, done = self._events
        start = time.perf_counter_ns()
        self._one.add_(1)
        done.record()
        done.synchronize()
        return (time.perf_counter_ns() - start) * NANO

    def _host_seconds(self, launch: Callable[[], object], times: int) -> float:
        """Return the host's median time for one launch, of so many in a row on an idle stream."""
        seconds = []
        for _ in range(REPEATS):
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(times):
                launch()
            seconds.append((time.perf_counter_ns() - start) * NANO / times)
        torch.cuda.synchronize()
        return statistics.median(seconds)

    def _node_seconds(self) -> float:
        """Return the GPU's time for a node of a graph that does next to nothing: the slope over two lengths."""
        short, long = (min(self._device_seconds(graph.replay)) for graph in self._graphs)
        return (long - short) / (NODES[1] - NODES[0])

    def _copy_bandwidth(self) -> float:
        source, target = self._halves
        seconds = min(self._device_seconds(lambda: target.copy_(source)))
        return 2 * source.numel() * source.element_size() / seconds

    def _device_seconds(self, launch: Callable[[], object]) -> Sequence[float]:
        """Return device times of single launches, each behind another one, so that none contains its own launch."""
        start, done = self._events
        seconds = []
        for _ in range(REPEATS):
            launch()
            start.record()
            launch()
            done.record()
            done.synchronize()
            seconds.append(start.elapsed_time(done) / 1e3)
        return seconds


def _late(trips: Sequence[float]) -> float:
    return sum(trip > LATE_SECONDS for trip in trips) / len(trips)


def _chain_of(one: torch.Tensor, nodes: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(nodes):
            one.add_(1)
    return graph


def _clock(device: torch.device) -> float | None:
    """Return the SM clock in hertz, None where torch cannot ask NVML."""
    try:
        return torch.cuda.clock_rate(device) * 1e6
    except (RuntimeError, ModuleNotFoundError, NVMLError):
        return None
