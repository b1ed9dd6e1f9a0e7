"""What is told of GPUs that were not read."""

from typing import Any

import pytest

from solpi_exporter.gpu.known import Failure, KnownGpus
from solpi_exporter.gpu.reading import BUSY, BusyTotal, ExpectedGpus, GpuReading, GpuState
from solpi_exporter.gpu.remembered import RememberedGpus

RESET = Failure(GpuState.RESET_REQUIRED, "reset me")
HUNG = Failure(GpuState.HUNG, "does not return")
MISMATCH = Failure(GpuState.DRIVER_MISMATCH, "library and module differ")


def gpu(index: int, uuid: str, seconds: float = 7.0, instance: str = "") -> GpuReading:
    total = BUSY.sample(seconds, str(index), uuid, instance)
    return GpuReading(
        index, uuid, GpuState.OK, instance, totals=(total,), busy=BusyTotal(0.0, seconds, 0), processes=()
    )


class Host:
    """What is known of a host, with its reports as (index, UUID, state, reason)."""

    def __init__(self, remembered: RememberedGpus | None = None) -> None:
        self.reports: list[tuple[int, str, str, str]] = []
        self.known = KnownGpus(remembered or RememberedGpus(), self._report)

    def conclude(self, *read: GpuReading, failures: dict[int, Failure] | None = None, present: int = 2) -> list[Any]:
        """Return the readings of a poll, those that were not read among them."""
        return [one for one in self.known.conclude(present, read, failures or {}) if isinstance(one, GpuReading)]

    def _report(self, reading: GpuReading, reason: str) -> None:
        self.reports.append((reading.index, reading.uuid, reading.state.value, reason))


@pytest.fixture
def host() -> Host:
    """Two GPUs that were read once."""
    host = Host()
    assert host.conclude(gpu(0, "GPU-a"), gpu(1, "GPU-b")) == []
    return host


def states(told: list[GpuReading]) -> list[tuple[int, str, str]]:
    return [(one.index, one.uuid, one.state.value) for one in told]


def test_the_number_expected_is_told_at_every_poll() -> None:
    """As soon as one has been seen, and also while the driver fails."""
    known = KnownGpus(RememberedGpus(), lambda reading, reason: None)
    assert known.conclude(0, [], {}) == []
    assert not known.any

    assert known.conclude(2, [gpu(0, "GPU-a"), gpu(1, "GPU-b")], {}) == [ExpectedGpus(2)]
    assert known.any
    assert ExpectedGpus(2) in known.all_failed(MISMATCH)


def test_a_gpu_that_fails_has_the_uuid_last_seen_under_its_index(host: Host) -> None:
    """It is asked for by index, and cannot tell its own."""
    assert states(host.conclude(gpu(1, "GPU-b"), failures={0: RESET})) == [(0, "GPU-a", "reset_required")]


def test_a_gpu_that_never_gave_its_uuid_has_none() -> None:
    """Nobody can tell which it is; it is told under its index."""
    host = Host()

    assert states(host.conclude(gpu(1, "GPU-b"), failures={0: RESET})) == [(0, "", "reset_required")]


def test_after_a_restart_a_gpu_that_fails_has_its_name_of_before() -> None:
    """One that fails and one that is missing are not both told of a single GPU."""
    remembered = RememberedGpus()
    remembered.note(2, {"GPU-a": 0, "GPU-b": 1})
    host = Host(remembered)

    assert states(host.conclude(gpu(1, "GPU-b"), failures={0: RESET})) == [(0, "GPU-a", "reset_required")]


def test_a_gpu_that_is_not_listed_any_more_is_lost(host: Host) -> None:
    """Under the index it had; the other may have that now."""
    assert states(host.conclude(gpu(0, "GPU-b"), present=1)) == [(0, "GPU-a", "lost")]


def test_no_uuid_is_told_twice(host: Host) -> None:
    """GPU-a has moved to index 1; what fails at index 0 is another, and GPU-b is missing."""
    told = host.conclude(gpu(1, "GPU-a"), failures={0: RESET})
    assert states(told) == [(0, "", "reset_required"), (1, "GPU-b", "lost")]

    told = host.conclude(failures={0: RESET, 1: HUNG})
    assert sorted(states(told)) == [(0, "", "reset_required"), (1, "GPU-a", "hung"), (1, "GPU-b", "lost")]


