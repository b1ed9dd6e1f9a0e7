"""The bench for an NVIDIA GPU: the step launched call by call, the same step as one CUDA graph, and the device alone.

Definitions: docs/probe.md. Events are made and recorded once before anything is timed, since torch creates them
lazily and would do so inside the window.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import torch

from solpi_exporter.probe.bench import (
    EAGER_SYNC,
    GRAPH_SYNC,
    BatchResult,
    Identity,
    Round,
    Step,
    kept,
    reference,
    summarise,
)
from solpi_exporter.probe.decode import DecodeStack, DecodeStep
from solpi_exporter.probe.shape import KV_BLOCK, Shape
from solpi_exporter.probe.split import Split, split_gpu, trimmed_mean
from solpi_exporter.probe.timing import throttled_periods, time_step, undisturbed
from solpi_exporter.source import SourceError

ROUNDS = 6
STEPS = 6
CAPTURE_WARMUP = 3  # launches before a capture: the libraries pick and load their kernels then
WARMUP_SECONDS = (0.05, 0.3)  # of replays, at least and at most: clocks rise in steps, and a low step looks steady
WARMUP_TOLERANCE = 0.02

GRAPH = "graph"
GRAPH_WITHOUT_KV = "graph_without_kv"


class _Captured:
    """One batch size: its step, and that step as a graph with all of the KV cache and with one block of it."""

    def __init__(self, step: DecodeStep, pool: "torch.cuda._POOL_HANDLE | None") -> None:
        self.step = step
        self.graph = _capture(step.forward, pool)
        self.graph_without_kv = _capture(partial(step.forward, attended=KV_BLOCK), self.graph.pool())


class CudaBench:
    """Measures on one GPU. Weights, caches, graphs and events are made here and kept."""

    def __init__(self, shape: Shape, batches: Sequence[int], device: torch.device) -> None:
        torch.cuda.set_device(device)
        properties = torch.cuda.get_device_properties(device)
        uuid = getattr(properties, "uuid", None)  # told from torch 2.5 on
        self.identity = Identity(
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
        self._step_events = [(_event(), _event(), _event()) for _ in range(STEPS)]
        self._chain = [_event() for _ in range(STEPS + 2)]
        self._captured: dict[int, _Captured] = {}
        with torch.inference_mode():
            stack = DecodeStack(shape, max(batches), device, torch.bfloat16)
            pool = None
            for batch in batches:
                captured = self._captured[batch] = _Captured(DecodeStep(stack, batch), pool)
                pool = captured.graph.pool()
                self._time_steps(captured.step, captured.step.forward)  # takes the memory that launching needs

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        """Measure one batch size in interleaved rounds, on clocks that stand still."""
        captured = self._captured[batch]
        with torch.inference_mode(), cuda_errors(self.identity.device):
            self._warm_up(captured)
            rounds = [self._round(captured, quiet) for _ in range(ROUNDS)]
        return summarise(batch, rounds, _estimate)

    def _warm_up(self, captured: _Captured) -> None:
        """Replay until a chain is as fast as the fastest: an idle GPU starts at a sixth of its clock."""
        least, most = WARMUP_SECONDS
        fastest, begun = math.inf, time.perf_counter()
        while (elapsed := time.perf_counter() - begun) < most:
            current = trimmed_mean(self._replay_chain(captured.graph))
            fastest = min(fastest, current)
            if elapsed >= least and current <= (1 + WARMUP_TOLERANCE) * fastest:
                return

    def _round(self, captured: _Captured, quiet: AbstractContextManager[object]) -> Round:
        """Run every variant once, in random order; a round in which the kernel throttled us is void."""
        result = Round()
        step = captured.step
        variants: list[Callable[[], None]] = [
            lambda: result.steps.update({EAGER_SYNC: self._time_steps(step, step.forward)}),
            lambda: result.steps.update({GRAPH_SYNC: self._time_steps(step, captured.graph.replay)}),
            lambda: result.references.update({GRAPH: [*self._replay_chain(captured.graph)]}),
            lambda: result.references.update({GRAPH_WITHOUT_KV: [*self._replay_chain(captured.graph_without_kv)]}),
        ]
        random.shuffle(variants)
        throttled = throttled_periods()
        for variant in variants:
            with quiet, undisturbed():
                variant()
        if throttled_periods() != throttled:
            result.steps = {mode: [replace(s, void=True) for s in steps] for mode, steps in result.steps.items()}
        return result

    def _time_steps(self, step: DecodeStep, forward: Callable[[], None]) -> list[Step]:
        """Time steps that begin on an idle stream and end with the tokens on the host."""
        timed = [self._time_step(step, forward, events) for events in self._step_events]
        return [
            replace(one, span=start.elapsed_time(done) / 1e3)
            for one, (start, done, _) in zip(timed, self._step_events, strict=True)
        ]

    def _time_step(
        self,
        step: DecodeStep,
        forward: Callable[[], None],
        events: tuple[torch.cuda.Event, torch.cuda.Event, torch.cuda.Event],
    ) -> Step:
        start, done, copied = events

        def enqueue() -> None:
            start.record()
            step.prepare()
            forward()
            done.record()
            step.host_tokens.copy_(step.tokens, non_blocking=True)
            copied.record()

        def finish() -> None:
            copied.synchronize()
            step.host_tokens.tolist()

        torch.cuda.synchronize()
        return time_step(enqueue, finish)

    def _replay_chain(self, graph: torch.cuda.CUDAGraph) -> list[float]:
        """Return device seconds of replays queued back to back: the distance of their ends, the first left out.

        A single replay on an idle stream would contain its own launch.
        """
        torch.cuda.synchronize()
        for event in self._chain:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        pairs = zip(self._chain, self._chain[1:], strict=False)
        return [earlier.elapsed_time(later) / 1e3 for earlier, later in pairs]


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


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _capture(forward: Callable[[], None], pool: "torch.cuda._POOL_HANDLE | None") -> torch.cuda.CUDAGraph:
    """Record `forward` as a graph, warmed up on a side stream as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(CAPTURE_WARMUP):
            forward()
    torch.cuda.current_stream().wait_stream(stream)
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
