"""In what condition the board shows a GPU to be, for the probe."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from solpi_exporter.board import Board
from solpi_exporter.gpu import fields
from solpi_exporter.gpu.reading import GpuProcess, GpuReading, GpuState
from solpi_exporter.gpu.recording import load
from solpi_exporter.gpu.replay import ReplayDriver
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.metric import Metric
from solpi_exporter.neighbours import NOISE, Neighbours
from solpi_exporter.placement import Placer
from solpi_exporter.probe.guard import Conditions, Skip, skip
from solpi_exporter.source import SourceError
from tests.fakes import RECORDINGS, FakeClock

OWN = 4242
UUID = "GPU-0"
GB = 1e9

Rows = Mapping[tuple[Metric, str], float]
Processes = Mapping[int, float | None]


def gpu(
    processes: Processes | None = None,
    *,
    used: float | None = None,
    index: int = 0,
    uuid: str = UUID,
    instance: str = "",
    state: GpuState = GpuState.OK,
    rows: Rows | None = None,
) -> GpuReading:
    """Return a reading; a row's key is its metric and its further label, "" for none."""
    listed = None if processes is None else tuple(GpuProcess(pid, memory) for pid, memory in processes.items())
    told = dict(rows or {}) | ({} if used is None else {(fields.MEMORY_USED, ""): used})
    samples = tuple(
        metric.sample(value, str(index), uuid, instance, *filter(None, [further]))
        for (metric, further), value in told.items()
    )
    return GpuReading(index, uuid, state, instance=instance, rows=samples, processes=listed)


class Host:
    """A board on which GPUs are polled, with what watches it."""

    def __init__(self, *gpus: GpuReading, mps: bool | None = None) -> None:
        self.clock = FakeClock()
        self.board = Board()
        self.board.add("gpu", 10.0)
        self.mps = mps
        self.asked = 0
        self.neighbours = Neighbours(self.clock, self.look_for_mps)
        self.placer = Placer([], OWN, lambda _: ())  # no lineage is ever read
        if gpus:
            self.poll(*gpus, after=0.0)

    def look_for_mps(self) -> bool | None:
        self.asked += 1
        return self.mps

    def poll(self, *gpus: GpuReading, after: float = 5.0) -> "Host":
        self.clock.now += after
        self.board.succeed("gpu", gpus, self.clock.now, 0.0)
        self.neighbours.observe(self.board.snapshot(), self.placer.place(self.board.snapshot()).own)
        return self

    def fail(self, after: float = 5.0) -> "Host":
        self.clock.now += after
        self.board.fail("gpu", SourceError("the driver does not answer"), self.clock.now)
        self.neighbours.observe(self.board.snapshot(), {OWN})
        return self

    def conditions(self, uuid: str = UUID) -> Conditions:
        return self.neighbours.conditions(uuid)

    def still(self, uuid: str = UUID) -> float | None:
        return self.conditions(uuid).still


EVERYTHING: Rows = {
    (fields.MEMORY_TOTAL, ""): 150 * GB,
    (fields.MEMORY_FREE, ""): 10 * GB,
    (fields.COMPUTE_MODE, ""): 3.0,
    (fields.MIG_MODE, "current"): 0.0,
    (fields.MIG_MODE, "pending"): 1.0,
    (fields.RECOVERY_ACTION, ""): 2.0,
    (fields.ROW_REMAP_PENDING, ""): 1.0,
    (fields.CLOCKS_EVENT, "sw_power_cap"): 1.0,
    (fields.CLOCKS_EVENT, "gpu_idle"): 0.0,
    (fields.POWER, ""): 700.0,
}


def test_what_the_gpu_tells_becomes_its_conditions() -> None:
    """Row by row; of the reasons those that are active."""
    assert Host(gpu(rows=EVERYTHING), mps=True).conditions() == Conditions(
        free=10 * GB,
        total=150 * GB,
        compute_mode=3,
        mps=True,
        mig_changing=True,
        recovery_action=2,
        row_remap_pending=True,
        clock_reasons=frozenset({"sw_power_cap"}),
    )


def test_what_the_gpu_does_not_tell_is_not_known() -> None:
    """No rows are no zeros, and one half of the MIG mode says nothing of a change."""
    assert Host(gpu()).conditions() == Conditions()
    assert Host(gpu(rows={(fields.MIG_MODE, "current"): 1.0})).conditions() == Conditions()