def test_the_totals_of_a_lost_gpu_stay(host: Host) -> None:
    """Over any number of polls and kinds of failure; its gauges and processes do not."""
    for failures in ({0: RESET}, {0: HUNG}, {}, {0: RESET}):
        (told,) = host.conclude(gpu(1, "GPU-b"), failures=dict(failures))
        assert told.totals == gpu(0, "GPU-a").totals
        assert told.processes is None
    told = next(one for one in host.known.all_failed(MISMATCH) if isinstance(one, GpuReading) and one.uuid == "GPU-a")

    assert told.totals == gpu(0, "GPU-a").totals


def test_a_driver_that_fails_takes_every_gpu_along(host: Host) -> None:
    """Each is told in the state that the failure leaves it in."""
    told = [one for one in host.known.all_failed(MISMATCH) if isinstance(one, GpuReading)]

    assert states(told) == [(0, "GPU-a", "driver_mismatch"), (1, "GPU-b", "driver_mismatch")]
    assert not host.known.is_here("GPU-a")


def test_a_change_of_state_is_reported_once(host: Host) -> None:
    """With its reason, also on the way back; nothing is reported of a GPU that is well."""
    assert host.reports == []
    for failures in ({0: RESET}, {0: RESET}, {0: HUNG}):
        host.conclude(gpu(1, "GPU-b"), failures=failures)
    for _ in range(2):
        host.conclude(gpu(0, "GPU-a"), gpu(1, "GPU-b"))

    assert host.reports == [
        (0, "GPU-a", "reset_required", "reset me"),
        (0, "GPU-a", "hung", "does not return"),
        (0, "GPU-a", "ok", "it answers"),
    ]


def test_gpus_without_a_uuid_are_reported_apart() -> None:
    """Each under its index, once."""
    host = Host()
    for _ in range(2):
        host.conclude(failures={0: RESET, 1: HUNG})

    assert host.reports == [(0, "", "reset_required", "reset me"), (1, "", "hung", "does not return")]


def test_a_change_of_index_is_no_change_of_state(host: Host) -> None:
    """A GPU that is lost and moves, or is well and moves, is the same."""
    host.conclude(gpu(0, "GPU-b"), gpu(1, "GPU-a"))

    assert host.reports == []


def test_what_was_replaced_is_forgotten(host: Host) -> None:
    """As many as expected answer, so nothing is missing."""
    assert states(host.conclude(gpu(1, "GPU-b"), present=1)) == [(0, "GPU-a", "lost")]

    assert host.conclude(gpu(0, "GPU-c"), gpu(1, "GPU-b")) == []


def test_a_gpu_that_is_missing_at_the_start_is_told() -> None:
    """It was there before the restart; its totals were the other process's."""
    remembered = RememberedGpus()
    remembered.note(2, {"GPU-a": 0, "GPU-b": 1})

    told = Host(remembered).conclude(gpu(0, "GPU-b"), present=1)

    assert told == [GpuReading(0, "GPU-a", GpuState.LOST)]


def test_who_was_read_by_the_last_poll_is_here(host: Host) -> None:
    """GPUs and MIG instances alike; one that comes back after a poll without it has been away."""
    host.conclude(gpu(0, "GPU-a"), gpu(0, "MIG-a", instance="7"), gpu(1, "GPU-b"))
    assert host.known.is_here("GPU-a")
    assert host.known.is_here("MIG-a")

    host.conclude(gpu(1, "GPU-b"), failures={0: RESET})

    assert not host.known.is_here("GPU-a")
    assert not host.known.is_here("MIG-a")
    assert host.known.is_here("GPU-b")


def test_instances_are_neither_expected_nor_missed(host: Host) -> None:
    """They come and go as they are configured."""
    host.conclude(gpu(0, "GPU-a"), gpu(0, "MIG-a", instance="7"), gpu(1, "GPU-b"))

    assert host.known.conclude(2, [gpu(0, "GPU-a"), gpu(1, "GPU-b")], {}) == [ExpectedGpus(2)]
    assert host.reports == []
