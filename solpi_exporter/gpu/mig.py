"""Which MIG instances a GPU has: looked for every minute, since listing them stalls hosts that have many."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from solpi_exporter.clock import Clock
from solpi_exporter.gpu.driver import Device, Driver, Unavailable

LIST_SECONDS = 60.0


class MigInstances:
    """The instances of all GPUs, by the index of their GPU.

    `switched` is told of a GPU whose MIG mode has changed between two lists; from Hopper on that takes no reset.
    """

    def __init__(self, driver: Driver, clock: Clock, switched: Callable[[int], None]) -> None:
        self._driver = driver
        self._clock = clock
        self._switched = switched
        self._listed: dict[int, tuple[float, list[Device]]] = {}
        self._room: dict[int, int] = {}

    def of(self, gpu: int) -> list[Device]:
        """Return a GPU's instances by the latest list; raise GpuLost or DriverFailed."""
        now = self._clock.monotonic()
        due, instances = self._listed.get(gpu, (0.0, []))
        if now >= due:
            instances = list(self._list(gpu))
            self._listed[gpu] = (now + LIST_SECONDS, instances)
        return instances

    def forget(self, gpu: int) -> None:
        """Let the next question make a new list: an instance is gone, or there was a reset."""
        self._listed.pop(gpu, None)

    def _list(self, gpu: int) -> Iterator[Device]:
        room = self._ask_room(gpu)
        if self._room.setdefault(gpu, room) != room:
            self._room[gpu] = room
            self._switched(gpu)
        for position in range(room):
            with suppress(Unavailable):
                self._driver.ask(Device(gpu, position), "nvmlDeviceGetUUID")
                yield Device(gpu, position)

    def _ask_room(self, gpu: int) -> int:
        """Return for how many instances there is room: none while MIG is off or unknown."""
        try:
            return int(self._driver.ask(Device(gpu), "nvmlDeviceGetMaxMigDeviceCount"))
        except Unavailable:
            return 0
