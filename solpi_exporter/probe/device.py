"""Chooses the bench for a device. Importing this imports torch, so only probe/source.py does, when a run is due."""

import gc
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import torch

from solpi_exporter.probe.bench import GpuBench
from solpi_exporter.probe.cpu import CpuBench
from solpi_exporter.probe.cuda import CudaRig
from solpi_exporter.probe.cuda_errors import cuda_errors
from solpi_exporter.probe.plan import Opening
from solpi_exporter.probe.result import UUIDS, Bench
from solpi_exporter.probe.rig import Variant
from solpi_exporter.probe.shape import Shape, auto_shape, depths_of, shape_of
from solpi_exporter.source import SourceError

SPARE_MEMORY = 64 << 20  # bytes beyond what a bench holds, of which it should take none


def make_bench(wanted: Opening) -> Bench:
    """Make the bench; raise SourceError when it cannot be."""
    device, batches, plan = wanted.device, wanted.batches, wanted.plan
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return _cpu_bench(_shape(wanted, "small"), batches)
    with cuda_errors(device):
        index = index_of(device)
        if index >= torch.cuda.device_count():
            raise SourceError(f"probe.device {device} is not there: torch {torch.__version__} sees {_seen()}")
        chosen = _shape(wanted, auto_shape(torch.cuda.get_device_properties(index).total_memory))
        _cap_memory(index, None)
        with _given_back():
            rig = CudaRig(chosen, variants(chosen, batches), torch.device("cuda", index), plan.steps, plan.chain)
        _cap_memory(index, torch.cuda.memory_reserved(index) + SPARE_MEMORY)
        return GpuBench(rig, chosen, batches, plan)


def _shape(wanted: Opening, automatic: str) -> Shape:
    name = automatic if wanted.shape == "auto" else wanted.shape
    return shape_of(name, wanted.context, wanted.layers)


def index_of(device: str) -> int:
    """Return torch's number of a GPU, however it is called; one that is not there gets the next that is free."""
    if not device.startswith(UUIDS):
        return int(device.partition(":")[2] or 0)
    if os.environ.get("CUDA_VISIBLE_DEVICES") == device:  # a worker's; torch tells UUIDs from 2.5 on only
        return 0
    seen = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    uuids = [str(getattr(one, "uuid", "")) for one in seen]
    uuid = device.partition("-")[2]
    return uuids.index(uuid) if uuid in uuids else len(uuids)


@contextmanager
def _given_back() -> Iterator[None]:
    """Give back what was allocated where not all of it could be: else it would be held for nothing."""
    try:
        yield
    except RuntimeError as error:
        traceback.clear_frames(error.__traceback__)  # they hold the tensors
        gc.collect()
        with suppress(RuntimeError):  # CUDA may be what failed
            torch.cuda.empty_cache()
        raise


def _cap_memory(index: int, most: int | None) -> None:
    """Let this process take so many bytes of the GPU's memory at most, None for all; CUDA's own are not counted."""
    total = torch.cuda.get_device_properties(index).total_memory
    torch.cuda.set_per_process_memory_fraction(1.0 if most is None else min(1.0, most / total), index)


def variants(shape: Shape, batches: Sequence[int]) -> list[Variant]:
    """Return every batch size at every depth."""
    depths = depths_of(shape)
    layers = (shape.layers,) if depths is None else (shape.layers, depths.shallow)
    return [Variant(batch, each) for batch in batches for each in layers]


def _cpu_bench(shape: Shape, batches: Sequence[int]) -> Bench:
    try:
        return CpuBench(shape, batches)
    except RuntimeError as error:  # what torch raises when there is no memory
        reason = str(error).partition("\n")[0]
        raise SourceError(
            f"the probe does not fit into memory: choose a smaller probe.shape or context ({reason})"
        ) from error


def _seen() -> str:
    count = torch.cuda.device_count()
    return f"{count} CUDA device{'s' * (count != 1)}"
