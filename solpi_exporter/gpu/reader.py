"""Reads one GPU or MIG instance: the table's rows that are due, its identity, processes, and the totals kept here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from solpi_exporter.clock import Clock
from solpi_exporter.gpu.asker import Asker
from solpi_exporter.gpu.busy import Busy
from solpi_exporter.gpu.driver import UNKNOWN, Device, Driver, GpuLost, Unavailable
from solpi_exporter.gpu.fields import FIELDS, GRAPHICS_ACTIVITY, UTILIZATION_RATES
from solpi_exporter.gpu.origins import Activity, Call, Field, Origin, Tier, percent
from solpi_exporter.gpu.reading import BUSY, INFO, LOAD, GpuProcess, GpuReading, GpuState
from solpi_exporter.gpu.schedule import EARLY, PERIODS, Schedule
from solpi_exporter.gpu.transfers import Transferred
from solpi_exporter.metric import Sample

UTILIZATION_SAMPLES = 1  # NVML_GPU_UTILIZATION_SAMPLES
SAMPLES_SECONDS = 10.0  # a read costs 3 ms whatever it brings
BUFFER_SECONDS = 12.0  # an H200's buffer holds 14 s: what is read later has gaps
MOST_REFUSALS = 3  # of the sample buffer, by an error that may pass, until busy seconds come from elsewhere
NO_INSTANCE = 0xFFFFFFFF

_NAME = Call("nvmlDeviceGetName")
_VBIOS = Call("nvmlDeviceGetVbiosVersion")
_PCI = Call("nvmlDeviceGetPciInfo")
_PROCESSES = Call("nvmlDeviceGetComputeRunningProcesses")
_GPU_ROWS = {tier: tuple(field for field in FIELDS if field.tier is tier) for tier in Tier}
_INSTANCE_ROWS = {tier: tuple(field for field in rows if field.instances) for tier, rows in _GPU_ROWS.items()}

Labels = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Poll:
    """One device at `now` (monotonic seconds): which tiers are due, and what was answered of them."""

    device: Device
    now: float
    due: tuple[Tier, ...]
    answers: Mapping[Origin, Any]


class Reader:
    """One device, known by its UUID, under whatever index it has now, polled every `interval` seconds.

    `longest` is the distance of two polls, in seconds, over which utilisation and rates are integrated.
    """

    def __init__(self, driver: Driver, clock: Clock, uuid: str, interval: float, longest: float) -> None:
        self.uuid = uuid
        self._driver = driver
        self._clock = clock
        self._longest = longest
        self._busy = Busy(longest)
        self._transferred = Transferred(longest)
        self._samples_period = interval * max(1, SAMPLES_SECONDS // interval)  # never more than the buffer holds
        self._busy_origin = self._by_samples if interval <= BUFFER_SECONDS else self._by_poll
        self._refusals = 0
        self._means_time: float | None = None  # when GPM was asked last with success
        self.attach()

    def attach(self) -> None:
        """Begin anew with a GPU that has come back: everything is asked again; the totals go on."""
        self._asker = Asker(self._driver)
        self._schedule = Schedule()
        self._instance: int | None = None
        self._info: Sample | None = None
        self._identity_due = 0.0
        self._bus_id = ""
        self._kept: dict[Tier, list[Sample]] = {}
        self._converted: dict[Field, tuple[Any, tuple[Sample, ...]]] = {}
        self._processes: tuple[GpuProcess, ...] | None = None
        self._samples_due = 0.0
        self._transferred.reset()

    @property
    def is_instance(self) -> bool:
        """Whether it is a MIG instance."""
        return self._instance is not None

    def miss(self) -> None:
        """Note that this poll brought nothing."""
        self._busy.miss(self._clock.monotonic())

    def read(self, device: Device) -> GpuReading:
        """Read what is due; raise GpuLost or DriverFailed, or Unavailable for an instance that has no id any more."""
        now = self._clock.monotonic()
        labels = self._identify(device, now)
        poll = self._ask(device, now)
        rows = tuple(self._rows(poll, labels))
        self._busy_origin(poll)
        if Tier.MEAN in poll.due:
            self._transferred.advance(now, poll.answers, has_means=self._asker.has_means)
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

    def _identify(self, device: Device, now: float) -> Labels:
        """Return the label values, and ask once for what stands beside them in the info series."""
        if device.instance is not None and self._instance is None:
            self._instance = int(self._driver.ask(device, "nvmlDeviceGetGpuInstanceId"))
        labels = (str(device.gpu), self.uuid, "" if self._instance is None else str(self._instance))
        if self._info is not None and self._info.labels[:3] != labels:
            self._schedule = Schedule()  # the rows that are kept carry the labels of before
            self._converted.clear()
            self._identity_due = 0.0
        if now >= self._identity_due:
            self._ask_identity(device, now, labels)
        return labels

    def _ask_identity(self, device: Device, now: float, labels: Labels) -> None:
        """Make the info series; again in a minute where a part of it was refused for now."""
        answers = self._asker.answers(device, (_NAME,), now)
        answers |= self._asker.answers(Device(device.gpu), (_PCI, _VBIOS), now)
        missing = [one for one in (_NAME, _PCI, _VBIOS) if one not in answers and self._asker.may_answer(one)]
        self._identity_due = now + PERIODS[Tier.SLOW] if missing else inf
        self._bus_id = answers.get(_PCI, {}).get("busId", "")
        self._info = INFO.sample(1.0, *labels, answers.get(_NAME, ""), self._bus_id, answers.get(_VBIOS, ""))

    def _ask(self, device: Device, now: float) -> Poll:
        due = self._schedule.take(now)
        wanted: list[Origin] = [field.origin for tier in due for field in _rows_of(device)[tier]]
        if device.instance is None and Tier.MEAN in due:
            wanted += self._transferred.origins(has_gpm=self._asker.has_gpm is not False)
        answers = self._asker.answers(device, wanted, now)
        if self._asker.is_mute and device.instance is None:
            raise GpuLost("every call is refused; a container that lost its GPUs has to be recreated", UNKNOWN)
        rare = [field.origin for field in _rows_of(device)[Tier.RARE]] if Tier.RARE in due else []
        if any(one not in answers and self._asker.may_answer(one) for one in rare):
            self._schedule.retry(Tier.RARE, now)
        return Poll(device, now, due, self._without_old_means(answers, now))

    def _without_old_means(self, answers: dict[Origin, Any], now: float) -> dict[Origin, Any]:
        """Return the answers; but GPM's over more than a few polls, as after a hang, are of another time."""
        old = self._means_time is not None and now - self._means_time > self._longest
        if self._asker.has_means:
            self._means_time = now
        return {one: answer for one, answer in answers.items() if not isinstance(one, Activity)} if old else answers

    def _rows(self, poll: Poll, labels: Labels) -> Iterator[Sample]:
        """Yield every row: those of the tiers that were due as answered now, the others as they were last."""
        for tier in poll.due:
            self._kept[tier] = [
                sample
                for field in _rows_of(poll.device)[tier]
                if field.origin in poll.answers
                for sample in self._convert(field, poll.answers[field.origin], labels)
            ]
        for rows in self._kept.values():
            yield from rows

    def _convert(self, field: Field, answer: Any, labels: Labels) -> tuple[Sample, ...]:
        """Return a row's samples; those of before where the answer is that of before, as most are."""
        last = self._converted.get(field)
        if last is None or last[0] != answer:
            values = field.convert(answer)
            samples = tuple(field.metric.sample(value, *labels, *further) for further, value in values)
            self._converted[field] = last = (answer, samples)
        return last[1]

    # Where busy seconds come from: one of these, settled by what the device answers first.

    def _by_samples(self, poll: Poll) -> None:
        if poll.now < self._samples_due - EARLY:
            return
        try:
            samples = self._driver.samples(poll.device, UTILIZATION_SAMPLES, self._busy.cursor)
        except Unavailable as error:
            self._note_refusal(error, poll)
        else:
            self._samples_due = poll.now + self._samples_period
            self._busy.by_samples(poll.now, samples)

    def _note_refusal(self, error: Unavailable, poll: Poll) -> None:
        """Give the sample buffer up, for the time until the next attachment or, if it never answered, for good."""
        self._refusals += 1
        if self._busy.total is not None:
            self._samples_due = inf if error.lasting else poll.now
        elif error.lasting or self._refusals >= MOST_REFUSALS:
            self._by_poll(poll)

    def _by_poll(self, poll: Poll) -> None:
        """Settle for what the polls themselves tell, once it is known whether there is GPM."""
        if self._asker.has_gpm is not None:
            self._busy_origin = self._by_activity if self._asker.has_gpm else self._by_utilization
            self._busy_origin(poll)

    def _by_activity(self, poll: Poll) -> None:
        if Tier.MEAN in poll.due:
            mean = poll.answers.get(GRAPHICS_ACTIVITY)
            self._busy.by_activity(poll.now, None if mean is None else percent(mean))

    def _by_utilization(self, poll: Poll) -> None:
        rates = poll.answers.get(UTILIZATION_RATES)
        self._busy.by_utilization(poll.now, None if rates is None else percent(rates["gpu"]))

    def _totals(self, labels: Labels) -> Iterator[Sample]:
        if self._busy.total is not None:
            yield BUSY.sample(self._busy.total.seconds, *labels)
        if self._busy.load is not None:
            yield LOAD.sample(self._busy.load.distribution(), *labels)
        yield from self._transferred.samples(*labels)

    def _computing(self, device: Device, now: float) -> tuple[GpuProcess, ...] | None:
        """Return what computes on the device; what runs in a MIG instance counts there, not for the whole GPU."""
        listed = self._asker.answers(device, (_PROCESSES,), now).get(_PROCESSES)
        if listed is None:
            return None
        mine = (one for one in listed if device.instance is not None or one["gpuInstanceId"] == NO_INSTANCE)
        return tuple(GpuProcess(one["pid"], one["usedGpuMemory"]) for one in mine)


def _rows_of(device: Device) -> Mapping[Tier, tuple[Field, ...]]:
    return _GPU_ROWS if device.instance is None else _INSTANCE_ROWS
