"""Reads one GPU or MIG instance: the table's rows that are due, its identity, processes, and the totals kept here."""

from collections.abc import Iterator, Mapping
from typing import Any

from solpi_exporter.clock import Clock
from solpi_exporter.gpu.asker import Asker
from solpi_exporter.gpu.busy import Busy
from solpi_exporter.gpu.driver import UNKNOWN, Device, Driver, GpuLost, Unavailable
from solpi_exporter.gpu.fields import FIELDS, GRAPHICS_ACTIVITY, UTILIZATION_RATES
from solpi_exporter.gpu.origins import Call, Field, Origin, Tier, percent
from solpi_exporter.gpu.reading import BUSY, INFO, LOAD, GpuProcess, GpuReading, GpuState
from solpi_exporter.gpu.transfers import Transferred
from solpi_exporter.metric import Sample

UTILIZATION_SAMPLES = 1  # NVML_GPU_UTILIZATION_SAMPLES
SAMPLES_SECONDS = 10.0  # a read costs 3 ms whatever it brings; an H200's buffer holds 14 s
PERIODS = {Tier.FAST: 0.0, Tier.MEAN: 5.0, Tier.DEAR: 15.0, Tier.SLOW: 60.0, Tier.RARE: 3600.0}
EARLY = 0.5  # seconds: polls come a little sooner or later, and what is due by then should not wait for the next
MOST_REFUSALS = 3  # of the sample buffer, by an error that may pass, until busy seconds come from elsewhere
NO_INSTANCE = 0xFFFFFFFF
_PROCESSES = Call("nvmlDeviceGetComputeRunningProcesses")
_GPU_ROWS = {tier: tuple(field for field in FIELDS if field.tier is tier) for tier in Tier}
_INSTANCE_ROWS = {tier: tuple(field for field in rows if field.instances) for tier, rows in _GPU_ROWS.items()}


