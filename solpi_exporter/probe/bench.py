"""The bench for a GPU: which steps are run and when, and what is made of their times. The rig touches the device.

Definitions: docs/probe.md. Two depths are measured side by side, so that a whole model's token can be told.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from solpi_exporter.probe.costs import CostMeter, Quiet, late
from solpi_exporter.probe.metered import MeteredRig
from solpi_exporter.probe.plan import Plan, Used
from solpi_exporter.probe.result import EAGER_SYNC, GRAPH_ASYNC, GRAPH_SYNC, LATE_SHARE, BatchResult, Costs, Identity
from solpi_exporter.probe.rig import Replay, Rig, Variant
from solpi_exporter.probe.rounds import Round, kept, model, reference, summarise, voided
from solpi_exporter.probe.shape import ELEMENT_BYTES, Shape, depths_of
from solpi_exporter.probe.split import Split, split_gpu, trimmed_mean
from solpi_exporter.probe.timing import throttled_periods, undisturbed

WARMUP_TOLERANCE = 0.02
CHECK_TRIPS, CHECK_LATE = 5, 2  # after each round; one that is late may be the host's
# Sequences up to which bytes take longer than arithmetic: a step computes at most so many operations for each byte of
# weights, and no GPU on which this runs does as few in the time of a byte (an A100 153, an H200 206 of datasheet).
BOUND_BY_BYTES = 128

GRAPH = "graph"
GRAPH_WITHOUT_KV = "graph_without_kv"
TO_MODEL = (EAGER_SYNC, GRAPH, GRAPH_WITHOUT_KV)


class GpuBench:
    """Measures on one rig as its plan says; `sleep` is how it rests."""

    def __init__(
        self, rig: Rig, shape: Shape, batches: Sequence[int], plan: Plan, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._rig = MeteredRig(rig)
        self._shape = shape
        self._plan = plan
        self._sleep = sleep
        self._depths = depths_of(shape)
        self._meter = CostMeter(self._rig, plan.repeats, self._rest)
        self._costs: Costs | None = None
        self._first = Variant(batches[0], shape.layers)
        self._fastest: dict[Variant, float] = {}  # once its clocks were up

    @property
    def identity(self) -> Identity:
        """On what it measures."""
        return self._rig.identity

    @property
    def is_open(self) -> bool:
        """Always."""
        return True

    @property
    def used(self) -> Used:
        """How long it used the GPU."""
        return self._rig.used

    def costs(self, quiet: Quiet) -> Costs:
        """Begin a cycle: measure the raw costs, with clocks that are up where nobody else uses the GPU."""
        self._rig.used = self._rig.used.begin()
        with self._rig.session():
            trips = self._meter.gate(quiet)
            if late(trips) <= LATE_SHARE * len(trips) and self._warm_up(self._first):
                trips = self._meter.gate(quiet)
            self._costs = self._meter.measure(self._first, trips, quiet)
        return self._costs

    def measure(self, batch: int, quiet: Quiet) -> BatchResult:
        """Measure one batch size in interleaved rounds.

        Where others use the GPU, before or after any of the rounds, spans mean nothing, and the split is modelled.
        Where the cycle is stopped, the rounds so far are dropped: the plan has none to spare.
        """
        deep = Variant(batch, self._shape.layers)
        contended = self._costs is not None and self._costs.is_contended
        rounds: list[Round] = []
        with self._rig.session():
            if not contended and self._plan.pauses is None:
                self._warm_up(deep)
            while len(rounds) < (self._plan.modelled_rounds if contended else self._plan.rounds):
                if self.used.cycle >= self._plan.stop:
                    return BatchResult(batch, {}, noise=f"stopped after {self.used.cycle:.3f} s of the GPU in a cycle")
                rounds.append(self._round(deep, len(rounds), quiet, contended=contended))
                contended = contended or late(self._meter.trips(CHECK_TRIPS, CHECK_LATE, quiet)) >= CHECK_LATE
        if contended:
            return model(batch, rounds, GRAPH, GRAPH_WITHOUT_KV, self._quiet_round_trip())
        return replace(summarise(batch, rounds, _estimate, self._depths), floor=self._floor(batch))

    def close(self) -> None:
        """Nothing: its memory stays until the process ends."""

    def _quiet_round_trip(self) -> float | None:
        """Return the quickest round trip, or the part of one that needs no GPU where it never was quiet."""
        if self._costs is None:
            return None
        quickest = self._costs.quickest_round_trip
        return self._costs.launch if quickest is None else quickest

    def _floor(self, batch: int) -> float | None:
        bandwidth = None if self._costs is None else self._costs.copy_bandwidth
        if bandwidth is None or batch > BOUND_BY_BYTES:
            return None
        return ELEMENT_BYTES * self._shape.moved_elements(batch) / bandwidth

    def _warm_up(self, variant: Variant) -> bool:
        """Replay until a row is as fast as the fastest: an idle GPU may start at a sixth of its clock.

        Return whether there was need to: not where the first row is as fast as after an earlier warm-up.
        """
        (least, most), before = self._plan.warm_up, self.used
        known, fastest, spent = self._fastest.get(variant), math.inf, 0.0
        while spent < most:
            (times,) = self._on_device([variant], with_kv=True)
            current = trimmed_mean(times)
            if known is not None and not spent and current <= (1 + WARMUP_TOLERANCE) * known:
                return False
            fastest, spent = min(fastest, current), self.used.total - before.total
            if spent >= least and current <= (1 + WARMUP_TOLERANCE) * fastest:
                break
        self._fastest[variant] = fastest  # of now: somebody may have lowered the clocks for good
        self._rig.used = before.warmer(spent)
        return True

    def _round(self, deep: Variant, number: int, quiet: Quiet, *, contended: bool) -> Round:
        """Run everything once, in random order; a round in which the kernel throttled us is void."""
        result = Round(shallow=None if contended or self._depths is None else Round())
        both = [(deep, result)]
        if result.shallow is not None:
            both.insert(0, (self._lead(deep), result.shallow))
        rows = [(name, both) for name in TO_MODEL]
        if not contended and number < self._plan.graph_rounds:
            rows += [(GRAPH_SYNC, both), *((GRAPH_ASYNC, [one]) for one in both)]
        random.shuffle(rows)
        if self._plan.pauses is not None:
            rows.sort(key=lambda row: row[0] != EAGER_SYNC)  # what launches goes first, see _on_device
        throttled = throttled_periods()
        for name, targets in rows:
            self._rest(0.0)
            with quiet, undisturbed():
                self._row(name, targets)
        return result if throttled_periods() == throttled else voided(result)

    def _row(self, name: str, targets: Sequence[tuple[Variant, Round]]) -> None:
        """Run one thing at each depth, one right after the other: so their difference is none of the host's mood."""
        variants = [variant for variant, _ in targets]
        if name in (GRAPH, GRAPH_WITHOUT_KV):
            for (_, into), times in zip(targets, self._on_device(variants, with_kv=name == GRAPH), strict=True):
                into.references[name] = [*times]
            return
        timed = {GRAPH_SYNC: self._rig.replayed, GRAPH_ASYNC: self._rig.pipelined}.get(name, self._rig.launched)
        if self._plan.pauses is not None and name != GRAPH_ASYNC:  # which has steps that do not count
            self._rig.launched(self._lead(variants[0]), 1)  # after a rest the host is cold
        for variant, into in targets:
            into.steps[name] = timed(variant, self._plan.steps)

    def _on_device(self, variants: Sequence[Variant], *, with_kv: bool) -> list[list[float]]:
        """Return device seconds of some replays of each.

        Behind small kernels, such as those of round trips, an H200 runs the same graph on the same clocks 4 to 5 %
        slower until it has launched a step: a gentle round begins with one, and where time is no matter so does a row.
        """
        lead, each = self._lead(variants[0]), self._plan.replays
        if self._plan.pauses is None:
            self._rig.launched(lead, 1)
        replays = [Replay(variant, with_kv) for variant in variants for _ in range(each)]
        times = self._rig.chain([Replay(lead), *replays])
        return [times[start : start + each] for start in range(0, len(times), each)]

    def _lead(self, variant: Variant) -> Variant:
        """Return the shortest step of its batch size."""
        return variant if self._depths is None else replace(variant, layers=self._depths.shallow)

    def _rest(self, least: float) -> None:
        low, high = self._plan.pauses or (0.0, 0.0)
        seconds = max(least, random.uniform(low, high))  # noqa: S311 - so as not to fall in step with a neighbour
        if seconds:
            self._sleep(seconds)


def _estimate(rounds: Sequence[Round]) -> Split:
    steps = kept(rounds, EAGER_SYNC)
    return split_gpu(
        wall=trimmed_mean([step.wall for step in steps]),
        span=trimmed_mean([step.span for step in steps if step.span is not None]),
        graph=reference(rounds, GRAPH),
        graph_without_kv=reference(rounds, GRAPH_WITHOUT_KV),
    )
