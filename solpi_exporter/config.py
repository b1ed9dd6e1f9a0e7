"""The settings: typed, frozen, every one with a default; what is wrong dies at start in one line that names its key.

Sources receive plain values, never these objects, so nothing below the daemon imports this module.
"""

import re
from collections.abc import Iterable
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from solpi_exporter.engine.dialects.table import DIALECTS
from solpi_exporter.engine.envelope import ENVELOPES
from solpi_exporter.logsetup import FORMATS, LEVELS
from solpi_exporter.probe.shape import KV_BLOCK, SHAPES

Seconds = Annotated[float, Meta(ge=0.1, le=86400)]
GpuIndex = Annotated[int, Meta(ge=0)]
Batch = Annotated[int, Meta(ge=1, le=256)]

READ_FROM = ("beginning", "end")
THREAD, WORKER = "thread", "worker"

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]*")
_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def listen_address(listen: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT" (":PORT" is every address, "[::1]:PORT" IPv6); raise ValueError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ValueError(f"listen: expected HOST:PORT, such as 127.0.0.1:10048 or :10048, got {listen!r}")
    return host.strip("[]"), int(port)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _one_of(key: str, value: object, choices: Iterable[object]) -> None:
    if value not in choices:
        expected = ", ".join(str(choice).lower() for choice in choices)
        raise ValueError(f"{key}: expected one of {expected}, got {value!r}")


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file. A rule in `__post_init__` raises ValueError with "key: what was expected"."""


class HttpSettings(Section, frozen=True):
    """Where the exporter listens, whether it may be asked there to reload, and the file that protects it."""

    listen: str = ":10048"
    reload: bool = False
    web_config: str | None = None

    def __post_init__(self) -> None:
        listen_address(self.listen)


class GpuSettings(Section, frozen=True):
    """The GPUs, through NVML. `expected` is how many there should be, by default the most that ever were."""

    enabled: bool = True
    interval: Seconds = 5.0
    timeout: Seconds = 3.0
    expected: Annotated[int, Meta(ge=0)] | None = None


class HostSettings(Section, frozen=True):
    """The host's CPUs, and what they give the serving engines."""

    enabled: bool = True
    interval: Seconds = 15.0


class ServerSettings(Section, frozen=True):
    """One serving engine: its log or the journal of its unit, its /metrics, or both; `gpus` are indices or UUIDs."""

    name: str
    log: str | tuple[str, ...] = ()
    journal: str | None = None
    metrics_url: str | None = None
    gpus: tuple[GpuIndex | str, ...] = ()
    dialect: str = "auto"
    envelope: str = "auto"

    @property
    def logs(self) -> tuple[str, ...]:
        """The log's paths and patterns."""
        return (self.log,) if isinstance(self.log, str) else self.log

    def __post_init__(self) -> None:
        if not _SERVER_NAME.fullmatch(self.name):
            raise ValueError(f"name: expected up to 64 letters, digits or _.:- , got {self.name!r}")
        if not self.logs and self.journal is None and self.metrics_url is None:
            raise ValueError("log: expected a path or pattern here, or a journal or metrics_url")
        if not all(self.logs):
            raise ValueError("log: expected a path or pattern, got an empty text")
        if self.logs and self.journal is not None:
            raise ValueError("journal: expected log or journal, got both")
        if self.journal is not None and not _UNIT.fullmatch(self.journal):
            raise ValueError(f"journal: expected a unit such as vllm.service, got {self.journal!r}")
        if self.metrics_url is not None and not _is_url(self.metrics_url):
            raise ValueError(f"metrics_url: expected http://HOST:PORT/metrics, got {self.metrics_url!r}")
        _one_of("dialect", self.dialect, ("auto", *DIALECTS))
        _one_of("envelope", self.envelope, ENVELOPES)


class EngineSettings(Section, frozen=True):
    """The serving engines of this host."""

    enabled: bool = True
    read_from: str = "end"
    log_timeout: Seconds = 30.0
    endpoint_interval: Seconds = 15.0
    endpoint_timeout: Seconds = 5.0
    histograms: bool = True
    server: tuple[ServerSettings, ...] = ()

    def __post_init__(self) -> None:
        _one_of("read_from", self.read_from, READ_FROM)
        names = [server.name for server in self.server]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"server: expected a name of its own for each, got {', '.join(sorted(twice))} twice")


class ProbeSettings(Section, frozen=True):
    """The decode probe. "auto" runs it where torch can be imported; a worker finds that out itself, under `python`.

    `baseline` is a file of `probe --save-baseline`.
    """

    enabled: bool | str = "auto"
    interval: Seconds = 300.0
    isolation: str = THREAD
    python: str | None = None
    device: str = "auto"
    shape: str = "auto"
    context: Annotated[int, Meta(ge=KV_BLOCK, le=1 << 17)] | None = None
    layers: Annotated[int, Meta(ge=1, le=128)] | None = None
    batches: Annotated[tuple[Batch, ...], Meta(min_length=1)] = (1, 8, 32)
    rotation: tuple[Batch, ...] = (2, 4, 16, 64)
    baseline: str | None = None

    def __post_init__(self) -> None:
        _one_of("enabled", self.enabled, (True, False, "auto"))
        if not _DEVICE.fullmatch(self.device):
            expected = "auto, cpu, cuda, cuda:N or a UUID as nvidia-smi -L prints it"
            raise ValueError(f"device: expected {expected}, got {self.device!r}")
        _one_of("isolation", self.isolation, (THREAD, WORKER))
        if self.python is not None and self.isolation != WORKER:
            raise ValueError(f'python: expected with isolation = "worker" only, got {self.python!r}')
        _one_of("shape", self.shape, ("auto", *SHAPES))
        for name in ("batches", "rotation"):
            sizes = getattr(self, name)
            if len(set(sizes)) < len(sizes):
                raise ValueError(f"{name}: expected each size once, got {list(sizes)}")

    @property
    def others(self) -> tuple[int, ...]:
        """Batch sizes of which each cycle takes one in turn, beside those that it takes every time."""
        return tuple(size for size in self.rotation if size not in self.batches)


class LogSettings(Section, frozen=True):
    """The exporter's own log, on standard error."""

    format: str = "auto"
    level: str = "info"

    def __post_init__(self) -> None:
        _one_of("format", self.format, FORMATS)
        _one_of("level", self.level, LEVELS)


class Settings(Section, frozen=True):
    """The whole configuration."""

    state_dir: str | None = None
    http: HttpSettings = HttpSettings()
    gpu: GpuSettings = GpuSettings()
    host: HostSettings = HostSettings()
    engine: EngineSettings = EngineSettings()
    probe: ProbeSettings = ProbeSettings()
    log: LogSettings = LogSettings()
