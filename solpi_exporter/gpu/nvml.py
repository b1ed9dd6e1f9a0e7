"""The door to NVML: calls by name on nvidia-ml-py, plain values back, errors graded by their code.

GPM's pairs of samples are kept in `gpu/nvml_gpm.py`, the set of awaited events in `gpu/nvml_events.py`.
"""

import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from solpi_exporter.gpu.driver import (
    FUNCTION_NOT_FOUND,
    GONE,
    UNKNOWN,
    VERSION_MISMATCH,
    BadHandle,
    Device,
    DriverAbsent,
    DriverFailed,
    GpuLost,
    Unavailable,
    XidEvent,
)
from solpi_exporter.gpu.nvml_events import EventSet
from solpi_exporter.gpu.nvml_gpm import Gpm

Answer = TypeVar("Answer")

IDENTITY = "nvmlDeviceGetUUID"
COUNT = "nvmlDeviceGetCount"
ATTACH_SECONDS = 10.0
STOP_SECONDS = 1.5  # an event wait in flight takes a second

_ABSENT = {pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
_DRIVER_WIDE = {*_ABSENT, pynvml.NVML_ERROR_UNINITIALIZED, VERSION_MISMATCH}
_SAMPLE = struct.Struct("=QI4x")  # a sample's time stamp, and its value as an unsigned int
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by NVML's value type


class NvmlDriver:
    """NVML by nvidia-ml-py. Initialised once and held: repeated initialisation hangs some drivers.

    Any number of threads may call, since NVML is thread-safe; GPM's calls are serialised, since they are not.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._handles: dict[Device, Any] = {}
        self._lost: dict[int, tuple[Device, str]] = {}
        self._count: int | None = None
        self._gpm = Gpm()
        self._events = EventSet()
        self._attached = threading.Event()
        self._waiting = threading.Lock()

    def connect(self) -> None:
        """Load libnvidia-ml.so.1 and attach; raise DriverAbsent where there is no driver."""
        refuse_shadowing_pynvml()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value in _ABSENT:
                raise DriverAbsent(
                    f"no NVIDIA driver on this host (nvmlInit: {error}); install it, or start with --no-gpu"
                ) from error
            raise DriverFailed(_message("nvmlInit", error), error.value) from error
        self.epoch += 1
        self._attached.set()

    def query(self, call: str, *args: int) -> Any:
        """Call `pynvml.<call>(*args)`."""
        try:
            answer = plain(self._call(call, *args))
        except GpuLost as error:  # which of them, it does not say
            raise Unavailable(str(error), error.code) from error
        if call == COUNT and answer != self._count:
            self._count = answer
            self._forget_all()
        return answer

    def ask(self, device: Device, call: str, *args: int) -> Any:
        """Call `pynvml.<call>(handle, *args)` with the device's handle."""
        return plain(self._with_handle(device, call, lambda handle: self._call(call, handle, *args)))

    def fields(self, device: Device, wanted: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], float]:
        """Return those of the `wanted` field values (id, scope) that the device has."""
        call = "nvmlDeviceGetFieldValues"
        values = self._with_handle(device, call, lambda handle: self._call(call, handle, list(wanted)))
        return {
            (value.fieldId, value.scopeId): getattr(value.value, _VALUE_MEMBERS[value.valueType])
            for value in values
            if value.nvmlReturn == pynvml.NVML_SUCCESS and value.valueType < len(_VALUE_MEMBERS)
        }

    def samples(self, device: Device, kind: int, since: int) -> list[tuple[int, int]]:
        """Return the sample buffer of unsigned values (`nvmlDeviceGetSamples`); empty when there is nothing new."""
        call = "nvmlDeviceGetSamples"
        try:
            _, values = self._with_handle(device, call, lambda handle: self._call(call, handle, kind, since))
        except Unavailable as error:
            if error.code == pynvml.NVML_ERROR_NOT_FOUND:
                return []
            raise
        return [_SAMPLE.unpack(value) for value in values]

    def activity(self, device: Device, wanted: Sequence[int]) -> Mapping[int, float]:
        """Return GPM's means since the last call for this device; the first call returns nothing."""
        whole = Device(device.gpu)
        instance = None if device.instance is None else int(self.ask(device, "nvmlDeviceGetGpuInstanceId"))

        def means(handle: Any) -> Mapping[int, float]:
            try:
                return self._gpm.means(device, handle, instance, wanted)
            except pynvml.NVMLError as error:
                raise graded("GPM", error) from error

        return self._with_handle(whole, "GPM", means)

    def wait_xid(self, seconds: float) -> XidEvent | None:
        """Wait for the next critical error of any GPU, None when there was none."""
        if not self._attached.wait(max(seconds, 0.1)):
            raise DriverAbsent("no NVIDIA driver is attached, so no XIDs are told; why, the source gpu says")
        with self._waiting:
            try:
                if self._events.epoch != self.epoch:
                    self._events.register(self.epoch, self._whole_gpus())
                return self._events.wait(seconds)
            except pynvml.NVMLError as error:
                self._events.free()
                raise graded("nvmlEventSetWait", error) from error

    def close(self) -> None:
        """Detach, whatever the driver says to that; the library stays mapped for the life of the process.

        A library that is shut down under a call in flight crashes the process: one that an event wait or a
        registration does not leave in time stays attached.
        """
        self._attached.clear()
        self._handles.clear()
        self._lost.clear()
        self.epoch += 1
        if self._waiting.acquire(timeout=STOP_SECONDS):
            self._events.free()
            self._gpm.free()
            if not self._events.is_stuck:
                with suppress(pynvml.NVMLError):
                    pynvml.nvmlShutdown()
            self._waiting.release()

    def _handle(self, device: Device) -> Any:
        if device not in self._handles:
            if device.instance is None:
                handle = self._call("nvmlDeviceGetHandleByIndex", device.gpu)
            else:
                whole = self._handle(Device(device.gpu))
                handle = self._call("nvmlDeviceGetMigDeviceHandleByIndex", whole, device.instance)
            self._handles[device] = handle
            if device.instance is None and device.gpu not in self._lost:
                self.epoch += 1  # its events can be waited for now
        return self._handles[device]

    def _with_handle(self, device: Device, call: str, job: Callable[[Any], Answer]) -> Answer:
        """Do a job with the device's handle; let go of a GPU that is lost, and notice when it is back.

        What would concern the whole driver is its GPU's alone, as long as NVML can be asked how many GPUs there are.
        """
        lost = False
        try:
            return job(self._handle(device))
        except DriverFailed as error:
            lost = True
            raise GpuLost(str(error), error.code or UNKNOWN) from error
        except (GpuLost, Unavailable) as error:
            # The identity needs nothing but the handle; elsewhere a refusal may be for the other arguments.
            refused = call == IDENTITY and (isinstance(error, BadHandle) or device.instance is None)
            lost = isinstance(error, GpuLost) or refused
            raise
        finally:
            if lost or self._lost:
                self._note_loss(device, call, lost=lost)

    def _note_loss(self, device: Device, call: str, *, lost: bool) -> None:
        """Keep which GPUs are lost: one is back when the same call for the same device no longer says so.

        The epoch changes at either, not while it lasts: each change costs the events that come during a registration.
        """
        if lost:
            self._forget(device.gpu)
        if lost and device.gpu not in self._lost:
            self._lost[device.gpu] = (device, call)
            self.epoch += 1
        elif not lost and self._lost.get(device.gpu) == (device, call):
            del self._lost[device.gpu]
            self.epoch += 1

    def _whole_gpus(self) -> dict[int, Any]:
        """Return the handles of those that have answered once; of others nothing is known yet."""
        return {one.gpu: handle for one, handle in list(self._handles.items()) if one.instance is None}

    def _forget_all(self) -> None:
        """Drop every handle: when NVML lists more or fewer GPUs, an index may mean another one."""
        for gpu in {one.gpu for one in list(self._handles)}:
            self._forget(gpu)
        self.epoch += 1

    def _forget(self, gpu: int) -> None:
        """Drop a GPU's handles, and what was made with them."""
        for one in [one for one in list(self._handles) if one.gpu == gpu]:
            self._handles.pop(one, None)
        self._gpm.forget(gpu)

    def _call(self, call: str, *args: Any) -> Any:
        function = getattr(pynvml, call, None)
        if function is None:
            raise Unavailable(f"{call}: not in the installed nvidia-ml-py", FUNCTION_NOT_FOUND)
        try:
            return function(*args)
        except pynvml.NVMLError as error:
            raise graded(call, error) from error
        except pynvml.NVMLLibraryMismatchError as error:  # no NVMLError: the driver is older than the binding's call
            raise Unavailable(f"{call}: {error}", FUNCTION_NOT_FOUND) from error
        except UnicodeDecodeError as error:  # the binding decodes names by itself
            raise Unavailable(f"{call}: {error}", UNKNOWN) from error


