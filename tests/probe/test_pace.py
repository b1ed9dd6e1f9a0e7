"""When the next cycle is due."""

from solpi_exporter.probe.guard import STARTING
from solpi_exporter.probe.pace import Pace
from solpi_exporter.probe.plan import Used


def test_hosts_that_start_together_do_not_probe_together() -> None:
    """The second cycle comes at a random instant of the interval; after that the interval is kept."""
    phases = set()
    for _ in range(20):
        pace = Pace(300.0)
        pace.measured(None)
        phases.add(pace.interval)
        pace.measured(None)
        assert pace.interval == 300.0

    assert len(phases) == 20
    assert all(30.0 <= phase <= 300.0 for phase in phases)


def test_a_dear_cycle_makes_the_next_wait() -> None:
    """So that the GPU is never used for more than 0.02 % of the time, however slow it is."""
    pace = Pace(300.0)
    pace.measured(None)

    pace.measured(Used(total=9.0, cycle=0.12))
    dear = pace.interval
    pace.measured(Used(total=9.0, cycle=0.05))

    assert (dear, pace.interval) == (600.0, 300.0)


def test_a_cycle_that_was_left_out_is_tried_again_soon() -> None:
    """But not sooner than cycles come anyway."""
    often, seldom = Pace(5.0), Pace(300.0)

    often.skipped("memory")
    seldom.skipped("memory")

    assert (often.interval, seldom.interval) == (5.0, 15.0)


def test_a_cycle_that_fails_is_not_tried_again_sooner_than_another() -> None:
    """Though one was left out before it: opening CUDA each second would be no probe but a plague."""
    pace = Pace(300.0)
    pace.skipped(STARTING)

    pace.begun()

    assert pace.interval == 300.0


def test_the_first_look_at_the_gpu_is_waited_for() -> None:
    """Which takes a second, not fifteen."""
    pace = Pace(300.0)

    pace.skipped(STARTING)

    assert pace.interval == 1.0
