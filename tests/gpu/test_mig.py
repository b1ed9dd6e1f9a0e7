"""Which MIG instances a GPU has."""

from typing import Any

from solpi_exporter.gpu.driver import Device, Unavailable
from solpi_exporter.gpu.mig import LIST_SECONDS, MigInstances
from tests.fakes import FakeClock, FakeDriver


class Host:
    """A GPU with room for some instances, and the switches that were told."""

    def __init__(self, room: int, *instances: str) -> None:
        self.gpu: dict[str, Any] = {"nvmlDeviceGetMaxMigDeviceCount": room}
        self.driver = FakeDriver([self.gpu])
        self.make(*instances)
        self.clock = FakeClock()
        self.switched: list[int] = []
        self.instances = MigInstances(self.driver, self.clock, self.switched.append)

    def make(self, *uuids: str) -> None:
        self.driver.instances[0] = [{"nvmlDeviceGetUUID": uuid} if uuid else {} for uuid in uuids]

    def positions(self, *, after: float = 0.0) -> list[int | None]:
        self.clock.now += after
        return [device.instance for device in self.instances.of(0)]


def test_instances_may_leave_places_free() -> None:
    """NVML has no handle for an empty place, and goes on behind it."""
    assert Host(7, "MIG-1", "", "MIG-3").positions() == [0, 2]


def test_a_gpu_without_mig_has_none() -> None:
    """With MIG off there is room for none; one that does not know of MIG refuses the question."""
    assert Host(0).positions() == []
    host = Host(7, "MIG-1")
    host.gpu["nvmlDeviceGetMaxMigDeviceCount"] = Unavailable("not supported")
    assert host.positions() == []


def test_they_are_listed_once_a_minute() -> None:
    """Between two lists nothing is asked."""
    host = Host(7, "MIG-1")
    host.positions()
    calls = len(host.driver.calls)
    host.make("MIG-1", "MIG-2")

    assert host.positions(after=LIST_SECONDS - 1) == [0]
    assert len(host.driver.calls) == calls
    assert host.positions(after=1.0) == [0, 1]


def test_a_list_that_is_forgotten_is_made_anew() -> None:
    """After a reset, or when an instance has gone."""
    host = Host(7, "MIG-1")
    host.positions()
    host.make()

    host.instances.forget(0)

    assert host.positions() == []


def test_a_switch_is_told_once() -> None:
    """When the room for instances is another than in the list before; the first list is no switch."""
    host = Host(0)
    host.positions()
    host.gpu["nvmlDeviceGetMaxMigDeviceCount"] = 7
    for _ in range(3):
        host.positions(after=LIST_SECONDS)

    assert host.switched == [0]


def test_an_instance_goes_by_its_gpu_and_position() -> None:
    """As the driver is asked for it."""
    assert Host(7, "MIG-1").instances.of(0) == [Device(0, 0)]
