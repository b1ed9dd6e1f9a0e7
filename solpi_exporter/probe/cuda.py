"""The rig of an NVIDIA GPU: the step launched call by call, the same step as CUDA graphs, and the device alone.

Memory, graphs and events are made once and kept; after that nothing is allocated.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from solpi_exporter.probe.cuda_costs import CudaCosts
from solpi_exporter.probe.cuda_errors import cuda_errors
from solpi_exporter.probe.cuda_steps import Timer
from solpi_exporter.probe.decode import DecodeStack, DecodeStep
from solpi_exporter.probe.result import Identity
from solpi_exporter.probe.rig import Copy, Replay, Variant
from solpi_exporter.probe.rounds import Step
from solpi_exporter.probe.shape import ELEMENT_BYTES, KV_BLOCK, Shape
from solpi_exporter.source import SourceError

INSTANCE = " MIG "  # in the name that CUDA gives a MIG instance: "NVIDIA A100 80GB PCIe MIG 1g.10gb"
CAPTURE_WARMUP = 3  # launches before a capture: the libraries pick and load their kernels then


@dataclass(frozen=True, slots=True)
class CudaVariant:
    """A variant that is ready to run, and as a graph with all of the KV cache and with one block of it."""

    step: DecodeStep
    layers: int
    graph: torch.cuda.CUDAGraph
    graph_without_kv: torch.cuda.CUDAGraph

    def launch(self, started: Callable[[], None]) -> None:
        """Launch the step call by call."""
        self.step.forward(layers=self.layers, started=started)

    def replay(self, _: Callable[[], None]) -> None:
        """Launch the step as a graph, of which nobody can tell when its first kernel has run."""
        self.graph.replay()


class CudaRig:
    """All variants on one GPU, of which up to `steps` steps or `replays` replays are run in a row."""

    def __init__(
        self, shape: Shape, variants: Sequence[Variant], device: torch.device, steps: int, replays: int
    ) -> None:
        torch.cuda.set_device(device)
        _refuse_what_the_cache_holds(shape, device)
        self.identity = _identity(shape, device)
        self.timer = Timer(steps, replays)
        with torch.inference_mode():
            stack = DecodeStack(shape, max(one.batch for one in variants), device, torch.bfloat16)
            self.variants = dict(_captured(stack, variants))
            self._costs = CudaCosts(device, max(stack.gate_up, stack.cache, key=torch.numel))
            for one in variants:
                self.launched(one, 1)  # takes the memory that launching needs

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold torch's inference mode, and turn its errors into ours."""
        with torch.inference_mode(), cuda_errors(self.identity.device):
            yield

    def launched(self, variant: Variant, count: int) -> list[Step]:
        """Time steps that are launched call by call."""
        one = self.variants[variant]
        return self.timer.steps(one.step, one.launch, count, has_head=True)

    def replayed(self, variant: Variant, count: int) -> list[Step]:
        """Time steps that are launched as a graph."""
        one = self.variants[variant]
        return self.timer.steps(one.step, one.replay, count)

    def pipelined(self, variant: Variant, count: int) -> list[Step]:
        """Time graphs of which the tokens are read one step behind."""
        one = self.variants[variant]
        return self.timer.pipelined(one.step, one.graph, count)

    def chain(self, replays: Sequence[Replay]) -> list[float]:
        """Time replays queued back to back, without the first."""
        return self.timer.chain([self._graph(one) for one in replays])

    def round_trip(self) -> float:
        """Launch one small kernel, and wait for it."""
        return self._costs.round_trip()

    def launch(self, times: int) -> float:
        """Time small kernels launched in a row."""
        return self._costs.launch(times)

    def graph_launch(self, variant: Variant) -> float:
        """Time the launch of a step's graph."""
        return self._costs.host_seconds(self.variants[variant].graph.replay)

    def nodes(self, count: int) -> float:
        """Time a graph of empty nodes."""
        return self._costs.nodes(count)

    def copy(self) -> Copy | None:
        """Time a copy."""
        return self._costs.copy()

    def clock(self) -> float | None:
        """Return the SM clock in hertz, where it is told."""
        return self._costs.clock()

    def _graph(self, one: Replay) -> torch.cuda.CUDAGraph:
        variant = self.variants[one.variant]
        return variant.graph if one.with_kv else variant.graph_without_kv


def _identity(shape: Shape, device: torch.device) -> Identity:
    properties = torch.cuda.get_device_properties(device)
    return Identity(
        str(device),
        _uuid(properties.name, getattr(properties, "uuid", None)),  # told from torch 2.5 on
        properties.name,
        shape.name,
        shape.layers,
        shape.context,
        "bfloat16",
        str(torch.__version__),
        None if torch.version.cuda is None else float(torch.version.cuda),
    )


def _uuid(name: str, uuid: object | None) -> str:
    """Return a UUID as NVML writes it, so that it joins with the GPU's series; empty where none is told.

    CUDA tells a MIG instance's own, which NVML begins differently.
    """
    if uuid is None:
        return ""
    return f"MIG-{uuid}" if INSTANCE in name else f"GPU-{uuid}"


def _refuse_what_the_cache_holds(shape: Shape, device: torch.device) -> None:
    """Raise SourceError where running the one layer again would read nothing from memory."""
    cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    layer = ELEMENT_BYTES * shape.layer_parameters
    if layer <= cache:
        raise SourceError(
            f"probe.shape {shape.name} has {layer >> 20} MiB of weights a layer, which stay in the L2 of this GPU "
            f"({cache >> 20} MiB), so that its figures would be no model's: choose a larger one"
        )


def _captured(stack: DecodeStack, variants: Sequence[Variant]) -> Iterator[tuple[Variant, CudaVariant]]:
    """Capture every variant; all graphs share their memory, since no two run at once."""
    pool, side = None, torch.cuda.Stream()  # one for all: the libraries keep a workspace for each stream
    steps = {one.batch: DecodeStep(stack, one.batch) for one in variants}
    for one in variants:
        step = steps[one.batch]
        whole = partial(step.forward, layers=one.layers)
        graph = _capture(whole, pool, side)
        pool = graph.pool()
        yield one, CudaVariant(step, one.layers, graph, _capture(partial(whole, attended=KV_BLOCK), pool, side))


def _capture(
    forward: Callable[[], None], pool: "torch.cuda._POOL_HANDLE | None", side: torch.cuda.Stream
) -> torch.cuda.CUDAGraph:
    """Record `forward` as a graph, warmed up on a side stream as torch asks for."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(CAPTURE_WARMUP):
            forward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        forward()
    return graph
