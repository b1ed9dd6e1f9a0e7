"""The bench for an NVIDIA GPU: the step launched call by call, the same step as one CUDA graph, and the device alone.

Definitions: docs/probe.md. Two depths are measured side by side, so that a whole model's token can be told.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from solpi_exporter.probe.cuda_costs import CostMeter
from solpi_exporter.probe.cuda_steps import Timer
from solpi_exporter.probe.decode import DecodeStack, DecodeStep
from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_ASYNC, GRAPH_SYNC, BatchResult, Costs, Identity
from solpi_exporter.probe.rounds import Depths, Round, kept, model, reference, summarise, voided
from solpi_exporter.probe.shape import KV_BLOCK, Shape
from solpi_exporter.probe.split import Split, split_gpu, trimmed_mean
from solpi_exporter.probe.timing import throttled_periods, undisturbed
from solpi_exporter.source import SourceError

ROUNDS = 6
STEPS = 6
CAPTURE_WARMUP = 3  # launches before a capture: the libraries pick and load their kernels then
WARMUP_SECONDS = (0.05, 0.3)  # of replays, at least and at most: clocks rise in steps, and a low step looks steady
WARMUP_TOLERANCE = 0.02
ELEMENT_BYTES = 2  # of bfloat16
# Sequences up to which bytes take longer than arithmetic: a step computes at most so many operations for each byte of
# weights, and no GPU on which this runs does as few in the time of a byte (an A100 153, an H200 206 of datasheet).
BOUND_BY_BYTES = 128

GRAPH = "graph"
GRAPH_WITHOUT_KV = "graph_without_kv"
ALL = (EAGER_SYNC, GRAPH_SYNC, GRAPH_ASYNC, GRAPH, GRAPH_WITHOUT_KV)
TO_MODEL = (EAGER_SYNC, GRAPH, GRAPH_WITHOUT_KV)


@dataclass(frozen=True, slots=True)
class Variant:
    """A step of one batch size and depth, and as a graph, with all of the KV cache and with one block of it."""

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


class CudaBench:
    """Measures on one GPU. Weights, caches, graphs and events are made here and kept.

    `variants` are by batch size and layers.
    """

    def __init__(self, shape: Shape, batches: Sequence[int], device: torch.device) -> None:
        torch.cuda.set_device(device)
        _refuse_what_the_cache_holds(shape, device)
        self.identity = _identity(shape, device)
        self._shape = shape
        self._depths = _depths(shape)
        self.timer = Timer(STEPS)
        with torch.inference_mode():
            stack = DecodeStack(shape, max(batches), device, torch.bfloat16)
            self.variants = dict(_variants(stack, batches, self._layers()))
            self._meter = CostMeter(device, max(stack.gate_up, stack.cache, key=torch.numel))
            for one in self.variants.values():
                self.timer.steps(one.step, one.launch)  # takes the memory that launching needs
        self._costs: Costs | None = None

    def _layers(self) -> tuple[int, ...]:
        return (self._shape.layers,) if self._depths is None else (self._shape.layers, self._depths.shallow)

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        """Measure the raw costs; whether the GPU is others' as well holds for the batch sizes that follow."""
        with torch.inference_mode(), cuda_errors(self.identity.device):
            first = next(iter(self.variants.values()))
            self._costs = self._meter.measure(first.graph.replay, quiet, partial(self._warm_up, first))
        return self._costs

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        """Measure one batch size in interleaved rounds, on clocks that stand still."""
        deep = self.variants[batch, self._shape.layers]
        shallow = None if self._depths is None else self.variants[batch, self._depths.shallow]
        with torch.inference_mode(), cuda_errors(self.identity.device):
            if self._costs is not None and self._costs.is_contended:
                rounds = [self._round(deep, None, quiet, TO_MODEL) for _ in range(ROUNDS)]
                return model(batch, rounds, GRAPH, GRAPH_WITHOUT_KV, self._costs.quickest_round_trip)
            self._warm_up(deep)
            rounds = [self._round(deep, shallow, quiet, ALL) for _ in range(ROUNDS)]
        return replace(summarise(batch, rounds, _estimate, self._depths), floor=self._floor(batch))

    def replay(self, variant: Variant, graph: torch.cuda.CUDAGraph) -> list[float]:
        """Return device seconds of replays right behind a launched step, which is what they are compared with.

        Behind some other kernels an H200 runs the same graph, on the same clocks, 4 to 5 % slower until it has run one.
        """
        variant.step.forward(layers=variant.layers)
        return self.timer.chain(graph)

    def _floor(self, batch: int) -> float | None:
        bandwidth = None if self._costs is None else self._costs.copy_bandwidth
        if bandwidth is None or batch > BOUND_BY_BYTES:
            return None
        return ELEMENT_BYTES * self._shape.moved_elements(batch) / bandwidth

    def _warm_up(self, variant: Variant) -> None:
        """Replay until a chain is as fast as the fastest: an idle GPU starts at a sixth of its clock."""
        least, most = WARMUP_SECONDS
        fastest, begun = math.inf, time.perf_counter()
        while (elapsed := time.perf_counter() - begun) < most:
            current = trimmed_mean(self.replay(variant, variant.graph))
            fastest = min(fastest, current)
            if elapsed >= least and current <= (1 + WARMUP_TOLERANCE) * fastest:
                return

    def _round(
        self, deep: Variant, shallow: Variant | None, quiet: AbstractContextManager[object], what: Sequence[str]
    ) -> Round:
        """Run `what` once, in random order; a round in which the kernel throttled us is void."""
        result = Round(shallow=None if shallow is None else Round())
        tasks = self._tasks(deep, result, what)
        if shallow is not None and result.shallow is not None:
            tasks += self._tasks(shallow, result.shallow, what)
        random.shuffle(tasks)
        throttled = throttled_periods()
        for task in tasks:
            with quiet, undisturbed():
                task()
        return result if throttled_periods() == throttled else voided(result)

    def _tasks(self, variant: Variant, into: Round, what: Sequence[str]) -> list[Callable[[], None]]:
        step, timer = variant.step, self.timer
        tasks: dict[str, Callable[[], None]] = {
            EAGER_SYNC: lambda: into.steps.update({EAGER_SYNC: timer.steps(step, variant.launch, has_head=True)}),
            GRAPH_SYNC: lambda: into.steps.update({GRAPH_SYNC: timer.steps(step, variant.replay)}),
            GRAPH_ASYNC: lambda: into.steps.update({GRAPH_ASYNC: timer.pipelined(step, variant.graph)}),
            GRAPH: lambda: into.references.update({GRAPH: [*self.replay(variant, variant.graph)]}),
            GRAPH_WITHOUT_KV: lambda: into.references.update(
                {GRAPH_WITHOUT_KV: [*self.replay(variant, variant.graph_without_kv)]}
            ),
        }
        return [tasks[name] for name in what]


