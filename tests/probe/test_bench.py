"""From interleaved rounds to one result."""

from collections.abc import Sequence

import pytest

from solpi_exporter.probe.bench import (
    CONTROL_RATIO,
    EAGER_SYNC,
    GRAPH_SYNC,
    Round,
    Step,
    kept,
    reference,
    summarise,
)
from solpi_exporter.probe.split import Split, jackknife, split_gpu, trimmed_mean


def step(wall: float = 10.0, *, void: bool = False, cpu: float = 9.0, span: float = 9.0) -> Step:
    return Step(wall, cpu, enqueue=6.0, enqueue_cpu=5.0, span=span, void=void)


def round_of(*steps: Step, graph_sync: Step | None = None, graph: float | None = 5.0) -> Round:
    modes = {EAGER_SYNC: list(steps), GRAPH_SYNC: [graph_sync or step(6.0)]}
    return Round(modes, {"graph": [graph, graph], "without": [4.0, 4.0]})


def estimate(rounds: Sequence[Round]) -> Split:
    steps = kept(rounds, EAGER_SYNC)
    wall = trimmed_mean([one.wall for one in steps])
    span = trimmed_mean([one.span for one in steps if one.span is not None])
    return split_gpu(wall, span, reference(rounds, "graph"), reference(rounds, "without"))


def test_a_result_holds_modes_and_split() -> None:
    """The eager mode's token is the split's token, so that the phases of a batch sum to a published series."""
    result = summarise(8, [round_of(step(), step()), round_of(step(), step())], estimate)

    assert result.split == Split(10.0, 4.0, 1.0, 4.0, 1.0, 0.0)
    assert result.modes[EAGER_SYNC].token == result.split.token


def test_what_a_graph_gives_back() -> None:
    """1 - W of the graph / W launched; nothing where no graph was run."""
    result = summarise(1, [round_of(step()), round_of(step())], estimate)

    assert result.reclaimable(GRAPH_SYNC) == pytest.approx(0.4)
    assert result.reclaimable("graph_async") is None


def test_void_steps_do_not_count() -> None:
    """Neither in the token nor in the histogram's steps."""
    result = summarise(1, [round_of(step(), step(99.0, void=True)), round_of(step(), step())], estimate)

    assert result.modes[EAGER_SYNC].steps == (10.0, 10.0, 10.0)
    assert result.modes[EAGER_SYNC].token == 10.0


def test_mostly_void_steps_are_noise() -> None:
    """More than half disturbed: the reason is told, no split is made, and the mode's figures are not known either."""
    result = summarise(1, [round_of(step(void=True), step(void=True), step())], estimate)

    assert result.split is None
    assert "most steps were disturbed" in str(result.noise)
    assert EAGER_SYNC not in result.modes


def test_a_mode_of_void_steps_is_left_out() -> None:
    """A graph that was disturbed all the time gives nothing back and takes nothing; the split stands without it."""
    rounds = [round_of(step(), graph_sync=step(50.0, void=True)) for _ in range(3)]

    result = summarise(1, rounds, estimate)

    assert result.split is not None
    assert result.modes.keys() == {EAGER_SYNC}
    assert result.reclaimable(GRAPH_SYNC) is None


def test_off_cpu_time_is_the_whole_steps_and_not_trimmed() -> None:
    """Of ten steps two are descheduled for 40 ms while the token is awaited: 8 ms on the mean."""
    steps = [step(50.0, cpu=10.0), step(50.0, cpu=10.0), *(step(10.0, cpu=10.0) for _ in range(8))]

    result = summarise(1, [round_of(*steps), round_of(*steps)], estimate)

    assert result.modes[EAGER_SYNC].off_cpu == pytest.approx(8.0)


def test_contradicting_times_are_noise() -> None:
    """A graph slower than the launched step."""
    result = summarise(1, [round_of(step(), graph=9.9), round_of(step(), graph=9.9)], estimate)

    assert result.split is None
    assert "the GPU was shared" in str(result.noise)
    assert result.modes[EAGER_SYNC].enqueue == 6.0


def test_a_reference_that_was_mostly_disturbed_is_noise() -> None:
    """Without it there is nothing to subtract."""
    rounds = [round_of(step(), graph=None), round_of(step(), graph=None), round_of(step())]

    assert "most of the reference graph was disturbed" in str(summarise(1, rounds, estimate).noise)


def test_errors_are_those_of_the_estimate() -> None:
    """G of 4, 5 and 6 in three rounds, of which the trimmed mean takes the lower: known, and not zero."""
    rounds = [round_of(step(), step(), graph=graph) for graph in (4.0, 5.0, 6.0)]

    errors = summarise(1, rounds, estimate).errors

    expected = jackknife(rounds, lambda part: estimate(part).scheduling)
    assert errors["scheduling"] == expected
    assert errors["scheduling"] > 0
    assert errors["sync"] == 0.0


def test_what_two_phases_share_is_no_error_of_their_sum() -> None:
    """The device span is in both scheduling and sync, with opposite signs: control does not depend on it."""
    rounds = [round_of(step(span=span)) for span in (7.0, 8.0, 9.0)]

    errors = summarise(1, rounds, estimate).errors

    assert errors["scheduling"] > 0
    assert errors["sync"] > 0
    assert errors[CONTROL_RATIO] == pytest.approx(0.0, abs=1e-12)


def test_errors_are_not_known_from_one_round() -> None:
    """Unknown is not zero."""
    assert summarise(1, [round_of(step(), step())], estimate).errors == {}


def test_errors_are_not_known_where_one_round_holds_all_that_counts() -> None:
    """Without that round nothing is left to estimate from."""
    rounds = [round_of(step(), step(), step()), round_of(step(void=True), graph_sync=step(6.0))]

    result = summarise(1, rounds, estimate)

    assert result.split is not None
    assert result.errors == {}


def test_a_bug_in_the_estimate_is_not_noise() -> None:
    """It is seen."""

    def broken(_: Sequence[Round]) -> Split:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        summarise(1, [round_of(step())], broken)
