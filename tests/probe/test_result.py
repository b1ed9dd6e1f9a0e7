"""What a cycle says beyond single batch sizes: its conditions, and where the host stops being the bottleneck."""

import math
from dataclasses import replace

import pytest

from solpi_exporter.probe.result import (
    EAGER_SYNC,
    MEASURED,
    BatchResult,
    Costs,
    ModeResult,
    SplitResult,
    crossing_batch,
    verdict,
)
from solpi_exporter.probe.split import Split
from tests.fakes import batch_result

QUIET = Costs(wakeup=(60e-6, 110e-6), late_round_trips=0.02)


def measured(batch: int, enqueue: float, graph: float) -> BatchResult:
    split = Split(10.0, compute=graph - 0.5, memory=0.5, scheduling=9.0 - graph, sync=1.0)
    mode = ModeResult(10.0, enqueue, enqueue, 0.0, (10.0,))
    return BatchResult(batch, {EAGER_SYNC: mode}, (SplitResult(MEASURED, split, {}),))


def off_cpu(share: float) -> BatchResult:
    one = batch_result(1)
    mode = one.modes[EAGER_SYNC]
    return replace(one, modes={EAGER_SYNC: replace(mode, off_cpu=share * mode.token)})


@pytest.mark.parametrize(
    ("late", "lost", "name"),
    [(0.02, 0.08, "quiet"), (0.02, 0.12, "host starved"), (0.9, 0.0, "GPU contended"), (0.06, 0.6, "both")],
)
def test_four_verdicts(late: float, lost: float, name: str) -> None:
    """Late round trips speak of the GPU, time off the CPU of the host."""
    assert verdict(replace(QUIET, late_round_trips=late), [off_cpu(lost)]).name == name


def test_what_is_not_known_has_no_verdict() -> None:
    """A CPU has no round trips; without a launched step nobody knows of the host."""
    cpu, nothing = verdict(Costs((60e-6, 110e-6)), [off_cpu(0.6)]), verdict(QUIET, [])

    assert (cpu.gpu_contended, cpu.host_starved, cpu.name) == (None, True, None)
    assert (nothing.gpu_contended, nothing.host_starved, nothing.name) == (False, None, None)


def test_the_crossing_lies_between_two_batch_sizes() -> None:
    """The host is 2 ahead at 8 and 2 behind at 32: at 16 both take as long."""
    results = [measured(32, 4.0, 6.0), measured(8, 4.0, 2.0), measured(1, 4.0, 1.0)]

    assert crossing_batch(results) == pytest.approx(16.0)


def test_a_crossing_beyond_what_was_measured() -> None:
    """Infinite where the host is the bottleneck throughout, not known where it never is, or nothing has a split."""
    assert crossing_batch([measured(1, 4.0, 1.0), batch_result(8, "noise"), measured(64, 4.0, 3.0)]) == math.inf
    assert crossing_batch([measured(1, 4.0, 5.0), measured(64, 4.0, 9.0)]) is None
    assert crossing_batch([batch_result(8, "noise")]) is None