@contextmanager
def cuda_errors(device: str) -> Iterator[None]:
    """Turn torch's errors into ours, with what to do; after most of them only a new process can use the GPU."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise SourceError(
            f"the probe does not fit on {device}: choose a smaller probe.shape, or leave it more room "
            "(vLLM: lower --gpu-memory-utilization)"
        ) from error
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise SourceError(
            f"CUDA failed on {device} ({reason}): see the kernel log, then restart the exporter"
        ) from error


def _identity(shape: Shape, device: torch.device) -> Identity:
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)  # told from torch 2.5 on
    return Identity(
        str(device),
        "" if uuid is None else f"GPU-{uuid}",
        properties.name,
        shape.name,
        shape.layers,
        shape.context,
        "bfloat16",
        str(torch.__version__),
        None if torch.version.cuda is None else float(torch.version.cuda),
    )


def _refuse_what_the_cache_holds(shape: Shape, device: torch.device) -> None:
    """Raise SourceError where running the one layer again would read nothing from memory."""
    cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    layer = ELEMENT_BYTES * shape.layer_parameters
    if layer <= cache:
        raise SourceError(
            f"probe.shape {shape.name} has {layer >> 20} MiB of weights a layer, which stay in the L2 of this GPU "
            f"({cache >> 20} MiB), so that its figures would be no model's: choose a larger one"
        )


def _depths(shape: Shape) -> Depths | None:
    """Return the depths from which a whole model can be told; None where there is none, or only one."""
    if shape.full_layers is None or not 2 <= shape.layers < shape.full_layers:
        return None
    return Depths(shape.layers, shape.layers // 2, shape.full_layers)


def _variants(
    stack: DecodeStack, batches: Sequence[int], depths: Sequence[int]
) -> Iterator[tuple[tuple[int, int], Variant]]:
    """Capture every batch size at every depth; all graphs share their memory, since no two run at once."""
    pool, side = None, torch.cuda.Stream()  # one for all: the libraries keep a workspace for each stream
    for batch in batches:
        step = DecodeStep(stack, batch)
        for layers in depths:
            whole, cut = partial(step.forward, layers=layers), partial(step.forward, layers=layers, attended=KV_BLOCK)
            graph = _capture(whole, pool, side)
            pool = graph.pool()
            yield (batch, layers), Variant(step, layers, graph, _capture(cut, pool, side))


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


def _estimate(rounds: Sequence[Round]) -> Split:
    steps = kept(rounds, EAGER_SYNC)
    return split_gpu(
        wall=trimmed_mean([step.wall for step in steps]),
        span=trimmed_mean([step.span for step in steps if step.span is not None]),
        graph=reference(rounds, GRAPH),
        graph_without_kv=reference(rounds, GRAPH_WITHOUT_KV),
    )
