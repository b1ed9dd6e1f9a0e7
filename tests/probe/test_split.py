"""The arithmetic of the split."""

import math
import random
import statistics

import pytest

from solpi_exporter.probe.split import (
    PHASES,
    NoisyRun,
    Split,
    jackknife,
    settle,
    split_cpu,
    split_gpu,
    trimmed_mean,
)


def test_gpu_phases_are_the_differences() -> None:
    """sync = W - E, scheduling = E - G, memory = G - G0, compute = G0."""
    assert split_gpu(10.0, 9.0, 5.0, 4.0) == Split(10.0, compute=4.0, memory=1.0, scheduling=4.0, sync=1.0, residue=0.0)


def test_cpu_phases_are_the_differences() -> None:
    """sync = W - F, scheduling = T, memory = F - A, compute = A - T."""
    assert split_cpu(10.0, 9.0, 6.0, 2.0) == Split(10.0, compute=4.0, memory=3.0, scheduling=2.0, sync=1.0, residue=0.0)


@pytest.mark.parametrize("seed", range(200))
def test_phases_always_sum_to_the_token(seed: int) -> None:
    """Whatever the four aggregates are, a split that is made loses nothing and has no negative phase."""
    dice = random.Random(seed)
    wall, span, graph, without_kv = (dice.uniform(0.9, 1.1) ** 3 for _ in range(4))
    try:
        split = settle(split_gpu(wall, span, graph, without_kv))
    except NoisyRun:
        return

    assert math.isclose(sum(split.phases.values()), split.token, rel_tol=1e-12)
    assert all(seconds >= 0 for seconds in split.phases.values())


def test_a_negative_phase_is_taken_from_its_partner_and_published() -> None:
    """A graph without KV that came out slower leaves memory at 0, compute at G, and its size as residue."""
    split = settle(split_gpu(10.0, 9.0, 5.0, 5.2))

    assert (split.memory, split.compute) == (0.0, 5.0)
    assert split.residue == pytest.approx(0.2)
    assert sum(split.phases.values()) == pytest.approx(10.0)


def test_a_graph_a_little_slower_than_the_step_is_clamped() -> None:
    """Within 5 %, scheduling is 0 and sync takes the difference: the sum stays."""
    split = settle(split_gpu(10.0, 9.0, 9.3, 8.0))

    assert split.scheduling == 0.0
    assert split.sync == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("wall", "span", "graph", "without_kv", "why"),
    [
        (10.0, 5.0, 5.3, 4.0, "the GPU was shared"),
        (10.0, 9.0, 5.0, 5.6, "6.0% of the token came out negative"),
        (8.0, 9.0, 8.5, 8.0, "came out negative"),
    ],
    ids=["graph above 1.05 E", "residue above 5 % of W", "partner cannot take it"],
)
def test_contradictions_are_noise(wall: float, span: float, graph: float, without_kv: float, why: str) -> None:
    """No split is made of times that contradict each other."""
    with pytest.raises(NoisyRun, match=why):
        settle(split_gpu(wall, span, graph, without_kv))


def test_control_is_scheduling_and_sync() -> None:
    """Its share is of the whole token."""
    assert Split(10.0, compute=4.0, memory=1.0, scheduling=4.0, sync=1.0).control_ratio == 0.5


def test_phases_have_their_names_in_order() -> None:
    """The order in which they are drawn."""
    assert tuple(Split(1.0, 0.1, 0.2, 0.3, 0.4).phases) == PHASES


def test_trimmed_mean_keeps_the_quiet_steps() -> None:
    """Of ten values the lowest and the four highest are left out."""
    assert trimmed_mean([0, 1, 2, 3, 4, 5, 100, 200, 300, 400]) == 3.0


@pytest.mark.parametrize("values", [[7.0], [7.0, 7.0]])
def test_trimmed_mean_of_few_values(values: list[float]) -> None:
    """One value is always kept."""
    assert trimmed_mean(values) == 7.0


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    """For the plain mean it is exactly the textbook's s / sqrt(n)."""
    values = [4.0, 6.0, 5.0, 9.0]

    error = jackknife(values, lambda part: sum(part) / len(part))

    assert error == pytest.approx(statistics.stdev(values) / 2)


def test_one_item_has_no_standard_error() -> None:
    """It is not known, rather than zero."""
    assert jackknife([4.0], sum) is None
