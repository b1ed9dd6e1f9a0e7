"""What the probe holds of the host's and of the GPU's memory, as it gets to work.

    python -m benchmarks.probe_memory [--device 0]

In one process, as the daemon's own probe or its worker holds it: with nothing of torch, with torch, with a bench, and
after three gentle cycles. The GPU's memory is what its use rose by according to NVML, CUDA's own included, so nobody
else may come or go meanwhile; "torch" is what PyTorch's allocator holds of it. Half a minute.
"""

import argparse
import os
import threading

import pynvml

from benchmarks.processes import resident
from solpi_exporter.probe.costs import Quiet
from solpi_exporter.probe.plan import GENTLE, Opening
from solpi_exporter.probe.result import Bench
from solpi_exporter.probe.source import open_bench

BATCHES = (1, 8, 32, 64)
CYCLES = 3
MIB = 1 << 20


def used(index: int) -> int:
    """Return bytes of the GPU's memory that are in use, by NVML."""
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).used)


def row(name: str, gpu: int, torch: int) -> str:
    """Return a line of the table, in MiB."""
    return f"| {name} | {resident(os.getpid()):.0f} | {gpu / MIB:.0f} | {torch / MIB:.0f} |"


def cycle(bench: Bench, quiet: Quiet) -> None:
    """Measure as the daemon does."""
    bench.costs(quiet)
    for batch in BATCHES:
        bench.measure(batch, quiet)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0, help="NVML's number of the GPU")
    index = parser.parse_args().device
    pynvml.nvmlInit()
    before = used(index)
    print("| MiB | host, resident | GPU | of which torch |\n|---|---|---|---|")
    print(row("without torch", 0, 0))
    import torch  # what it adds is what is measured

    print(row("with torch", used(index) - before, 0))
    bench = open_bench(Opening(f"cuda:{index}", "auto", BATCHES, GENTLE))
    print(row("with a bench", used(index) - before, torch.cuda.memory_reserved(index)))
    for _ in range(CYCLES):
        cycle(bench, threading.Lock())
    print(row(f"after {CYCLES} cycles", used(index) - before, torch.cuda.memory_reserved(index)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
