"""The probe's table."""

import click
import pytest

from solpi_exporter.cli.probe import BAR, _bar, _table
from solpi_exporter.probe.bench import EAGER_SYNC, GRAPH_SYNC, BatchResult, Identity, ModeResult
from solpi_exporter.probe.split import Split
from tests.fakes import batch_result

ONE = Identity("cuda:0", "GPU-1", "NVIDIA H200", "8b", 4, 512, "bfloat16", "2.13.0")


def mode(token: float) -> ModeResult:
    return ModeResult(token, 1e-3, 1e-3, 0.0, (token,))


def table(*results: BatchResult) -> list[str]:
    return [click.unstyle(line) for line in _table(ONE, results, BAR)]


def test_a_row_in_full() -> None:
    """Batch, token, bar, four shares, and what the graph takes less."""
    split = Split(2e-3, compute=0.5e-3, memory=0.1e-3, scheduling=1.2e-3, sync=0.2e-3)
    result = BatchResult(1, {EAGER_SYNC: mode(2e-3), GRAPH_SYNC: mode(0.8e-3)}, split, {"control_ratio": 0.025})

    lines = table(result)

    assert lines[0] == "NVIDIA H200 (cuda:0), 8b shape: 4 layers, context 512, bfloat16, torch 2.13.0"
    assert lines[3].split() == [
        "1", "2.000", "ms", "████████▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░", "25.0%", "5.0%", "60.0%", "10.0%", "-60%",
    ]  # fmt: skip
    assert lines[5] == (
        "At batch 1, 70% (± 5.0 points) of each token goes to the control layer; "
        "as a CUDA graph the same step takes 60% less."
    )


def test_a_noisy_row_says_why() -> None:
    """And has no bar."""
    lines = table(batch_result(1, "the GPU was shared"), batch_result(8))

    assert lines[3].split() == ["1", "noisy", "the", "GPU", "was", "shared"]
    assert lines[6].startswith("At batch 8, 40%")


def test_an_unknown_error_is_not_told_as_zero() -> None:
    """The sentence goes without it."""
    assert table(batch_result(1))[5] == "At batch 1, 40% of each token goes to the control layer."


def test_a_narrow_terminal_gets_no_bar() -> None:
    """Rather than rows that wrap."""
    assert all(len(click.unstyle(line)) <= 81 for line in list(_table(ONE, [batch_result(1)], 0))[2:4])


def test_all_noisy() -> None:
    """It says what to do."""
    assert table(batch_result(1, "shared"))[-1].endswith("Try again when it is quiet.")


@pytest.mark.parametrize("sync", [0.0, 1e-5, 0.3e-3, 1e-3])
def test_bars_have_one_width(sync: float) -> None:
    """However the shares round."""
    split = Split(2e-3 + sync, 0.7e-3, 0.6e-3, 0.7e-3, sync)

    assert len(click.unstyle(_bar(split.phases, split.token, 32))) == 32
