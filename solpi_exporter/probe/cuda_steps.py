"""How steps and replays are timed on an NVIDIA GPU: between events that are made and recorded once beforehand.

torch creates events lazily, and would do so inside the window. Definitions: docs/probe.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from solpi_exporter.probe.decode import DecodeStep
from solpi_exporter.probe.rig import PIPELINE_FILL
from solpi_exporter.probe.rounds import Step
from solpi_exporter.probe.timing import time_pipeline, time_step

Forward = Callable[[Callable[[], None]], None]  # launches a step, and calls back once its first kernel is launched


@dataclass(frozen=True, slots=True)
class _StepEvents:
    """Of one step: its begin, the end of its first kernel, its end, and that of the copy of its tokens."""

    start: torch.cuda.Event
    started: torch.cuda.Event
    done: torch.cuda.Event
    copied: torch.cuda.Event


class Timer:
    """Times up to `steps` steps, or `replays` replays, in a row."""

    def __init__(self, steps: int, replays: int) -> None:
        self._steps = [_StepEvents(event(), event(), event(), event()) for _ in range(max(2, steps))]
        self._chain = [event() for _ in range(max(2, replays))]
        self._side = torch.cuda.Stream()

    def steps(self, step: DecodeStep, forward: Forward, count: int, *, has_head: bool = False) -> list[Step]:
        """Time steps that begin on an idle stream and end with the tokens on the host.

        `has_head` says that `forward` calls back, so that the time up to its first kernel is known.
        """
        used = self._steps[:count]
        timed = [self._step(step, forward, events) for events in used]
        late = self._record_seconds() if has_head else 0.0
        return [
            replace(
                one,
                span=events.start.elapsed_time(events.done) / 1e3,
                head=events.start.elapsed_time(events.started) / 1e3 - late if has_head else None,
            )
            for one, events in zip(timed, used, strict=True)
        ]

    def _record_seconds(self) -> float:
        """Return how much later than a kernel an event is reached that is recorded right behind it.

        On an idle stream that is what the host takes to record one, since the GPU is done sooner.
        """
        for one in self._chain[:2]:
            one.record()
        torch.cuda.synchronize()
        return float(self._chain[0].elapsed_time(self._chain[1])) / 1e3

    def _step(self, step: DecodeStep, forward: Forward, events: _StepEvents) -> Step:
        def enqueue() -> None:
            events.start.record()
            step.prepare()
            forward(events.started.record)
            events.done.record()
            step.host_tokens.copy_(step.tokens, non_blocking=True)
            events.copied.record()

        def finish() -> None:
            events.copied.synchronize()
            step.host_tokens.tolist()

        torch.cuda.synchronize()
        return time_step(enqueue, finish)

    def pipelined(self, step: DecodeStep, graph: torch.cuda.CUDAGraph, count: int) -> list[Step]:
        """Time steps of which the tokens are read one step behind, over a side stream, as modern engines do."""

        def enqueue(number: int) -> None:
            events = self._steps[number % 2]
            kept, host = step.behind[number % 2]
            step.prepare()  # writes what the last step may still be copying: the same values
            graph.replay()
            kept.copy_(step.tokens)  # the next step writes over them while they are copied
            events.done.record()
            self._side.wait_event(events.done)
            with torch.cuda.stream(self._side):
                host.copy_(kept, non_blocking=True)
                events.copied.record()

        def finish(number: int) -> None:
            self._steps[number % 2].copied.synchronize()
            step.behind[number % 2][1].tolist()

        torch.cuda.synchronize()
        return time_pipeline(count, enqueue, finish, fill=PIPELINE_FILL)

    def chain(self, graphs: Sequence[torch.cuda.CUDAGraph]) -> list[float]:
        """Return device seconds of replays queued back to back: the distance of their ends, the first left out.

        A single replay on an idle stream would contain its own launch.
        """
        used = self._chain[: len(graphs)]
        torch.cuda.synchronize()
        for one, graph in zip(used, graphs, strict=True):
            graph.replay()
            one.record()
        torch.cuda.synchronize()
        return [earlier.elapsed_time(later) / 1e3 for earlier, later in pairwise(used)]


def event() -> torch.cuda.Event:
    """Return an event for timing that was recorded once."""
    one = torch.cuda.Event(enable_timing=True)
    one.record()
    return one
