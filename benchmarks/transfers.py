"""What the exporter reads of copies, beside what was copied: over PCIe, and over NVLink where there are two GPUs.

    python -m benchmarks.transfers [--seconds 15]

Needs torch with CUDA; the GPUs should be idle otherwise.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator

import torch

from solpi_exporter.clock import SystemClock
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.reading import GpuReading
from solpi_exporter.gpu.source import GpuSource

INTERVAL = 5.0
SIZE = 1 << 28
REST_SECONDS = 2 * INTERVAL  # before and after a copy, so that the means of all of it are read
SHOWN = ("utilization_ratio", "graphics_active_ratio")
TOTALS = ("pcie_receive", "nvlink_transmit", "nvlink_receive")


class Watch:
    """Polls all GPUs as the daemon does, and keeps the highest share and the last total of each."""

    def __init__(self) -> None:
        self._source = GpuSource(NvmlDriver(), SystemClock(), INTERVAL, 10.0)
        self._stop = threading.Event()
        self.highest: dict[tuple[int, str], float] = {}
        self.totals: dict[tuple[int, str], float] = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._thread.join()
        self._source.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for reading in self._source.poll():
                if isinstance(reading, GpuReading):
                    self._take(reading)
            self._stop.wait(INTERVAL)

    def _take(self, reading: GpuReading) -> None:
        for sample in (*reading.rows, *reading.totals):
            name, value = sample.metric.name.removeprefix("solpi_gpu_"), sample.value
            if name in SHOWN and isinstance(value, float):
                key = (reading.index, name)
                self.highest[key] = max(value, self.highest.get(key, 0.0))
            elif name.removesuffix("_bytes_total") in TOTALS and isinstance(value, float):
                self.totals[reading.index, name.removesuffix("_bytes_total")] = value


def copies(seconds: float, copy: Callable[[], object]) -> int:
    """Copy over and over; return the bytes."""
    moved, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        copy()
        torch.cuda.synchronize()
        moved += SIZE
    return moved


def ways() -> Iterator[tuple[str, list[tuple[int, str]], Callable[[], object]]]:
    """Yield each way of copying, and the totals that it should move."""
    here = torch.empty(SIZE, dtype=torch.uint8).pin_memory()
    there = torch.empty(SIZE, dtype=torch.uint8, device="cuda:0")
    yield "host to GPU 0", [(0, "pcie_receive")], lambda: there.copy_(here, non_blocking=True)
    if torch.cuda.device_count() > 1:
        other = torch.empty(SIZE, dtype=torch.uint8, device="cuda:1")
        yield "GPU 0 to GPU 1", [(0, "nvlink_transmit"), (1, "nvlink_receive")], lambda: other.copy_(there)


def main() -> None:
    """Print a row a total."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    seconds = parser.parse_args().seconds
    print("| copy | GB moved | GPU | total | GB read | ratio | utilisation, highest | graphics activity, highest |")
    print("|---|---|---|---|---|---|---|---|")
    for way, totals, copy in ways():
        copy()
        torch.cuda.synchronize()
        watch = Watch()
        time.sleep(REST_SECONDS)
        before = dict(watch.totals)
        moved = copies(seconds, copy)
        time.sleep(REST_SECONDS)
        watch.end()
        for gpu, name in totals:
            read = watch.totals[gpu, name] - before[gpu, name]
            shares = " | ".join(f"{watch.highest[gpu, share]:.3f}" for share in SHOWN)
            print(
                f"| {way} | {moved / 1e9:,.1f} | {gpu} | {name} | {read / 1e9:,.1f} | {read / moved:.3f} | {shares} |"
            )


if __name__ == "__main__":
    main()
