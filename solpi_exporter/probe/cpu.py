"""The bench for a host without a GPU: the same step with the host as its device, in one thread.

Graphs do not exist here, so the split comes from ablation: the same calls on the smallest shape are dispatch, and
attention cut to one KV block takes the KV cache's traffic away.
"""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch

from solpi_exporter.probe.decode import DecodeStack, DecodeStep
from solpi_exporter.probe.result import EAGER_SYNC, BatchResult, Costs, Identity
from solpi_exporter.probe.rounds import Round, Step, kept, reference, summarise, voided
from solpi_exporter.probe.shape import KV_BLOCK, Shape, smallest
from solpi_exporter.probe.split import Split, split_cpu, trimmed_mean
from solpi_exporter.probe.timing import throttled_periods, time_step, undisturbed, wakeup_overshoot

ROUNDS = 4
STEPS = 3  # of each variant in a round, fewer where they would take long:
BATCH_SECONDS = 0.25
VARIANTS = 3
WARMUP = 2

WITHOUT_KV = "without_kv"
DISPATCH = "dispatch"


class CpuBench:
    """Measures on the host's CPU, with one thread of torch: what a step costs must not depend on who else runs."""

    def __init__(self, shape: Shape, batches: Sequence[int]) -> None:
        torch.set_num_threads(1)
        device, dtype = torch.device("cpu"), torch.float32
        self.identity = Identity(
            "cpu", "", "CPU", shape.name, shape.layers, shape.context, "float32", str(torch.__version__)
        )
        with torch.inference_mode():
            full = DecodeStack(shape, max(batches), device, dtype)
            empty = DecodeStack(smallest(shape), max(batches), device, dtype)
            self._steps = {batch: (DecodeStep(full, batch), DecodeStep(empty, batch)) for batch in batches}

    @property
    def is_open(self) -> bool:
        """Always."""
        return True

    @property
    def used(self) -> None:
        """No GPU."""

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        """Measure what there is without a device: how late a sleeper wakes."""
        with quiet:
            return Costs(wakeup_overshoot())

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        """Measure one batch size in interleaved rounds."""
        full, empty = self._steps[batch]
        with torch.inference_mode():
            for _ in range(WARMUP):
                with quiet:
                    begun = time.perf_counter()
                    full.prepare()
                    full.forward()
                    empty.forward()
                    seconds = time.perf_counter() - begun
            steps = max(1, min(STEPS, int(BATCH_SECONDS / (ROUNDS * VARIANTS * seconds))))
            rounds = [self._round(full, empty, steps, quiet) for _ in range(ROUNDS)]
        return summarise(batch, rounds, _estimate)

    def close(self) -> None:
        """Nothing: its memory stays until the process ends."""

    def _round(self, full: DecodeStep, empty: DecodeStep, steps: int, quiet: AbstractContextManager[object]) -> Round:
        """Time each variant a few times, in random order; a round in which the kernel throttled us is void."""
        result = Round({EAGER_SYNC: []}, {WITHOUT_KV: [], DISPATCH: []})
        variants = [
            partial(self._time, result.steps[EAGER_SYNC].append, full, full.forward),
            partial(
                self._time_reference, result.references[WITHOUT_KV], full, partial(full.forward, attended=KV_BLOCK)
            ),
            partial(self._time_reference, result.references[DISPATCH], full, empty.forward),
        ]
        random.shuffle(variants)
        throttled = throttled_periods()
        for variant in variants:
            with quiet, undisturbed():
                for _ in range(steps):
                    variant()
        if throttled_periods() != throttled:
            return _void(result)
        return result

    def _time(self, keep: Callable[[Step], None], step: DecodeStep, forward: Callable[[], None]) -> None:
        def enqueue() -> None:
            step.prepare()
            forward()

        keep(time_step(enqueue, step.tokens.tolist))

    def _time_reference(self, times: list[float | None], step: DecodeStep, forward: Callable[[], None]) -> None:
        self._time(lambda timed: times.append(None if timed.void else timed.enqueue), step, forward)


def _void(one: Round) -> Round:
    """Return a round of which nothing counts: here the references are the host's times too."""
    return Round(voided(one).steps, {name: [None] * len(times) for name, times in one.references.items()})


def _estimate(rounds: Sequence[Round]) -> Split:
    steps = kept(rounds, EAGER_SYNC)
    return split_cpu(
        wall=trimmed_mean([step.wall for step in steps]),
        step=trimmed_mean([step.enqueue for step in steps]),
        step_without_kv=reference(rounds, WITHOUT_KV),
        dispatch=reference(rounds, DISPATCH),
    )
