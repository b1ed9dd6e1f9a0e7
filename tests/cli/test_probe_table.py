"""The probe's table, and what it says in words."""

from dataclasses import replace

import click
import pytest

from solpi_exporter.cli.probe_table import BAR, _bar, table
from solpi_exporter.probe.result import (
    EAGER_SYNC,
    EXTRAPOLATED,
    GRAPH_ASYNC,
    GRAPH_SYNC,
    MEASURED,
    MODELLED,
    BatchResult,
    Costs,
    Cycle,
    Identity,
    ModeResult,
    SplitResult,
)
from solpi_exporter.probe.split import Split
from tests.fakes import batch_result

ONE = Identity("cuda:0", "GPU-1", "NVIDIA H200", "8b", 4, 512, "bfloat16", "2.13.0")
ON_CPU = Costs(wakeup=(60e-6, 110e-6))
ON_GPU = Costs((60e-6, 110e-6), (22e-6, 70e-6), 20e-6, 0.02, 9.9e-6, 19.5e-6, 1e-6, 4.08e12, 1.98e9)
SPLIT = SplitResult(
    MEASURED, Split(2e-3, compute=0.5e-3, memory=0.1e-3, scheduling=1.2e-3, sync=0.2e-3), {"control_ratio": 0.025}
)


def mode(token: float) -> ModeResult:
    return ModeResult(token, 1e-3, 1e-3, 0.0, (token,))


def with_graphs(*splits: SplitResult) -> BatchResult:
    modes = {EAGER_SYNC: mode(2e-3), GRAPH_SYNC: mode(0.8e-3), GRAPH_ASYNC: mode(0.7e-3)}
    return BatchResult(1, modes, splits)


def lines_of(*results: BatchResult, costs: Costs = ON_CPU, width: int = BAR) -> list[str]:
    return [click.unstyle(line) for line in table(Cycle(ONE, costs, results), width)]


def test_a_row_in_full() -> None:
    """Batch, token, bar, four shares, and what the graph takes less, also when it is read one step behind."""
    lines = lines_of(with_graphs(SPLIT), costs=ON_GPU)

    assert lines[0] == "NVIDIA H200 (cuda:0), 8b shape: 4 layers, context 512, bfloat16, torch 2.13.0"
    assert lines[3].split() == [
        "1", "2.000", "ms", "████████▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░", "25.0%", "5.0%", "60.0%", "10.0%", "-60%", "-65%",
    ]  # fmt: skip


def test_the_findings_in_words() -> None:
    """What is lost and how sure that is, what gives it back, what things cost, and under which conditions."""
    whole = SplitResult(EXTRAPOLATED, Split(20e-3, 8e-3, 1e-3, 10e-3, 1e-3), {})

    assert lines_of(with_graphs(SPLIT, whole), costs=ON_GPU)[5:] == [
        "At batch 1, 70% (± 5.0 points) of each token is lost to the host, the control layer; "
        "a CUDA graph would give back 60%, and 65% with the token read back one step behind.",
        "At every batch size the host takes longer to launch a step than the GPU to run it.",
        "Extrapolated to the 32 layers of a whole model: 20.0 ms a token, 55% of it lost.",
        "Costs: a launch 9.9 us, a graph's launch 19.5 us, a graph's node 1.0 us, a round trip 22 us (P99 70), "
        "a wake-up late by 60 us (P99 110), a copy 4.08 TB/s.",
        "Conditions: quiet.",
    ]


def test_a_modelled_row_says_so() -> None:
    """The walls of graphs that took turns with somebody else's work are not compared."""
    lines = lines_of(with_graphs(replace(SPLIT, basis=MODELLED)), costs=replace(ON_GPU, late_round_trips=0.9))

    assert lines[3].split()[-1] == "10.0%"
    assert lines[5].endswith("of each token is lost to the host, the control layer: modelled, since others keep the "
                             "GPU busy.")  # fmt: skip
    assert lines[-1] == "Conditions: GPU contended."


def test_the_crossing_is_told_where_it_was_met() -> None:
    """The host is ahead by 0.4 ms at batch 1, and behind at 8."""
    large = replace(with_graphs(replace(SPLIT, split=Split(3e-3, 2e-3, 0.4e-3, 0.4e-3, 0.2e-3))), batch=8)

    assert "Below batch 2 the host takes longer to launch a step than the GPU to run it." in lines_of(
        with_graphs(SPLIT), large, costs=ON_GPU
    )
    assert "At every batch size the host takes longer to launch a step than the GPU to run it." in lines_of(
        with_graphs(SPLIT), costs=ON_GPU
    )


def test_a_noisy_row_says_why() -> None:
    """And has no bar."""
    lines = lines_of(batch_result(1, "the GPU was shared"), batch_result(8))

    assert lines[3].split() == ["1", "noisy", "the", "GPU", "was", "shared"]
    assert lines[6].startswith("At batch 8, 40%")


def test_an_unknown_error_is_not_told_as_zero() -> None:
    """The sentence goes without it."""
    assert lines_of(batch_result(1))[5] == "At batch 1, 40% of each token is lost to the host, the control layer."


def test_a_narrow_terminal_gets_no_bar() -> None:
    """Rather than rows that wrap."""
    assert all(len(line) <= 80 for line in lines_of(with_graphs(SPLIT), width=0)[2:4])


def test_all_noisy() -> None:
    """It says what to do, and the verdict that explains it."""
    lines = lines_of(batch_result(1, "shared"), costs=replace(ON_GPU, late_round_trips=0.9))

    assert lines[5].endswith("Try again when it is quiet.")
    assert lines[-1] == "Conditions: GPU contended."


@pytest.mark.parametrize("sync", [0.0, 1e-5, 0.3e-3, 1e-3])
def test_bars_have_one_width(sync: float) -> None:
    """However the shares round."""
    split = Split(2e-3 + sync, 0.7e-3, 0.6e-3, 0.7e-3, sync)

    assert len(click.unstyle(_bar(split.phases, split.token, 32))) == 32