def test_a_mig_mode_that_stays_is_no_change() -> None:
    """Whether it is on or off."""
    on: Rows = {(fields.MIG_MODE, "current"): 1.0, (fields.MIG_MODE, "pending"): 1.0}

    assert Host(gpu(rows=on)).conditions().mig_changing is False


def test_clocks_that_nothing_holds_down_are_known() -> None:
    """All reasons at 0 are an empty set, not an unknown one."""
    assert Host(gpu(rows={(fields.CLOCKS_EVENT, "sw_power_cap"): 0.0})).conditions().clock_reasons == frozenset()


# Which GPU.


def test_each_gpu_has_its_own_conditions() -> None:
    """By UUID, whatever their order."""
    host = Host(
        gpu({9: GB}, uuid="GPU-a", index=0, rows={(fields.MEMORY_FREE, ""): 1.0}),
        gpu({8: GB}, uuid="GPU-b", index=1, rows={(fields.MEMORY_FREE, ""): 2.0}),
    )
    host.poll(
        gpu({9: GB}, uuid="GPU-a", index=0, rows={(fields.MEMORY_FREE, ""): 1.0}),
        gpu({8: 2 * GB}, uuid="GPU-b", index=1, rows={(fields.MEMORY_FREE, ""): 2.0}),
    )

    assert (host.conditions("GPU-a").free, host.still("GPU-a")) == (1.0, None)
    assert (host.conditions("GPU-b").free, host.still("GPU-b")) == (2.0, 0.0)


@pytest.mark.parametrize("uuid", ["", "GPU-of-torch"])
def test_an_only_gpu_needs_no_name(uuid: str) -> None:
    """Where torch tells no UUID, or another; its MIG instances are not counted."""
    whole = gpu(rows={(fields.MEMORY_FREE, ""): 1.0})

    assert Host(whole).conditions(uuid).free == 1.0
    assert Host(whole, gpu(uuid="MIG-0", instance="7")).conditions(uuid).free == 1.0


@pytest.mark.parametrize("uuid", ["", "GPU-of-torch"])
@pytest.mark.parametrize("state", [GpuState.OK, GpuState.LOST])
def test_of_several_gpus_none_is_guessed(uuid: str, state: GpuState) -> None:
    """Also where all but one are lost: it may be one of those. Whether MPS runs is the host's, and known."""
    rows: Rows = {(fields.MEMORY_FREE, ""): 1.0}
    host = Host(gpu(rows=rows), gpu(uuid="GPU-b", index=1, rows=rows, state=state), mps=True)

    assert host.conditions(uuid) == Conditions(mps=True)


def test_a_gpu_that_is_lost_is_told_as_such() -> None:
    """It is not taken for the other one, which alone is left."""
    lost = gpu(state=GpuState.LOST)
    other = gpu(uuid="GPU-b", index=1, rows=EVERYTHING)

    assert Host(lost, other).conditions() == Conditions("lost")
    assert Host(lost).conditions("") == Conditions("lost")


def test_before_the_bench_is_made_the_index_tells_the_gpu() -> None:
    """On a host with several GPUs, where no UUID is known yet."""
    host = Host(gpu(state=GpuState.LOST), gpu(uuid="GPU-b", index=1))

    assert host.neighbours.conditions("", 0).state == "lost"
    assert host.neighbours.conditions("", 1).state is None
    assert host.neighbours.conditions("") == Conditions()


def test_before_the_first_poll_nothing_is_known() -> None:
    """As while the GPU half is switched off."""
    assert Host().conditions() == Host().conditions("") == Conditions()


def test_a_failed_poll_leaves_nothing_known_but_that() -> None:
    """What the board has withdrawn is withdrawn here; a driver that hangs must not be met by the probe as well."""
    assert Host(gpu(rows=EVERYTHING)).fail().conditions() == Conditions("not readable")


def test_gpus_that_were_never_polled_are_waited_for() -> None:
    """The probe starts beside them; a board without them is that of a host where they are switched off."""
    host, board = Host(), Board()
    board.add("gpu", 1.0)
    host.neighbours.observe(board.snapshot(), {1})

    assert host.conditions() == Conditions("not read yet")