class Reader:
    """One device, known by its UUID, under whatever index it has now.

    `longest` is the distance of two polls, in seconds, over which utilisation and rates are integrated.
    """

    def __init__(self, driver: Driver, clock: Clock, uuid: str, longest: float) -> None:
        self.uuid = uuid
        self._driver = driver
        self._clock = clock
        self._busy = Busy(longest)
        self._transferred = Transferred(longest)
        self._busy_origin = self._by_samples
        self._refusals = 0
        self.attach()

    def attach(self) -> None:
        """Begin anew with a GPU that has come back: everything is asked again; the totals go on."""
        self._asker = Asker(self._driver)
        self._instance: int | None = None
        self._info: Sample | None = None
        self._bus_id = ""
        self._kept: dict[Tier, list[Sample]] = {}
        self._converted: dict[Field, tuple[Any, tuple[Sample, ...]]] = {}
        self._due = dict.fromkeys(Tier, 0.0)
        self._due_now: list[Tier] = []
        self._processes: tuple[GpuProcess, ...] | None = None
        self._samples_due = 0.0
        self._transferred.reset()

    def miss(self) -> None:
        """Note that this poll brought nothing."""
        self._busy.miss(self._clock.monotonic())

    def read(self, device: Device) -> GpuReading:
        """Read what is due; raise GpuLost or DriverFailed, or Unavailable for an instance that has no id any more."""
        now = self._clock.monotonic()
        labels = self._identify(device)
        answers = self._ask(device, now)
        rows = tuple(self._rows(device, answers, labels))
        self._busy_origin(device, now, answers)
        if Tier.MEAN in self._due_now:
            self._transferred.advance(now, answers)
            self._processes = self._computing(device, now)
        return GpuReading(
            device.gpu,
            self.uuid,
            GpuState.OK,
            labels[2],
            self._bus_id,
            self._info,
            rows,
            tuple(self._totals(labels)),
            self._busy.total,
            self._processes,
        )

    def _identify(self, device: Device) -> tuple[str, str, str]:
        """Return the label values, and ask once for what stands beside them in the info series."""
        if device.instance is not None and self._instance is None:
            self._instance = int(self._driver.ask(device, "nvmlDeviceGetGpuInstanceId"))
        labels = (str(device.gpu), self.uuid, "" if self._instance is None else str(self._instance))
        if self._info is None or self._info.labels[:3] != labels:
            pci = self._asker.ask(Device(device.gpu), "nvmlDeviceGetPciInfo") or {}
            self._bus_id = pci.get("busId", "")
            model = self._asker.ask(device, "nvmlDeviceGetName") or ""
            vbios = self._asker.ask(Device(device.gpu), "nvmlDeviceGetVbiosVersion") or ""
            self._info = INFO.sample(1.0, *labels, model, self._bus_id, vbios)
            self._due = dict.fromkeys(Tier, 0.0)  # the rows that are kept carry the labels of before
            self._converted.clear()
        return labels

    def _rows(self, device: Device, answers: Mapping[Origin, Any], labels: tuple[str, ...]) -> Iterator[Sample]:
        """Yield every row: those of the tiers that were due as answered now, the others as they were last."""
        for tier in self._due_now:
            self._kept[tier] = [
                sample
                for field in _rows_of(device)[tier]
                if field.origin in answers
                for sample in self._convert(field, answers[field.origin], labels)
            ]
        for rows in self._kept.values():
            yield from rows

    def _convert(self, field: Field, answer: Any, labels: tuple[str, ...]) -> tuple[Sample, ...]:
        """Return a row's samples; those of before where the answer is that of before, as most are."""
        last = self._converted.get(field)
        if last is None or last[0] != answer:
            values = field.convert(answer)
            samples = tuple(field.metric.sample(value, *labels, *further) for further, value in values)
            self._converted[field] = last = (answer, samples)
        return last[1]

    def _ask(self, device: Device, now: float) -> dict[Origin, Any]:
        self._due_now = [tier for tier in Tier if now >= self._due[tier] - EARLY]
        for tier in self._due_now:
            self._due[tier] = now + PERIODS[tier]
        wanted: list[Origin] = [field.origin for tier in self._due_now for field in _rows_of(device)[tier]]
        if device.instance is None and Tier.MEAN in self._due_now:
            wanted += self._transferred.origins(has_gpm=self._asker.has_gpm is not False)
        answers = self._asker.answers(device, wanted, now)
        if not answers and device.instance is None:
            raise GpuLost("every call is refused; a container that lost its GPUs has to be recreated", UNKNOWN)
        return answers

    def _by_samples(self, device: Device, now: float, answers: Mapping[Origin, Any]) -> None:
        if now < self._samples_due - EARLY:
            return
        try:
            samples = self._driver.samples(device, UTILIZATION_SAMPLES, self._busy.cursor)
        except Unavailable as error:
            self._refusals += 1
            settled = error.lasting or self._refusals >= MOST_REFUSALS
            if settled and self._busy.total is None and self._asker.has_gpm is not None:
                self._busy_origin = self._by_activity if self._asker.has_gpm else self._by_utilization
                self._busy_origin(device, now, answers)
            return
        self._samples_due = now + SAMPLES_SECONDS
        self._busy.by_samples(now, samples)

    def _by_activity(self, device: Device, now: float, answers: Mapping[Origin, Any]) -> None:
        if Tier.MEAN not in self._due_now:
            return
        mean = answers.get(GRAPHICS_ACTIVITY)
        self._busy.by_activity(now, None if mean is None else percent(mean))

    def _by_utilization(self, device: Device, now: float, answers: Mapping[Origin, Any]) -> None:
        rates = answers.get(UTILIZATION_RATES)
        self._busy.by_utilization(now, None if rates is None else percent(rates["gpu"]))

    def _totals(self, labels: tuple[str, ...]) -> Iterator[Sample]:
        if self._busy.total is not None:
            yield BUSY.sample(self._busy.total.seconds, *labels)
        if self._busy.load is not None:
            yield LOAD.sample(self._busy.load.distribution(), *labels)
        yield from self._transferred.samples(*labels)

    def _computing(self, device: Device, now: float) -> tuple[GpuProcess, ...] | None:
        """Return what computes on the device; what runs in a MIG instance counts there, not for the whole GPU."""
        listed = self._asker.answers(device, [_PROCESSES], now).get(_PROCESSES)
        if listed is None:
            return None
        mine = (one for one in listed if device.instance is not None or one["gpuInstanceId"] == NO_INSTANCE)
        return tuple(GpuProcess(one["pid"], one["usedGpuMemory"]) for one in mine)


def _rows_of(device: Device) -> Mapping[Tier, tuple[Field, ...]]:
    return _GPU_ROWS if device.instance is None else _INSTANCE_ROWS
