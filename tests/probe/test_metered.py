"""What the probe uses of a GPU is counted, whichever call it is."""

import pytest

from solpi_exporter.probe.metered import MeteredRig
from solpi_exporter.probe.plan import Used
from solpi_exporter.probe.rig import Replay, Rig, Variant
from tests.probe.fake_rig import FakeRig

DEEP, SHALLOW = Variant(1, 4), Variant(1, 1)


def call_everything(rig: Rig) -> None:
    rig.chain([Replay(DEEP), Replay(DEEP), Replay(SHALLOW)])
    rig.chain([Replay(SHALLOW), Replay(DEEP, with_kv=False)])
    for timed in (rig.launched, rig.replayed, rig.pipelined):
        timed(DEEP, 3)
    rig.round_trip()
    rig.launch(50)
    rig.graph_launch(DEEP)
    rig.nodes(50)
    rig.copy()
    rig.clock()


def test_every_call_counts_what_it_ran() -> None:
    """A launched step as what it takes as a graph; the copies of tokens are left out."""
    rig = FakeRig()
    metered = MeteredRig(rig)

    call_everything(metered)

    assert metered.used.total == pytest.approx(sum(seconds for _, seconds in rig.calls))
    assert metered.used.cycle == metered.used.total


def test_a_step_that_was_never_measured_is_measured_once() -> None:
    """Before it is launched, so that it can be counted."""
    rig = FakeRig()
    metered = MeteredRig(rig)

    metered.launched(DEEP, 1)
    metered.launched(DEEP, 1)

    assert rig.names() == ["chain", "launched", "launched"]


def test_a_slower_gpu_counts_for_more() -> None:
    """What is counted is what was measured last."""
    rig = FakeRig()
    metered = MeteredRig(rig)
    metered.chain([Replay(DEEP), Replay(DEEP)])
    rig.slow = 2.0
    metered.chain([Replay(DEEP), Replay(DEEP)])
    metered.used = Used()

    metered.launched(DEEP, 1)

    assert metered.used.total == rig.seconds(DEEP)
