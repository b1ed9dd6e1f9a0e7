"""From interleaved rounds to one result."""

from collections.abc import Sequence

import pytest

from solpi_exporter.probe.result import EAGER_SYNC, EXTRAPOLATED, GRAPH_ASYNC, GRAPH_SYNC, MEASURED, MODELLED
from solpi_exporter.probe.rounds import (
    CONTROL_RATIO,
    Round,
    Step,
    kept,
    model,
    reference,
    summarise,
    voided,
)
from solpi_exporter.probe.shape import Depths
from solpi_exporter.probe.split import Split, jackknife, split_gpu, trimmed_mean


def step(wall: float = 10.0, *, void: bool = False, cpu: float = 9.0, span: float = 9.0) -> Step:
    return Step(wall, cpu, enqueue=6.0, enqueue_cpu=5.0, span=span, void=void)


def round_of(*steps: Step, graph_sync: Step | None = None, graph: float | None = 5.0) -> Round:
    modes = {EAGER_SYNC: list(steps), GRAPH_SYNC: [graph_sync or step(6.0)]}
    return Round(modes, {"graph": [graph, graph], "without": [4.0, 4.0]})


def step_references() -> dict[str, list[float | None]]:
    return {"graph": [5.0, 5.0], "without": [4.0, 4.0]}


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

    errors = summarise(1, rounds, estimate).splits[0].errors

    expected = jackknife(rounds, lambda part: estimate(part).scheduling)
    assert errors["scheduling"] == expected
    assert errors["scheduling"] > 0
    assert errors["sync"] == 0.0


def test_what_two_phases_share_is_no_error_of_their_sum() -> None:
    """The device span is in both scheduling and sync, with opposite signs: control does not depend on it."""
    rounds = [round_of(step(span=span)) for span in (7.0, 8.0, 9.0)]

    errors = summarise(1, rounds, estimate).splits[0].errors

    assert errors["scheduling"] > 0
    assert errors["sync"] > 0
    assert errors[CONTROL_RATIO] == pytest.approx(0.0, abs=1e-12)


def test_errors_are_not_known_from_one_round() -> None:
    """Unknown is not zero."""
    assert summarise(1, [round_of(step(), step())], estimate).splits[0].errors == {}


def test_errors_are_not_known_where_one_round_holds_all_that_counts() -> None:
    """Without that round nothing is left to estimate from."""
    rounds = [round_of(step(), step(), step()), round_of(step(void=True), graph_sync=step(6.0))]

    result = summarise(1, rounds, estimate)

    assert result.splits[0].errors == {}


def test_a_bug_in_the_estimate_is_not_noise() -> None:
    """It is seen."""

    def broken(_: Sequence[Round]) -> Split:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        summarise(1, [round_of(step())], broken)


DEPTHS = Depths(layers=4, shallow=2, full=32)


def two_depths(deep: Round, shallow: Round) -> Round:
    return Round(deep.steps, deep.references, shallow)


def test_a_whole_model_is_told_from_two_depths() -> None:
    """Of 10 at four layers and 6 at two, each layer takes 2 and 2 are there once: 66 at 32, each phase likewise."""
    shallow = Round(
        {EAGER_SYNC: [step(6.0, span=5.0)], GRAPH_SYNC: [step(4.0)]}, {"graph": [3.0, 3.0], "without": [2.5, 2.5]}
    )
    rounds = [two_depths(round_of(step()), shallow) for _ in range(3)]

    result = summarise(1, rounds, estimate, DEPTHS)

    whole = result.splits[1]
    assert [one.basis for one in result.splits] == [MEASURED, EXTRAPOLATED]
    assert whole.split == Split(66.0, compute=25.0, memory=8.0, scheduling=32.0, sync=1.0)
    assert result.modes[EAGER_SYNC].full_depth == 66.0
    assert result.reclaimable_at_full_depth(GRAPH_SYNC) == pytest.approx(1 - 34 / 66)


def test_a_whole_model_that_contradicts_itself_is_left_out() -> None:
    """The split of the step as it is stands."""
    shallow = Round(
        {EAGER_SYNC: [step(9.9, span=2.0)], GRAPH_SYNC: [step(6.0)]}, {"graph": [4.9, 4.9], "without": [4.0, 4.0]}
    )

    result = summarise(1, [two_depths(round_of(step()), shallow)], estimate, DEPTHS)

    assert [one.basis for one in result.splits] == [MEASURED]


def test_one_depth_tells_nothing_of_a_whole_model() -> None:
    """Nor of what a graph would give back there."""
    result = summarise(1, [round_of(step())], estimate)

    assert len(result.splits) == 1
    assert result.reclaimable_at_full_depth(GRAPH_SYNC) is None