def test_a_mig_instance_has_its_own_memory_and_its_gpus_rest() -> None:
    """NVML tells clocks, modes and recovery of the whole GPU alone; another GPU's are not meant."""
    own: Rows = {(fields.MEMORY_FREE, ""): 2 * GB, (fields.MEMORY_TOTAL, ""): 18 * GB}
    host = Host(
        gpu(rows=EVERYTHING),
        gpu({9: GB}, uuid="MIG-0", instance="7", rows=own),
        gpu(uuid="GPU-b", index=1, rows={(fields.COMPUTE_MODE, ""): 0.0}),
    )
    host.poll(gpu(rows=EVERYTHING), gpu({}, uuid="MIG-0", instance="7", rows=own))
    conditions = host.conditions("MIG-0")

    assert (conditions.free, conditions.total, conditions.compute_mode) == (2 * GB, 18 * GB, 3)
    assert (conditions.clock_reasons, conditions.still) == (frozenset({"sw_power_cap"}), 0.0)


# MPS.


def test_mps_is_looked_for_when_it_is_asked_for() -> None:
    """And not by the main loop, which reads no files."""
    host = Host(gpu(), mps=True)
    assert host.asked == 0

    assert host.conditions().mps is True
    host.mps = False
    assert host.conditions().mps is False


# Whether memory moves.


def test_the_first_sight_of_processes_is_no_move() -> None:
    """The exporter may be restarted beside a server that has run for a week."""
    assert Host(gpu({9: 100 * GB, 8: GB}, used=101 * GB)).still() is None


@pytest.mark.parametrize(
    "now",
    [{9: GB, 8: None}, {}, {9: 2 * GB}, {9: 0.5 * GB}, {8: GB}],
    ids=["a process came", "it went", "it rose", "it fell", "another took its place"],
)
def test_a_move_is_seen(now: Processes) -> None:
    """And ages from the poll that brought it."""
    host = Host(gpu({9: GB})).poll(gpu(now))
    assert host.still() == 0.0

    host.clock.now += 30.0
    assert host.still() == 30.0
    assert host.poll(gpu(now)).still() == 35.0


def test_every_move_begins_the_time_anew() -> None:
    """An engine loads for minutes."""
    host = Host(gpu({9: GB}))
    for step in range(2, 5):
        host.poll(gpu({9: step * GB}), after=60.0)

    assert host.still() == 0.0


def test_two_minutes_after_the_last_move_the_probe_may_run() -> None:
    """Whether or not the board has changed meanwhile."""
    host = Host(gpu({9: GB})).poll(gpu({}))
    host.clock.now += 119.0
    found = skip(host.conditions(), 0.0)
    assert isinstance(found, Skip)
    assert found.reason == "memory_moving"

    host.clock.now += 1.0
    assert skip(host.conditions(), 0.0) is None


def test_noise_is_no_move() -> None:
    """Up to 64 MiB, in either direction."""
    host = Host(gpu({9: GB}))
    for change in (NOISE, -NOISE, 0, NOISE):
        host.poll(gpu({9: GB + change}))
    assert host.still() is None

    assert host.poll(gpu({9: GB + NOISE + 1})).still() == 0.0


def test_memory_that_creeps_has_moved_in_the_end() -> None:
    """It is compared with what it was when it moved last, not with the poll before."""
    host = Host(gpu({9: GB}))
    moves = [host.poll(gpu({9: GB + step * NOISE / 4})).still() for step in range(1, 8)]

    assert moves == [None, None, None, None, 0.0, 5.0, 10.0]


def test_our_own_memory_does_not_count() -> None:
    """Neither its coming nor its growth, where NVML tells it: what is left of the GPU's used memory stays."""
    host = Host(gpu({9: GB}, used=1.01 * GB))
    host.poll(gpu({9: GB, OWN: 0.5 * GB}, used=1.52 * GB))
    host.poll(gpu({9: GB, OWN: 3 * GB}, used=4.02 * GB))

    assert host.poll(gpu({9: GB}, used=1.01 * GB)).still() is None


def test_the_memory_of_our_own_worker_does_not_count() -> None:
    """Else the probe would be held back by its own start, and by its end while NVML's list lags behind."""
    host = Host(gpu({9: GB}, used=1.01 * GB))
    host.placer.adopt(31)
    for held in (0.5 * GB, 3 * GB):
        assert host.poll(gpu({9: GB, 31: held}, used=1.01 * GB + held)).still() is None

    assert host.poll(gpu({9: GB}, used=1.01 * GB)).still() is None


