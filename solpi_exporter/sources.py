"""Settings become sources: which there are, in their order of precedence, and which are set aside."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from structlog.typing import FilteringBoundLogger

from solpi_exporter.board import Snapshot, State
from solpi_exporter.clock import Clock, SystemClock
from solpi_exporter.config import THREAD, ProbeSettings, ServerSettings, Settings
from solpi_exporter.engine.dialects.dialect import Dialect
from solpi_exporter.engine.dialects.table import chosen, start_of
from solpi_exporter.engine.endpoint import EndpointSource
from solpi_exporter.engine.listener import Listener
from solpi_exporter.engine.source import POLL_BYTES, WHOLE_LOG, LogSource, LogState, source_name
from solpi_exporter.follow.files import FileFollower
from solpi_exporter.follow.journal import JournalFollower
from solpi_exporter.follow.lines import Lines
from solpi_exporter.follow.watch import DirectoryWatcher
from solpi_exporter.gpu.driver import Driver, XidEvent
from solpi_exporter.gpu.events import XidSource
from solpi_exporter.gpu.nvml import NvmlDriver, attaches_in_a_new_process
from solpi_exporter.gpu.reading import GpuReading, GpuState
from solpi_exporter.gpu.remembered import RememberedGpus
from solpi_exporter.gpu.source import GpuSource
from solpi_exporter.gpu.xid import Xid
from solpi_exporter.host.process import lineage
from solpi_exporter.host.source import EngineProcesses, HostSource
from solpi_exporter.kept import Kept
from solpi_exporter.neighbours import Neighbours
from solpi_exporter.placement import Placer, ServerHint
from solpi_exporter.probe.plan import GENTLE, Opening, Plan
from solpi_exporter.probe.remote import open_remote, tell_nobody
from solpi_exporter.probe.result import Bench
from solpi_exporter.probe.source import ProbeSource, open_bench, torch_is_there
from solpi_exporter.probing import Guard, make_comparison, make_keeper
from solpi_exporter.reloads import Reloads
from solpi_exporter.source import Source
from solpi_exporter.supervisor import Supervisor

LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared with, not listened on
REMEDIES = {
    GpuState.LOST: "look at its XIDs; reset it or reboot; in a container, recreate the container",
    GpuState.HUNG: "see dmesg; reset it or reboot; restarting the exporter would hang in the same place",
    GpuState.RESET_REQUIRED: "solpi-exporter quiesce, nvidia-smi --gpu-reset, solpi-exporter resume",
    GpuState.NO_PERMISSION: "let this user open /dev/nvidia*: device cgroup or file mode",
    GpuState.DRIVER_MISMATCH: "an upgrade is half done: reload the kernel module or reboot",
    GpuState.DRIVER_ABSENT: "is the package installed (ldconfig -p | grep nvidia-ml), the module loaded (lsmod)?",
}
ONE_SHOT_LOG_SECONDS = 600.0  # a log of gigabytes is read to its end


@dataclass(frozen=True, slots=True)
class World:
    """What the daemon meets outside: the clock, the driver, who started it. The demo and the tests bring their own.

    `is_recorded` says that the driver's GPUs are not those of this host, on which the probe runs: they guard nothing.
    `reloads` tells of the settings where they can be loaded again.
    """

    clock: Clock = field(default_factory=SystemClock)
    driver: Driver = field(default_factory=NvmlDriver)
    is_recorded: bool = False
    supervisor: Supervisor = field(default_factory=Supervisor)
    reloads: Reloads | None = None


def make_placer(servers: Sequence[ServerSettings]) -> Placer:
    """Return what finds out which GPUs and processes are whose."""
    return Placer([_hint(server) for server in servers], os.getpid(), lineage)


def bench_opener(
    probe: ProbeSettings, plan: Plan, clock: Clock, started: Callable[[int], None] = tell_nobody
) -> Callable[[], Bench]:
    """Return what opens the bench that is set, in this process or in a worker, of whose pid `started` is told."""
    batches = (*probe.batches, *probe.others)
    wanted = Opening(probe.device, probe.shape, batches, plan, probe.context, probe.layers)
    if probe.isolation == THREAD:
        return partial(open_bench, wanted)
    return partial(open_remote, (probe.python or sys.executable,), clock, wanted, started)


def _hint(server: ServerSettings) -> ServerHint:
    endpoint = urlsplit(server.metrics_url or "")
    port = endpoint.port if endpoint.hostname in LOOPBACK else None  # elsewhere it says nothing of this host
    unit = server.journal
    if unit is not None and "." not in unit:
        unit += ".service"  # as journalctl completes it
    return ServerHint(server.name, tuple(map(str, server.gpus)), unit, None if port is None else str(port))


@dataclass(frozen=True, slots=True)
class Sources:
    """Makes the sources of a daemon; `snapshot` gives the board as it stands, `quiet` is the probe's lock.

    `one_shot` reads logs from their beginning, to their end, in one poll.
    """

    settings: Settings
    world: World
    log: FilteringBoundLogger
    quiet: threading.Lock
    snapshot: Callable[[], Snapshot]
    placer: Placer
    kept: Kept
    remembered: RememberedGpus
    neighbours: Neighbours
    one_shot: bool = False

    @property
    def servers(self) -> tuple[ServerSettings, ...]:
        """The servers that are followed."""
        return self.settings.engine.server if self.settings.engine.enabled else ()

    def polled(self) -> Iterator[Source]:
        """Yield what is to be polled, in the order of precedence: an endpoint is more exact than a log."""
        if self.settings.gpu.enabled:
            yield from self._gpu()
        yield from self._engine()
        if self.settings.host.enabled:
            yield HostSource(self._processes, self.settings.host.interval)
        if self._probe_state() is None:
            yield self._probe()

    def set_aside(self) -> Iterator[tuple[str, State]]:
        """Yield what is not polled, with the reason."""
        if not self.settings.gpu.enabled:
            yield "gpu", State.OFF
        if not self.servers:
            yield "engine", State.ABSENT if self.settings.engine.enabled else State.OFF
        if not self.settings.host.enabled:
            yield "host", State.OFF
        state = self._probe_state()
        if state is not None:
            yield "probe", state

    def _gpu(self) -> Iterator[Source]:
        gpu, world = self.settings.gpu, self.world
        yield GpuSource(
            world.driver,
            world.clock,
            gpu.interval,
            gpu.timeout,
            self.remembered,
            attaches_in_a_new_process,
            self._report_gpu,
        )
        if not self.one_shot:
            yield XidSource(world.driver, world.clock, self._gpus, self._report_xid)

    def _gpus(self) -> Iterator[tuple[int, str]]:
        """Yield index and UUID of every GPU that answers."""
        for entry in self.snapshot().entries:
            for reading in entry.readings:
                if isinstance(reading, GpuReading) and reading.up and not reading.instance:
                    yield reading.index, reading.uuid

    def _processes(self) -> list[EngineProcesses]:
        """Return the servers' processes, in the host's thread: reading about one that hangs may take long."""
        snapshot = self.snapshot()
        self.placer.learn(snapshot)
        return self.placer.place(snapshot).processes()

    def _report_gpu(self, reading: GpuReading, reason: str) -> None:
        log = self.log.info if reading.up else self.log.error
        remedy = {} if reading.up else {"remedy": REMEDIES[reading.state]}
        log(
            "gpu_state",
            gpu=reading.index,
            uuid=reading.uuid,
            pci_bus_id=reading.bus_id,
            state=reading.state.value,
            reason=reason,
            **remedy,
        )

    def _report_xid(self, event: XidEvent, xid: Xid, count: int) -> None:
        self.log.error(
            "gpu_xid",
            gpu=event.gpu,
            uuid=event.uuid,
            xid=event.xid,
            meaning=xid.meaning,
            action=xid.action.value,
            count=count,
            **{"class": xid.kind.value},
        )

    def _engine(self) -> Iterator[Source]:
        engine = self.settings.engine
        endpoints = {
            server.name: EndpointSource(
                server.name,
                server.metrics_url,
                engine.endpoint_interval,
                engine.endpoint_timeout,
                show_histograms=engine.histograms,
            )
            for server in self.servers
            if server.metrics_url is not None
        }
        yield from endpoints.values()
        for server in self.servers:
            if server.logs or server.journal is not None:
                yield self._log_source(server, endpoints.get(server.name))

    def _log_source(self, server: ServerSettings, endpoint: EndpointSource | None) -> LogSource:
        dialects = chosen(server.dialect)
        name = source_name(server.name)
        saved = self.kept.read(name, LogState)
        return LogSource(
            server.name,
            self._lines(server, dialects, saved or LogState()),
            Listener(dialects, server.envelope, () if saved is None else saved.unfinished),
            self.world.clock,
            timeout=ONE_SHOT_LOG_SECONDS if self.one_shot else self.settings.engine.log_timeout,
            poll_bytes=WHOLE_LOG if self.one_shot else POLL_BYTES,
            is_dead=lambda: endpoint is not None and endpoint.refused,
            saved=saved,
            save=lambda state, often: self.kept.write(name, state, often=often),
            counters=endpoint is None,
            report=lambda dialect: self.log.info("engine_recognised", server=server.name, dialect=dialect),
        )

    def _lines(self, server: ServerSettings, dialects: Sequence[Dialect], state: LogState) -> Lines:
        beginning = self.one_shot or self.settings.engine.read_from == "beginning"
        if server.journal is not None:
            return JournalFollower(
                server.journal,
                from_beginning=beginning,
                follow=not self.one_shot,
                clock=self.world.clock,
                position=state.position,
                counters=state.counters,
            )
        return FileFollower(
            server.logs,
            from_beginning=beginning,
            start=start_of(dialects),
            watcher=DirectoryWatcher(),
            clock=self.world.clock,
            position=state.position,
            counters=state.counters,
            report=partial(self._report_loss, server.name),
        )

    def _report_loss(self, server: str, log: str, lost: int) -> None:
        self.log.warning(
            "log_bytes_lost",
            server=server,
            log=log,
            bytes=lost,
            remedy="keep rotated files for a while: logrotate's `rotate` above 0, `delaycompress`",
        )

    def _probe(self) -> ProbeSource:
        settings, probe, world = self.settings, self.settings.probe, self.world
        state_dir = None if settings.state_dir is None or self.one_shot else Path(settings.state_dir)
        return ProbeSource(
            bench_opener(probe, GENTLE, world.clock, self.placer.adopt),
            probe.batches,
            self.quiet,
            world.clock,
            probe.interval,
            probe.others,
            Guard(probe, Neighbours(world.clock) if world.is_recorded else self.neighbours, self.log),
            make_comparison(probe, self.kept, state_dir, self.log, world.clock, self.snapshot),
            make_keeper(self.kept, self.log, world.clock),
        )

    def _probe_state(self) -> State | None:
        """Return why the probe does not run, None where it does."""
        match self.settings.probe.enabled:
            case False:
                return State.OFF
            case "auto" if self.settings.probe.isolation == THREAD and not torch_is_there():
                return State.ABSENT
        return None