def test_the_head_is_that_of_launched_steps() -> None:
    """It is not known where nobody asked for it."""
    steps = [Step(10.0, 9.0, 6.0, 5.0, 9.0, void=False, head=head) for head in (1.0, 1.0, 5.0)]

    assert summarise(1, [round_of(*steps)], estimate).head == 1.0
    assert summarise(1, [round_of(step())], estimate).head is None


def test_a_busy_gpu_is_modelled() -> None:
    """The host's 6 as they are, the fast replays of 5 and 4 among slow ones, and the round trip of a quiet GPU."""
    rounds = [Round({EAGER_SYNC: [step(99.0)]}, {"graph": [5.0, 50.0], "without": [4.0, 40.0]}) for _ in range(3)]

    result = model(1, rounds, "graph", "without", round_trip=0.5)

    assert [one.basis for one in result.splits] == [MODELLED]
    assert result.split == Split(6.5, compute=4.0, memory=1.0, scheduling=1.0, sync=0.5)
    assert result.modes[EAGER_SYNC].enqueue == 6.0


def test_launches_that_hide_cost_nothing() -> None:
    """A host that is ahead of the GPU keeps it waiting for nothing but the last read-back."""
    rounds = [Round({EAGER_SYNC: [step()]}, {"graph": [50.0], "without": [40.0]})]

    result = model(1, rounds, "graph", "without", round_trip=0.5)

    assert result.split == Split(50.5, compute=40.0, memory=10.0, scheduling=0.0, sync=0.5)


def test_nothing_to_model_from_is_noise() -> None:
    """Without undisturbed steps, or without a replay."""
    void = [Round({EAGER_SYNC: [step(void=True)]}, {"graph": [5.0], "without": [4.0]})]
    bare = [Round({EAGER_SYNC: [step()]}, {"graph": [], "without": []})]

    assert model(1, void, "graph", "without", 0.5).noise == "most steps were disturbed, beside a busy GPU"
    assert model(1, bare, "graph", "without", 0.5).noise == "nothing was timed that counts"


def test_throttling_voids_both_depths() -> None:
    """And leaves the device's own times."""
    one = voided(two_depths(round_of(step()), round_of(step())))

    assert one.shallow is not None
    assert all(each.void for each in (*one.steps[EAGER_SYNC], *one.shallow.steps[EAGER_SYNC]))
    assert one.references == {"graph": [5.0, 5.0], "without": [4.0, 4.0]}


def test_a_late_step_that_the_next_ones_make_up_for_is_not_trimmed() -> None:
    """Read one step behind, the device goes on during a stall: means of rounds count, which it cannot beat."""
    rounds = [
        Round({EAGER_SYNC: [step()], GRAPH_ASYNC: [step(17.0), step(1.0), step(1.0), step(1.0)]}, step_references())
        for _ in range(3)
    ]

    assert summarise(1, rounds, estimate).modes[GRAPH_ASYNC].token == 5.0


def test_a_void_shallow_depth_tells_nothing_of_a_whole_model() -> None:
    """One step that was left of it would be taken fourteen times."""
    void = Round({EAGER_SYNC: [step(6.0, void=True)]}, {"graph": [3.0], "without": [2.5]})
    good = Round({EAGER_SYNC: [step(6.0, span=5.0)]}, {"graph": [3.0], "without": [2.5]})
    rounds = [two_depths(round_of(step()), shallow) for shallow in (good, void, void, void)]

    result = summarise(1, rounds, estimate, DEPTHS)

    assert [one.basis for one in result.splits] == [MEASURED]
    assert result.modes[EAGER_SYNC].full_depth is None


def test_without_a_round_trip_nothing_is_modelled() -> None:
    """Sync would be a guess."""
    rounds = [Round({EAGER_SYNC: [step()]}, step_references())]

    assert "no raw cost is known yet" in str(model(1, rounds, "graph", "without", None).noise)


def test_of_a_modelled_split_only_the_hosts_error_is_known() -> None:
    """A jackknife does not hold for the low quantile that stands for the device."""
    rounds = [Round({EAGER_SYNC: [step()]}, step_references()) for _ in range(3)]

    assert model(1, rounds, "graph", "without", 0.5).splits[0].errors.keys() == {"scheduling"}


def test_a_mode_need_not_be_in_every_round() -> None:
    """What the graph modes tell is told by the rounds that have them; the split needs none."""
    rounds = [round_of(step(), step()), round_of(step(), step())]
    del rounds[1].steps[GRAPH_SYNC]

    result = summarise(1, rounds, estimate)

    assert result.modes[GRAPH_SYNC].token == 6.0
    assert len(result.modes[GRAPH_SYNC].steps) == 1
    assert result.split == Split(10.0, 4.0, 1.0, 4.0, 1.0, 0.0)