@pytest.mark.parametrize(
    ("before", "now"),
    [(None, None), ({9: None}, {9: None}), ({}, {}), ({OWN: GB}, {OWN: GB})],
    ids=["no list", "memory not told", "an empty list", "a list of our own container"],
)
def test_memory_that_is_told_to_be_nobodys_counts_by_what_is_used(before: Processes, now: Processes) -> None:
    """In a container NVML names no neighbours, or not what they hold."""
    host = Host(gpu(before, used=2 * GB))
    assert host.poll(gpu(now, used=2 * GB + NOISE)).still() is None

    assert host.poll(gpu(now, used=2 * GB - NOISE - 1)).still() == 0.0


@pytest.mark.parametrize("own", [None, {}, {OWN: None}], ids=["no list", "not listed", "memory not told"])
def test_our_own_memory_counts_where_it_cannot_be_told(own: Processes) -> None:
    """The card is fuller, and nobody says by whom: a wrong skip costs a cycle, a wrong run an engine."""
    assert Host(gpu(own, used=GB)).poll(gpu(own, used=4 * GB)).still() == 0.0


def test_a_list_that_begins_or_ceases_to_be_told_is_no_move() -> None:
    """As for one refused call: what is known on one side only says nothing, and what was known before still does."""
    host = Host(gpu({9: GB}, used=GB)).poll(gpu(None, used=GB)).poll(gpu({9: GB}, used=GB))
    assert host.still() is None

    assert host.poll(gpu(None, used=GB)).poll(gpu({8: GB}, used=GB)).still() == 0.0


def test_a_gpu_that_tells_neither_list_nor_memory_tells_no_move() -> None:
    """Nor does it forget what it told before."""
    host = Host(gpu({9: GB})).poll(gpu())
    assert host.still() is None

    assert host.poll(gpu({9: 2 * GB})).still() == 0.0


def test_a_failed_poll_hides_no_move() -> None:
    """An engine that starts may be what made it fail: it is told of before and after."""
    host = Host(gpu({9: GB})).poll(gpu({})).fail().poll(gpu({}))
    assert host.still() == 10.0

    assert host.fail().poll(gpu({7: GB})).still() == 0.0


def test_a_lost_gpu_hides_no_move() -> None:
    """The processes after a reset are others than before it."""
    host = Host(gpu({9: GB})).poll(gpu(state=GpuState.LOST)).poll(gpu({8: GB}))

    assert host.still() == 0.0


def test_what_was_observed_once_is_observed_the_same_again() -> None:
    """The board changes for other reasons too; the time of a move is that of its poll."""
    host = Host(gpu({9: GB})).poll(gpu({}))
    host.clock.now += 2.0
    host.neighbours.observe(host.board.snapshot(), {OWN})

    assert host.still() == 2.0


def moves(path: Path, interval: float) -> Iterator[float]:
    """Yield the seconds since the start at which memory moves in a recording that is polled at an interval."""
    recording = load(path.read_text())
    host = Host()
    host.clock.now = recording.start
    source = GpuSource(ReplayDriver(recording, host.clock.monotonic), host.clock, interval, 10.0)
    while host.clock.now <= recording.end:
        host.poll(*[one for one in source.poll() if isinstance(one, GpuReading)], after=0.0)
        if host.still("") == 0.0:
            yield round(host.clock.now - recording.start)
        host.clock.now += interval


@pytest.mark.parametrize("interval", [1.0, 2.0, 5.0])
def test_the_recorded_h200_moves_when_its_program_allocates(interval: float) -> None:
    """It comes after 5 s, takes more at 11 s and goes after 35 s; under load in between nothing moves.

    Its list of processes was asked every 5 s, so that each of these shows again until the list tells of it.
    """
    seen = list(moves(RECORDINGS / "h200-nvml" / "recording.json", interval))

    assert [any(start <= one <= end for one in seen) for start, end in ((4, 10), (11, 20), (21, 34), (35, 40))] == [
        True,
        True,
        False,
        True,
    ]
    assert min(seen) >= 4
    assert max(seen) <= 40
