"""The probe's times beside CUPTI's, of the very same tokens, at every batch size, preset and depth. Needs a GPU.

    python -m benchmarks.probe_truth [--out truth.json]

The gap is how long the GPU stood idle within a launched step: for the probe the device span without its head and G, for
CUPTI (torch's profiler) what its kernels leave of the time between the first's begin and the last's end. A minute lies
between the first and the second look at G. Exit status 1 says that a bar was missed: 2 % of the span, 0.5 % of G.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.probe_load import make_bench, make_rig
from solpi_exporter.probe.cuda import CudaRig
from solpi_exporter.probe.plan import THOROUGH
from solpi_exporter.probe.result import EXTRAPOLATED, BatchResult
from solpi_exporter.probe.rig import Replay, Variant
from solpi_exporter.probe.shape import shape_of
from solpi_exporter.probe.split import trimmed_mean

BATCHES = (1, 2, 4, 8, 16, 32, 64)
# Preset, layers, context, batch sizes: the periodic ones first.
CASES = (
    ("8b", 4, 512, BATCHES),
    ("1b", 4, 512, BATCHES),
    ("8b", 2, 512, (1, 8, 32)),
    ("1b", 2, 512, (1, 8, 32)),
    ("8b", 8, 512, (1, 32)),
    ("8b", 32, 512, (1,)),
    ("8b", 4, 2048, (64,)),
)
SHAPE_8B = shape_of("8b")
REPEATS = 4
MAX_ERROR = 0.02  # of the gap, in shares of the span
MAX_CHANGE = 0.005  # of G within a minute
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """One batch size at one depth; times in microseconds, shares of the span."""

    shape: str
    layers: int
    context: int
    batch: int
    kernels: int
    span: float
    cupti_span: float
    head: float
    gap: float
    cupti_gap: float
    error: float  # of the gap, token by token, in shares of the span
    graph: float
    cupti_graph: float
    busy: float


def kernels(profiler: profile) -> list[tuple[float, float]]:
    """Return begin and end of each kernel, in microseconds, in order; copies from and to the host are none."""
    found = (one for one in profiler.events() if one.device_type.name == "CUDA")  # type: ignore[no-untyped-call]
    named = (one for one in found if not one.name.lower().startswith(("memcpy htod", "memcpy dtoh")))
    return sorted((one.time_range.start, one.time_range.end) for one in named)


def per_step(spans: Sequence[tuple[float, float]], steps: int) -> list[Sequence[tuple[float, float]]]:
    """Cut a list of kernels into its steps, which are alike."""
    each, rest = divmod(len(spans), steps)
    assert not rest, f"{len(spans)} kernels in {steps} steps"
    return [spans[number * each : (number + 1) * each] for number in range(steps)]


def span_and_busy(step: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the time from the first kernel's begin to the last one's end, and what of it kernels ran."""
    return step[-1][1] - step[0][0], sum(end - begin for begin, end in step)


def compare(rig: CudaRig, variant: Variant) -> Row:
    """Time the same tokens both ways."""
    graph = trimmed_mean([time for _ in range(REPEATS) for time in on_device(rig, variant)]) * 1e6
    with profile(activities=[ProfilerActivity.CUDA]) as launched:
        steps = rig.launched(variant, THOROUGH.steps)
    with profile(activities=[ProfilerActivity.CUDA]) as replayed:
        on_device(rig, variant, behind_launched=False)
    seen = [span_and_busy(step) for step in per_step(kernels(launched), len(steps))]
    chain = per_step(kernels(replayed), THOROUGH.replays + 1)
    spans, heads = [(step.span or 0.0) * 1e6 for step in steps], [(step.head or 0.0) * 1e6 for step in steps]
    gaps = [span - head - graph for span, head in zip(spans, heads, strict=True)]
    idle = [one - busy for one, busy in seen]
    errors = [(gap - true) / span for gap, true, span in zip(gaps, idle, spans, strict=True)]
    shape = rig.identity
    return Row(
        shape=shape.shape,
        layers=variant.layers,
        context=shape.context,
        batch=variant.batch,
        kernels=len(chain[0]),
        span=statistics.median(spans),
        cupti_span=statistics.median(one for one, _ in seen),
        head=statistics.median(heads),
        gap=statistics.median(gaps),
        cupti_gap=statistics.median(idle),
        error=statistics.median(errors),
        graph=graph,
        cupti_graph=statistics.median(span_and_busy(one)[0] for one in chain[1:]),
        busy=statistics.median(busy for _, busy in seen),
    )


