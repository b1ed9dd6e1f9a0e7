"""From interleaved rounds to one result."""

from collections.abc import Sequence

import pytest

from solpi_exporter.probe.bench import EAGER_SYNC, GRAPH_SYNC, Round, Step, kept, reference, summarise
from solpi_exporter.probe.split import NoisyRun, Split, split_gpu, trimmed_mean


def step(wall: float = 10.0, *, void: bool = False) -> Step:
    return Step(wall, enqueue=6.0, enqueue_cpu=5.0, span=9.0, void=void)


def round_of(steps: list[Step], graph: float = 5.0) -> Round:
    return Round({EAGER_SYNC: steps, GRAPH_SYNC: [step(6.0)]}, {"graph": [graph, graph], "without": [4.0, 4.0]})


def split(rounds: Sequence[Round]) -> Split:
    steps = kept(rounds, EAGER_SYNC)
    wall = trimmed_mean([one.wall for one in steps])
    return split_gpu(wall, 9.0, reference(rounds, "graph"), reference(rounds, "without"))


def test_a_result_holds_modes_split_and_errors() -> None:
    """The eager mode's token is the split's token, so that the phases of a batch sum to a published series."""
    result = summarise(8, [round_of([step(), step()]), round_of([step(), step()])], split)

    assert result.split == Split(10.0, 4.0, 1.0, 4.0, 1.0, 0.0)
    assert result.modes[EAGER_SYNC].token == result.split.token
    assert result.modes[EAGER_SYNC].off_cpu == 1.0
    assert result.errors == {"compute": 0.0, "memory": 0.0, "scheduling": 0.0, "sync": 0.0}


def test_what_a_graph_gives_back() -> None:
    """1 - W of the graph / W launched; nothing where no graph was run."""
    result = summarise(1, [round_of([step()]), round_of([step()])], split)

    assert result.reclaimable(GRAPH_SYNC) == pytest.approx(0.4)
    assert result.reclaimable("graph_async") is None


def test_void_steps_do_not_count() -> None:
    """Neither in the token nor in the histogram's steps."""
    result = summarise(1, [round_of([step(), step(99.0, void=True)]), round_of([step(), step()])], split)

    assert result.modes[EAGER_SYNC].steps == (10.0, 10.0, 10.0)
    assert result.modes[EAGER_SYNC].token == 10.0


def test_mostly_void_steps_are_noise() -> None:
    """More than half disturbed: the reason is told, no split is made, the raw costs stay."""
    result = summarise(1, [round_of([step(void=True), step(void=True), step()])], split)

    assert result.split is None
    assert result.noise is not None
    assert "only 33% of the steps ran undisturbed" in result.noise
    assert result.modes[EAGER_SYNC].enqueue == 6.0


def test_contradicting_times_are_noise() -> None:
    """A graph slower than the launched step."""
    result = summarise(1, [round_of([step()], graph=9.9), round_of([step()], graph=9.9)], split)

    assert result.split is None
    assert "the GPU was shared" in str(result.noise)


def test_a_reference_that_was_never_undisturbed_is_noise() -> None:
    """Without it there is nothing to subtract."""
    rounds = [Round({EAGER_SYNC: [step()]}, {"graph": [], "without": []})]

    assert "the reference graph was never taken" in str(summarise(1, rounds, split).noise)


def test_one_bad_round_does_not_spoil_the_errors() -> None:
    """A single round that contradicts itself is left out of the standard errors."""
    rounds = [round_of([step(), step()], graph=graph) for graph in (5.0, 5.0, 5.0, 5.0, 9.9)]

    result = summarise(1, rounds, split)

    assert result.split is not None
    assert result.errors["scheduling"] == 0.0


def test_errors_of_the_split_propagate() -> None:
    """What is no noise is a bug and is not swallowed."""

    def broken(_: Sequence[Round]) -> Split:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        summarise(1, [round_of([step()])], broken)
    assert issubclass(NoisyRun, Exception)