def refuse_shadowing_pynvml() -> None:
    """Raise DriverFailed when an old distribution named `pynvml` has put its module before nvidia-ml-py's."""
    try:
        shim = distribution("pynvml")
    except PackageNotFoundError:
        return
    if any(shim.locate_file(file) == Path(pynvml.__file__) for file in shim.files or ()):
        raise DriverFailed(
            f"the distribution pynvml {shim.version} shadows nvidia-ml-py: run "
            "`pip uninstall -y pynvml && pip install --force-reinstall nvidia-ml-py`"
        )


def graded(call: str, error: pynvml.NVMLError) -> Exception:
    """Turn an NVML error into ours by its code, which, unlike its class, is known for every release."""
    message, code = _message(call, error), error.value
    if code in _DRIVER_WIDE:
        return DriverFailed(message, code)
    if code in GONE:
        return GpuLost(message, code)
    if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
        return BadHandle(message, code)
    return Unavailable(message, code)


def _message(call: str, error: pynvml.NVMLError) -> str:
    return f"{call}: {error} (NVML error {error.value})"


def plain(value: Any) -> Any:
    """Turn a struct into a dict, bytes into text, a tuple into a list; leave numbers as they are."""
    match value:
        case int() | float() | str() | None:
            return value
        case bytes():
            return value.decode(errors="replace")
        case list() | tuple():
            return [plain(one) for one in value]
        case pynvml.nvmlFriendlyObject():
            return {name: plain(one) for name, one in vars(value).items()}
        case pynvml.Structure():
            return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    return value


def attaches_in_a_new_process() -> bool:
    """Whether NVML can be initialised by a process that loads the library as it lies on disk now.

    A library that is mapped is never unloaded, so after an upgrade of the driver this process keeps the old one.
    """
    attach = "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()"
    try:
        child = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", attach], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except OSError:
        return False
    try:
        return child.wait(ATTACH_SECONDS) == 0
    except subprocess.TimeoutExpired:
        child.kill()  # and not waited for: in the kernel it may not even die
        return False