def on_device(rig: CudaRig, variant: Variant, *, behind_launched: bool = True) -> list[float]:
    """Return device seconds of replays, behind a launched step as the bench takes them."""
    if behind_launched:
        rig.launched(variant, 1)
    return rig.chain([Replay(variant)] * (1 + THOROUGH.replays))


def look(cases: Sequence[tuple[str, int, int, Sequence[int]]]) -> Iterator[Row]:
    """Compare every case, each depth of it."""
    for name, layers, context, batches in cases:
        rig = make_rig(shape_of(name, context, layers), batches)
        with rig.session():
            for variant in rig.variants:
                if variant.layers != layers:
                    continue
                for _ in range(REPEATS):  # warms the clocks up
                    on_device(rig, variant)
                yield compare(rig, variant)
        del rig
        torch.cuda.empty_cache()


def repeat(batches: Sequence[int]) -> list[dict[str, Any]]:
    """Return what two runs a minute apart say of the periodic shape."""
    bench = make_bench(SHAPE_8B, batches)
    runs = []
    for number in range(2):
        begun = time.monotonic()
        bench.costs(nullcontext())
        runs.append({batch: bench.measure(batch, nullcontext()) for batch in batches})
        if number == 0:
            time.sleep(max(0.0, MINUTE - (time.monotonic() - begun)))
    rows = []
    for batch in batches:
        first, second = (run[batch] for run in runs)
        if first.split is None or second.split is None:
            rows.append({"batch": batch, "noise": [first.noise, second.noise]})
            continue
        one, other = first.split, second.split
        row: dict[str, Any] = {
            "batch": batch,
            "token_us": [one.token * 1e6, other.token * 1e6],
            "sum_minus_token_s": [sum(each.phases.values()) - each.token for each in (one, other)],
            "extrapolated_graph_us": [_whole_graph(each) for each in (first, second)],
            "graph_change": (other.compute + other.memory) / (one.compute + one.memory) - 1,
        }
        for phase in ("scheduling", "sync"):
            error = (first.splits[0].errors[phase] ** 2 + second.splits[0].errors[phase] ** 2) ** 0.5
            row[phase] = {
                "us": [getattr(one, phase) * 1e6, getattr(other, phase) * 1e6],
                "errors": [each.splits[0].errors[phase] * 1e6 for each in (first, second)],
                "change_in_standard_errors": (getattr(other, phase) - getattr(one, phase)) / error,
            }
        rows.append(row)
    return rows


def _whole_graph(result: BatchResult) -> float | None:
    """Return G of a whole model, in microseconds, as two depths tell it."""
    whole = next((one.split for one in result.splits if one.basis == EXTRAPOLATED), None)
    return None if whole is None else (whole.compute + whole.memory) * 1e6


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a Markdown table of all."""
    yield "| shape | layers | tokens | batch | kernels | span | CUPTI | head | gap | CUPTI | error | G | CUPTI | busy |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        figures = (row.span, row.cupti_span, row.head, row.gap, row.cupti_gap)
        yield (
            f"| {row.shape} | {row.layers} | {row.context} | {row.batch} | {row.kernels} | "
            + " | ".join(f"{figure:.0f}" for figure in figures)
            + f" | {row.error:+.1%} | {row.graph:.1f} | {row.cupti_graph:.1f} | {row.busy:.1f} |"
        )


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write every figure as JSON")
    out = parser.parse_args().out
    rows = list(look(CASES))
    print(*table(rows), sep="\n")
    worst = max(rows, key=lambda row: abs(row.error))
    print(f"worst gap: {worst.error:+.2%} of the span ({worst.shape}, {worst.layers} layers, batch {worst.batch})")
    repeats = repeat((1, 8, 32))
    print(json.dumps(repeats, indent=1))
    whole = next(row.graph for row in rows if row.layers == SHAPE_8B.full_layers)
    print(
        f"G of {SHAPE_8B.full_layers} layers at batch 1: {whole:.0f} us; told by two depths: see extrapolated_graph_us"
    )
    if out is not None:
        plain = [{name: getattr(row, name) for name in Row.__slots__} for row in rows]
        out.write_text(json.dumps({"torch": torch.__version__, "rows": plain, "repeats": repeats}, indent=1) + "\n")
    changes = [abs(one.get("graph_change", 1.0)) for one in repeats]
    if abs(worst.error) > MAX_ERROR or max(changes) > MAX_CHANGE:
        sys.exit(1)


if __name__ == "__main__":
    main()
