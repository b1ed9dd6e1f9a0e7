"""All GPUs of the host on each poll, each apart from the others: one that fails or hangs takes nothing else along.

The GPUs are read one after the other (GPM allows no more). One that does not answer in time is left behind in its
thread, and is asked again once its call has returned.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from solpi_exporter.clock import Clock
from solpi_exporter.gpu.driver import (
    VERSION_MISMATCH,
    BadHandle,
    Device,
    Driver,
    DriverAbsent,
    DriverFailed,
    GpuLost,
    Unavailable,
)
from solpi_exporter.gpu.known import Failure, KnownGpus, Report, Told
from solpi_exporter.gpu.lane import Calls, Hung, Lanes
from solpi_exporter.gpu.mig import MigInstances
from solpi_exporter.gpu.reader import Reader
from solpi_exporter.gpu.reading import GpuReading, GpuState, NvmlReading, state_of
from solpi_exporter.gpu.remembered import RememberedGpus
from solpi_exporter.source import NeedsRestart

LONGEST_POLLS = 3  # intervals between two polls over which what they say of the time between is believed
LONGEST_SECONDS = 15.0  # the same for GPM's means, which are taken every 5 s where polls are closer together
CLOSE_SECONDS = 2.0  # for letting go of the driver, which an event wait may hold up for a second
GUARD_SECONDS = 30.0  # beyond what a poll may take by itself
HEALING_SECONDS = 60.0  # between two looks whether a new process would find library and driver matching
DRIVER = "driver"  # in the place of a GPU's index, for calls that concern all of them

Round = tuple[NvmlReading, list[GpuReading], dict[int, Failure]]


class GpuSource:
    """The GPUs in NVML's order.

    A GPU that does not answer within `timeout` seconds counts as hung. While library and driver do not match, `heals`
    says whether a new process would find them matching. `report` is told of every change of a GPU's state.
    """

    name = "gpu"

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        interval: float,
        timeout: float,
        remembered: RememberedGpus | None = None,
        heals: Callable[[], bool] = lambda: False,
        report: Report = lambda reading, reason: None,
    ) -> None:
        self.interval = interval
        self.timeout = timeout + GUARD_SECONDS
        self._patience = timeout
        self._longest = max(LONGEST_POLLS * interval, interval + timeout, LONGEST_SECONDS)
        self._driver = driver
        self._clock = clock
        self._known = KnownGpus(remembered or RememberedGpus(), report)
        self._heals = heals
        self._heals_due: float | None = None
        self._connected = False
        self._versions: tuple[str | None, str | None, float | None] = (None, None, None)
        self._lanes = Lanes()
        self._readers: dict[str, Reader] = {}
        self._reader_at: dict[int, Reader] = {}
        self._instances = MigInstances(driver, clock, self._attach_anew)

    def poll(self) -> list[NvmlReading | Told]:
        """Read the driver and every GPU; raise DriverAbsent or DriverFailed when no GPU can be asked."""
        try:
            nvml, read, failures = self._lanes.run(self._round(), self._patience)
        except Hung:
            failure = Failure(GpuState.HUNG, "the NVIDIA driver does not answer; `dmesg | grep NVRM` may say why")
            raise DriverFailed(failure.reason, readings=self._known.all_failed(failure)) from None
        except DriverAbsent as error:
            if not self._known.any:
                raise
            failure = Failure(
                GpuState.DRIVER_ABSENT, f"the NVIDIA driver is gone: load its module, see dmesg ({error})"
            )
            raise DriverFailed(failure.reason, readings=self._known.all_failed(failure)) from error
        except DriverFailed as error:
            self._let_go()
            raise self._explained(error) from error
        self._heals_due = None
        self._forget_instances(read)
        gone = self._known.conclude(nvml.present, read, failures)
        self._note_misses(gone)
        return [nvml, *read, *gone]

    def close(self) -> None:
        """Detach from the driver, unless a call is still in it: that would crash the process."""
        if self._connected and not self._lanes.any_stuck:
            self._driver.close()
        self._connected = False
        self._lanes.close()

    def _let_go(self) -> None:
        """Detach from a driver that failed: the handles of one that comes back would be of the one that went.

        Not while a call is still in it, which a shutdown would crash; then it is asked again as it is.
        """
        if not self._lanes.any_stuck:
            self._connected = False
            with suppress(Hung):
                self._lanes.attempt(DRIVER, self._driver.close, max(self._patience, CLOSE_SECONDS))

    def _forget_instances(self, read: Iterable[GpuReading]) -> None:
        """Drop the readers of MIG instances that are gone: their UUIDs are made anew with each."""
        here = {one.uuid for one in read}
        self._readers = {
            uuid: reader for uuid, reader in self._readers.items() if not reader.is_instance or uuid in here
        }

    def _note_misses(self, gone: Iterable[Told]) -> None:
        for one in gone:
            # The reader of a GPU that hangs belongs to the thread that hangs with it.
            if isinstance(one, GpuReading) and one.state is not GpuState.HUNG and one.uuid in self._readers:
                self._readers[one.uuid].miss()

    # What one poll reads.

    def _round(self) -> Calls[Round]:
        """Call for the driver, then for each GPU; a GPU's failure is its own, the driver's is everybody's."""
        nvml: NvmlReading = yield DRIVER, self._read_driver
        read: list[GpuReading] = []
        failures: dict[int, Failure] = {}
        for index in range(nvml.present):
            try:
                read += yield index, partial(self._read_gpu, index)
            except Hung:
                failures[index] = Failure(GpuState.HUNG, "a call to the driver does not return, see dmesg")
            except (GpuLost, Unavailable) as error:
                failures[index] = Failure(state_of(error.code), str(error))
        return nvml, read, failures

    def _read_driver(self) -> NvmlReading:
        """Attach if need be, and count."""
        if not self._connected:
            self._driver.connect()
            self._connected = True
            self._versions = self._read_versions()
        try:
            present = int(self._driver.query("nvmlDeviceGetCount"))
        except Unavailable as error:
            raise DriverFailed(f"the driver does not say how many GPUs there are: {error}", error.code) from error
        return NvmlReading(present, *self._versions)

    def _read_versions(self) -> tuple[str | None, str | None, float | None]:
        """Return those of driver, NVML library and CUDA."""
        cuda = self._ask("nvmlSystemGetCudaDriverVersion")
        return (
            self._ask("nvmlSystemGetDriverVersion"),
            self._ask("nvmlSystemGetNVMLVersion"),
            None if cuda is None else cuda // 1000 + cuda % 1000 / 100,
        )

    def _ask(self, call: str) -> Any:
        try:
            return self._driver.query(call)
        except Unavailable:
            return None

    def _read_gpu(self, index: int) -> list[GpuReading]:
        """Read a GPU and its MIG instances."""
        readings = [self._read_device(Device(index))]
        for instance in self._instances.of(index):
            try:
                readings.append(self._read_device(instance))
            except (GpuLost, Unavailable):  # it was deleted; whether the GPU is well, its own read said
                self._instances.forget(index)
        return readings

    def _read_device(self, device: Device) -> GpuReading:
        uuid, was_reset = self._uuid(device)
        reader = self._readers.get(uuid)
        if reader is None:
            reader = self._readers[uuid] = Reader(self._driver, self._clock, uuid, self.interval, self._longest)
        elif was_reset or not self._known.is_here(uuid):
            reader.attach()
        if device.instance is None:
            self._reader_at[device.gpu] = reader
        return reader.read(device)

    def _uuid(self, device: Device) -> tuple[str, bool]:
        """Return the UUID, and whether there was a reset since it was last asked."""
        try:
            return str(self._driver.ask(device, "nvmlDeviceGetUUID")), False
        except BadHandle:  # of before a reset, which may have changed modes as well; the driver has dropped it
            self._instances.forget(device.gpu)
            return str(self._driver.ask(device, "nvmlDeviceGetUUID")), True

    def _attach_anew(self, index: int) -> None:
        """Let a GPU whose MIG mode was switched be asked for what it has refused."""
        self._reader_at[index].attach()

    # What follows from a failure.

    def _explained(self, error: DriverFailed) -> DriverFailed | NeedsRestart:
        """Return the driver's failure with what it means for each GPU; a mismatch that is over needs a new process."""
        readings = self._known.all_failed(Failure(state_of(error.code), str(error)))
        if error.code == VERSION_MISMATCH and self._is_healed():
            return NeedsRestart("libnvidia-ml and the kernel module match again; only a new process sees it", readings)
        return DriverFailed(str(error), error.code, readings)

    def _is_healed(self) -> bool:
        """Look once a minute, and not in the poll that meets the mismatch: that has it to tell first."""
        now = self._clock.monotonic()
        if self._heals_due is None:
            self._heals_due = now
            return False
        if now < self._heals_due:
            return False
        self._heals_due = now + HEALING_SECONDS
        return self._heals()
