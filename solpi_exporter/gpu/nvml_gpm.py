"""GPM behind the door to NVML: two samples a device, of which the older is the beginning of the next mean.

Hopper and later. NVML's documentation asks for 100 ms at least between two samples.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import Any

import pynvml

from solpi_exporter.gpu.driver import NOT_READY, NOT_SUPPORTED, Device, Unavailable

PATIENCE_SECONDS = 0.1  # well below what a poll grants each GPU: one whose GPM hangs must not make others look hung


@dataclass(slots=True)
class _Pair:
    """The sample of the last call, and one to be overwritten by the next."""

    last: Any
    spare: Any


class Gpm:
    """The pairs of all devices. Calls on several devices at once have crashed processes, so one lock is round all.

    Its methods raise NVMLError, or Unavailable without GPM or while another device's call does not return.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_vain = False
        self._pairs: dict[Device, _Pair] = {}

    def means(self, device: Device, gpu: Any, instance: int | None, wanted: Sequence[int]) -> Mapping[int, float]:
        """Return the mean of each metric since the last call for `device`; nothing at the first.

        `gpu` is the handle of the whole GPU, `instance` the GPU instance id of a MIG device.
        """
        taken = self._lock.acquire(timeout=0.0 if self._in_vain else PATIENCE_SECONDS)
        self._in_vain = not taken  # a call that hangs is not waited for again until it has returned
        if not taken:
            raise Unavailable("GPM: a call for another GPU has not returned", NOT_READY)
        try:
            if device not in self._pairs:
                self._pairs[device] = _begin(gpu, instance)
                return {}
            pair = self._pairs[device]
            _take(gpu, instance, pair.spare)
            pair.last, pair.spare = pair.spare, pair.last
            return _metrics(pair.spare, pair.last, wanted)
        except pynvml.NVMLError:
            self._drop(device)
            raise
        finally:
            self._lock.release()

    def forget(self, gpu: int) -> None:
        """Give back the samples of a GPU that was lost, and of its instances."""
        for device in [device for device in list(self._pairs) if device.gpu == gpu]:
            self._drop(device)

    def free(self) -> None:
        """Give all samples back."""
        for device in list(self._pairs):
            self._drop(device)

    def _drop(self, device: Device) -> None:
        pair = self._pairs.pop(device, None)
        if pair is not None:
            _free(pair.last, pair.spare)


def _begin(gpu: Any, instance: int | None) -> _Pair:
    if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
        raise Unavailable("GPM: not on this GPU", NOT_SUPPORTED)
    samples: list[Any] = []
    try:
        samples += [pynvml.nvmlGpmSampleAlloc()]
        samples += [pynvml.nvmlGpmSampleAlloc()]
        _take(gpu, instance, samples[0])
    except pynvml.NVMLError:
        _free(*samples)
        raise
    return _Pair(*samples)


def _free(*samples: Any) -> None:
    for sample in samples:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlGpmSampleFree(sample)


def _take(gpu: Any, instance: int | None, sample: Any) -> None:
    if instance is None:
        pynvml.nvmlGpmSampleGet(gpu, sample)
    else:
        pynvml.nvmlGpmMigSampleGet(gpu, instance, sample)


def _metrics(first: Any, second: Any, wanted: Sequence[int]) -> Mapping[int, float]:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(wanted)
    request.sample1, request.sample2 = first, second
    for place, metric in enumerate(wanted):
        request.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(request)
    answered = request.metrics[: len(wanted)]
    return {one.metricId: one.value for one in answered if one.nvmlReturn == 0 and isfinite(one.value)}
