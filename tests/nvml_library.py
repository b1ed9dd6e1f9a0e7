"""A stand-in for NVML's C library, called by the real pynvml: answers what a recording says NVML answered.

Most functions need no code: which key of the recording they ask for, and how their out-arguments are filled, follows
from the ctypes that the binding passes. Those that keep state or have a protocol of their own are in `_OWN`.
"""

import ctypes
import re
from collections.abc import Callable
from math import fsum
from typing import Any

import pynvml
import pytest

from solpi_exporter.gpu.driver import Device
from solpi_exporter.gpu.recording import Recording, key_of
from tests.nvml_objects import ULL, Event, Refused, Sample, Set, address_of, fill, fill_union, known, point

NOT_TOLD = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
SUPPORTED_EVENTS = pynvml.nvmlEventTypeAll  # of a GPU whose recording does not say


class NvmlLibrary:
    """Stands where pynvml keeps the loaded library. `now` is the instant of the recording that is answered from.

    `calls` lists every call as a recording's key is written, without version suffixes. `answers` goes before the
    recording; an answer {"error": code} becomes that code. A function in `missing` is not exported, which must be said
    before it is first called. One in `hooks` calls the hook first, in the caller's thread. `value_types` gives the type
    of a field value by its id, where the answer's own (double or unsigned long long) will not do.
    """

    def __init__(self, recording: Recording) -> None:
        self.now = recording.start
        self.calls: list[str] = []
        self.answers: dict[str, Any] = {}
        self.missing: set[str] = set()
        self.hooks: dict[str, Callable[[], None]] = {}
        self.value_types: dict[int, int] = {}
        self.references = 0
        self.sets: dict[int, Set] = {}
        self.samples: dict[int, Sample] = {}
        self._recording = recording
        self._failures: dict[tuple[str | None, int | None], int] = {}
        self._handles: dict[Device, int] = {}
        self._memory: list[ctypes.Array[ctypes.c_char]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return an exported function."""
        if not name.startswith("nvml") or name in self.missing:
            raise AttributeError(name)
        call = re.sub(r"_v\d+$", "", name)
        body = _OWN.get(call)

        # A function of its own for each look-up, since the binding sets `restype` on some.
        def function(*args: Any) -> Any:
            if call == "nvmlErrorString":
                return b"error %d of the driver" % args[0]
            try:
                self._begin(call, args)
                if body is None:
                    self._by_key(call, *args)
                else:
                    body(self, *args)
            except Refused as refused:
                return refused.code
            return pynvml.NVML_SUCCESS

        return function

    # What a test does to it.

    def count(self, call: str) -> int:
        """Return how often a function was called."""
        return sum(key.split()[1] == call for key in self.calls)

    def fail(self, call: str, code: int, gpu: int | None = None) -> None:
        """Let a function return a code, for one GPU and its instances or for all; 0 lets it work again."""
        self._failures[call, gpu] = code

    def lose(self, gpu: int, code: int = pynvml.NVML_ERROR_GPU_IS_LOST) -> None:
        """Let everything that is asked of a GPU fail, as after it fell off the bus."""
        self._failures[None, gpu] = code

    def bring_back(self, gpu: int) -> None:
        """Let a lost GPU answer; it knows nothing of the handles and registrations of before."""
        self._failures.pop((None, gpu), None)
        for device in [device for device in self._handles if device.gpu == gpu]:
            del self._handles[device]
            for one in self.sets.values():
                one.masks.pop(device, None)

    def happen(self, gpu: int, data: int, kind: int = pynvml.nvmlEventTypeXidCriticalError) -> None:
        """Let an event happen to a GPU: it goes to every set that the GPU is registered with for that kind."""
        for one in self.sets.values():
            if one.masks.get(Device(gpu), 0) & kind:
                one.events.append(Event(self._handle(Device(gpu)), kind, data))

    def new_address(self) -> int:
        """Return an address of which the library knows nothing yet."""
        self._memory.append(ctypes.create_string_buffer(16))
        return ctypes.addressof(self._memory[-1])

    # How any function begins, and how most go on.

    def _begin(self, call: str, args: tuple[Any, ...]) -> None:
        device = self._device(args[0]) if args and isinstance(args[0], pynvml.c_nvmlDevice_t) else None
        text = any(hasattr(arg, "raw") for arg in args)  # then the one in-argument is the buffer's size
        inputs: list[Any] = [getattr(arg, "value", arg) for arg in args if isinstance(arg, int | ctypes._SimpleCData)]
        self.calls.append(key_of(device, call, *(() if text else inputs)))
        self.hooks.get(call, lambda: None)()
        if not self.references and call != "nvmlInitWithFlags":
            raise Refused(pynvml.NVML_ERROR_UNINITIALIZED)
        keys: list[tuple[str | None, int | None]] = [(call, None)]
        keys += [(call, device.gpu), (None, device.gpu)] if device is not None else []
        for code in filter(None, map(self._failures.get, keys)):
            raise Refused(code)

    def _by_key(self, call: str, *args: Any) -> None:
        """Fill the out-arguments with the answer under the key of the function and its in-arguments."""
        device = None
        if isinstance(args[0], pynvml.c_nvmlDevice_t):
            device, args = self._device(args[0]), args[1:]
        if isinstance(args[0], ctypes.Array):  # a buffer for text, then its size
            args[0].value = self._answer(device, call).encode()
            return
        inputs = [arg.value for arg in args if not hasattr(arg, "_obj")]
        outputs = [arg._obj for arg in args if hasattr(arg, "_obj")]
        inputs += [output.version for output in outputs if hasattr(output, "version")]
        answer = self._answer(device, call, *inputs)
        for output, value in zip(outputs, answer if len(outputs) > 1 else [answer], strict=True):
            fill(output, value)

    def _answer(self, device: Device | None, what: str, *args: int) -> Any:
        key = key_of(device, what, *args)
        if key in self.answers:
            answer = self.answers[key]
        elif key in self._recording.tracks:
            answer = self._recording.tracks[key].at(self.now)
        else:
            raise Refused(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if isinstance(answer, dict) and "error" in answer:
            raise Refused(answer["error"])
        return answer

    # Handles.

    def _device(self, handle: Any) -> Device:
        address = address_of(handle)
        for device, own in self._handles.items():
            if own == address:
                return device
        raise Refused(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def _handle(self, device: Device) -> int:
        return self._handles.setdefault(device, self.new_address())

    def _by_index(self, index: Any, handle: Any) -> None:
        if index.value >= self._answer(None, "nvmlDeviceGetCount"):
            raise Refused(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if code := self._failures.get((None, index.value)):
            raise Refused(code)
        point(handle, self._handle(Device(index.value)))

    def _mig_by_index(self, gpu: Any, position: Any, handle: Any) -> None:
        device = Device(self._device(gpu).gpu, position.value)
        try:
            self._answer(device, "nvmlDeviceGetUUID")
        except Refused as refused:
            absent = refused.code == pynvml.NVML_ERROR_NOT_SUPPORTED
            raise Refused(pynvml.NVML_ERROR_NOT_FOUND if absent else refused.code) from None
        point(handle, self._handle(device))

    # Life cycle.

    def _init(self, flags: int) -> None:
        self.references += 1

    def _shutdown(self) -> None:
        self.references -= 1
        if not self.references:
            self._handles.clear()

    # Values by the dozen.

    def _field_values(self, handle: Any, count: Any, values: Any) -> None:
        device = self._device(handle)
        assert count.value == len(values._obj)
        for one in values._obj:
            try:
                answer = self._answer(device, "field", one.fieldId, one.scopeId)
            except Refused as refused:
                one.nvmlReturn = refused.code
                continue
            usual = pynvml.NVML_VALUE_TYPE_DOUBLE if isinstance(answer, float) else ULL
            one.valueType = self.value_types.get(one.fieldId, usual)
            fill_union(one.value, one.valueType, answer)

    def _processes(self, handle: Any, count: Any, array: Any) -> None:
        listed = self._answer(self._device(handle), "nvmlDeviceGetComputeRunningProcesses")
        room, count._obj.value = count._obj.value, len(listed)
        if room < len(listed):
            raise Refused(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for place, process in enumerate(listed):
            told = process["usedGpuMemory"] is not None
            fill(array[place], process if told else {**process, "usedGpuMemory": NOT_TOLD})

    def _buffer(self, handle: Any, kind: Any, since: Any, value_type: Any, count: Any, array: Any) -> None:
        """The first call tells the buffer's size, the second one brings what is new."""
        device = self._device(handle)
        key = key_of(device, "samples", kind.value)
        self._answer(device, "samples", kind.value)
        past = self._recording.tracks[key].between(float("-inf"), self.now)
        entries = [entry for answer in past if isinstance(answer, list) for entry in answer]
        new = [entry for entry in entries if entry[0] > since.value]
        value_type._obj.value = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        if array is None:
            count._obj.value = len(entries)
            return
        if entries and not new:
            raise Refused(pynvml.NVML_ERROR_NOT_FOUND)
        count._obj.value = len(new)
        for place, (stamp, value) in enumerate(new):
            array[place].timeStamp = stamp
            fill_union(array[place].sampleValue, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, value)

    # GPM.

    def _gpm_support(self, handle: Any, support: Any) -> None:
        mark = key_of(self._device(handle), "gpm")
        keys = (*self._recording.tracks, *self.answers)
        instances = f"{self._device(handle).gpu}/"
        found = any(key.startswith(f"{mark} ") or (key.startswith(instances) and " gpm " in key) for key in keys)
        support._obj.isSupportedDevice = int(found)

    def _gpm_alloc(self, sample: Any) -> None:
        address = self.new_address()
        self.samples[address] = Sample()
        point(sample, address)

    def _gpm_free(self, sample: Any) -> None:
        known(self.samples, sample)
        del self.samples[address_of(sample)]

    def _gpm_get(self, handle: Any, sample: Any) -> None:
        self._gpm_take(self._device(handle), sample)

    def _gpm_mig_get(self, handle: Any, instance: int, sample: Any) -> None:
        gpu = self._device(handle).gpu
        instances = (one for one in self._handles if one.gpu == gpu and one.instance is not None)
        for device in instances:
            if self._answer(device, "nvmlDeviceGetGpuInstanceId") == instance:
                return self._gpm_take(device, sample)
        raise Refused(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def _gpm_take(self, device: Device, sample: Any) -> None:
        taken = known(self.samples, sample)
        taken.device, taken.time, taken.number = device, self.now, len(self.calls)

    def _gpm_metrics(self, request: Any) -> None:
        asked = request._obj
        first, second = known(self.samples, asked.sample1), known(self.samples, asked.sample2)
        if asked.version != 1 or first.device is None or first.device != second.device or first.number >= second.number:
            raise Refused(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        for one in asked.metrics[: asked.numMetrics]:
            try:
                means = [self._answer(second.device, "gpm", one.metricId)]
            except Refused as refused:
                one.nvmlReturn = refused.code
                continue
            key = key_of(second.device, "gpm", one.metricId)
            if key not in self.answers:
                past = self._recording.tracks[key].between(first.time, second.time)
                means = [mean for mean in past if not isinstance(mean, dict)]
            one.value = fsum(means) / len(means)

    # Events.

    def _supported_events(self, handle: Any, mask: Any) -> None:
        try:
            mask._obj.value = self._answer(self._device(handle), "nvmlDeviceGetSupportedEventTypes")
        except Refused as refused:
            if refused.code != pynvml.NVML_ERROR_NOT_SUPPORTED:
                raise
            mask._obj.value = SUPPORTED_EVENTS

    def _create_set(self, event_set: Any) -> None:
        address = self.new_address()
        self.sets[address] = Set()
        point(event_set, address)

    def _free_set(self, event_set: Any) -> None:
        known(self.sets, event_set)
        del self.sets[address_of(event_set)]

    def _register(self, handle: Any, mask: Any, event_set: Any) -> None:
        known(self.sets, event_set).masks[self._device(handle)] = mask.value

    def _wait(self, event_set: Any, data: Any, milliseconds: Any) -> None:
        """Return what has happened, or that the time is over, without letting any pass: a hook may."""
        events = known(self.sets, event_set).events
        if not events:
            raise Refused(pynvml.NVML_ERROR_TIMEOUT)
        event = events.popleft()
        ctypes.c_void_p.from_buffer(data._obj, type(data._obj).device.offset).value = event.handle
        data._obj.eventType, data._obj.eventData = event.type, event.data


_OWN: dict[str, Callable[..., None]] = {
    "nvmlInitWithFlags": NvmlLibrary._init,
    "nvmlShutdown": NvmlLibrary._shutdown,
    "nvmlDeviceGetHandleByIndex": NvmlLibrary._by_index,
    "nvmlDeviceGetMigDeviceHandleByIndex": NvmlLibrary._mig_by_index,
    "nvmlDeviceGetFieldValues": NvmlLibrary._field_values,
    "nvmlDeviceGetComputeRunningProcesses": NvmlLibrary._processes,
    "nvmlDeviceGetSamples": NvmlLibrary._buffer,
    "nvmlGpmQueryDeviceSupport": NvmlLibrary._gpm_support,
    "nvmlGpmSampleAlloc": NvmlLibrary._gpm_alloc,
    "nvmlGpmSampleFree": NvmlLibrary._gpm_free,
    "nvmlGpmSampleGet": NvmlLibrary._gpm_get,
    "nvmlGpmMigSampleGet": NvmlLibrary._gpm_mig_get,
    "nvmlGpmMetricsGet": NvmlLibrary._gpm_metrics,
    "nvmlDeviceGetSupportedEventTypes": NvmlLibrary._supported_events,
    "nvmlEventSetCreate": NvmlLibrary._create_set,
    "nvmlEventSetFree": NvmlLibrary._free_set,
    "nvmlDeviceRegisterEvents": NvmlLibrary._register,
    "nvmlEventSetWait": NvmlLibrary._wait,
}


def install(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> NvmlLibrary:
    """Put a library into pynvml, as if it had been loaded; the end of the test undoes it."""
    library = NvmlLibrary(recording)
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    known_texts = dict(pynvml.NVMLError._errcode_to_string)
    monkeypatch.setattr(pynvml.NVMLError, "_errcode_to_string", known_texts)
    return library
