"""A GPU's working day in half a minute, for recordings: idle, a sawtooth, copies over PCIe, full load, idle.

    python benchmarks/gpu_load.py [--seconds 6]

Needs torch with CUDA.
"""

import argparse
import time
from collections.abc import Callable

import torch

SIZE = 8192
TOOTH = 0.5  # seconds of load, then as many without


def phase(seconds: float, work: Callable[[], object], *, rest: bool = False) -> None:
    """Do some work over and over; with `rest`, pause after each tooth."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tooth = time.monotonic() + TOOTH
        while time.monotonic() < tooth:
            work()
            torch.cuda.synchronize()
        if rest:
            time.sleep(TOOTH)


def main() -> None:
    """Go through the phases and say when each begins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a phase")
    seconds = parser.parse_args().seconds
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    there = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    here = torch.empty(1 << 28, dtype=torch.uint8).pin_memory()
    phases: list[tuple[str, Callable[[], None]]] = [
        ("idle", lambda: time.sleep(seconds)),
        ("sawtooth", lambda: phase(seconds, lambda: matrix @ matrix, rest=True)),
        ("copies", lambda: phase(seconds, lambda: there.copy_(here, non_blocking=True))),
        ("full", lambda: phase(seconds, lambda: matrix @ matrix)),
        ("idle", lambda: time.sleep(seconds)),
    ]
    for name, run in phases:
        print(f"{time.time():.1f} {name}", flush=True)
        run()


if __name__ == "__main__":
    main()
