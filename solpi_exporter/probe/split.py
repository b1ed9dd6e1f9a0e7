"""The split of a token: pure arithmetic from the times that were taken to the four phases.

The phases are differences of four aggregates, so they sum to the token's wall time whatever the estimator is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

PHASES = ("compute", "memory", "scheduling", "sync")
MAX_RESIDUE = 0.05  # of the token; more than this in the wrong direction is not a measurement
MAX_EXCESS = 0.05  # of the device span; a graph that takes so much longer than the launched step met contention


class NoisyRun(Exception):
    """The times contradict each other, or too few of them count: counted, and no split is made of them."""


@dataclass(frozen=True, slots=True)
class Split:
    """One token in seconds; the phases sum to `token`. `residue` is what settling moved between them."""

    token: float
    compute: float
    memory: float
    scheduling: float
    sync: float
    residue: float = 0.0

    @property
    def phases(self) -> dict[str, float]:
        """The four phases by name."""
        return {phase: getattr(self, phase) for phase in PHASES}

    @property
    def control_ratio(self) -> float:
        """The share of the token that the control layer takes: scheduling and sync."""
        return (self.scheduling + self.sync) / self.token


def trimmed_mean(values: Sequence[float], low: float = 0.1, high: float = 0.6) -> float:
    """Return the mean of the values between two quantiles: the quiet ones, without the luckiest few."""
    ordered = sorted(values)
    first = int(low * len(ordered))
    kept = ordered[first : max(int(high * len(ordered)), first + 1)]
    return sum(kept) / len(kept)


def low_quantile(values: Sequence[float], share: float = 0.1) -> float:
    """Return the value that a tenth are below; raise NoisyRun where there is none."""
    if not values:
        raise NoisyRun("nothing was timed that counts")
    return sorted(values)[int(share * len(values))]


def split_gpu(wall: float, span: float, graph: float, graph_without_kv: float) -> Split:
    """Split a token on a GPU, unsettled: W wall, E device span, G the step as a graph, G0 with one KV block.

    sync = W - E, scheduling = E - G, memory = G - G0, compute = G0.
    """
    return Split(
        token=wall,
        compute=graph_without_kv,
        memory=graph - graph_without_kv,
        scheduling=span - graph,
        sync=wall - span,
    )


def split_modelled(enqueue: float, graph: float, graph_without_kv: float, round_trip: float) -> Split:
    """Split the token that a step would be on a GPU of its own, unsettled: Q host enqueue, G, G0, r round trip.

    W = max(Q, G) + r: launches hide behind execution. scheduling = max(0, Q - G), sync = r.
    """
    scheduling = max(0.0, enqueue - graph)
    return Split(
        token=graph + scheduling + round_trip,
        compute=graph_without_kv,
        memory=graph - graph_without_kv,
        scheduling=scheduling,
        sync=round_trip,
    )


def split_cpu(wall: float, step: float, step_without_kv: float, dispatch: float) -> Split:
    """Split a token on a CPU, where the host computes, unsettled: F the step, A with one KV block, T calls on nothing.

    sync = W - F (the read-back), scheduling = T, memory = F - A, compute = A - T.
    """
    return Split(
        token=wall,
        compute=step_without_kv - dispatch,
        memory=step - step_without_kv,
        scheduling=dispatch,
        sync=wall - step,
    )


def settle(raw: Split) -> Split:
    """Set negative phases to zero and take them from their partner; raise NoisyRun where that is no measurement."""
    span = raw.token - raw.sync
    if raw.scheduling < -MAX_EXCESS * span:
        excess = 1 - raw.scheduling / span
        raise NoisyRun(f"the graph took {excess:.2f} of the launched step's device time: the GPU was shared")
    compute, memory, moved = _clamp(raw.compute, raw.memory)
    scheduling, sync, moved_too = _clamp(raw.scheduling, raw.sync)
    residue = moved + moved_too
    if residue > MAX_RESIDUE * raw.token or min(compute, memory, scheduling, sync) < 0:
        raise NoisyRun(f"{residue / raw.token:.1%} of the token came out negative")
    return Split(raw.token, compute, memory, scheduling, sync, residue)


def _clamp(one: float, other: float) -> tuple[float, float, float]:
    """Return the pair with the negative one at zero and their sum kept, and how much that moved."""
    if one < 0:
        return 0.0, other + one, -one
    if other < 0:
        return one + other, 0.0, -other
    return one, other, 0.0


def jackknife(items: Sequence[Item], estimate: Callable[[Sequence[Item]], float]) -> float | None:
    """Return the standard error of an estimate from estimates with one item left out; None for fewer than two items.

    The estimator stays what it is, trimming included. Source: B. Efron, The Jackknife, SIAM 1982, chapter 3.
    """
    count = len(items)
    if count < 2:
        return None
    estimates = [estimate([*items[:left_out], *items[left_out + 1 :]]) for left_out in range(count)]
    mean = sum(estimates) / count
    return float(((count - 1) / count * sum((value - mean) ** 2 for value in estimates)) ** 0.5)
