"""The engine's own token in the recorded runs: what the eager server lost, and what the graph server then took."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from solpi_exporter.demo.recording import folder
from solpi_exporter.derived import Totals, token_from_totals
from solpi_exporter.engine.scraped import parse

STAGES = ("c1", "c4", "c8", "c16", "c32")
STAGE_SECONDS = 20.0


def recorded_token(run: str, stage: str, *, activity: str = "gpm") -> tuple[float, float]:
    """Return (busy, interval) in seconds of the window cut inside one stage of a recorded run.

    `activity` is "gpm" (mean graphics activity since the sample before) or "utilisation" (NVML's, of that instant).
    """
    recorded = json.loads(folder().joinpath(f"{run}.nvml.json").read_text())
    begin = next(time for time, phase in recorded["phases"] if phase == stage)
    points = [
        (sample["metrics"], busy)
        for sample, busy in zip(recorded["samples"], _busy_seconds(recorded["samples"], activity), strict=True)
        if sample.get("metrics") and begin <= sample["t"] <= begin + STAGE_SECONDS
    ]
    token = token_from_totals(_totals(*points[0]), _totals(*points[-1]))
    assert token is not None, f"no token in {run} {stage}"
    return token


def _busy_seconds(samples: Sequence[dict[str, Any]], activity: str) -> Iterator[float]:
    busy = 0.0
    for before, sample in zip([samples[0], *samples], samples, strict=False):
        percent = sample["gpu"]
        if activity == "gpm":
            percent = (sample["gpm"] or {}).get("GRAPHICS_UTIL", percent)
        busy += percent / 100 * (sample["t"] - before["t"])
        yield busy


def _totals(metrics: dict[str, float], busy: float) -> Totals:
    """Read a snapshot, which holds sums and counts but no buckets, through the endpoint's own parser."""
    count = next(value for name, value in metrics.items() if name.startswith("vllm:inter_token_latency_seconds_count"))
    text = "".join(f"{series} {value}\n" for series, value in metrics.items())
    bucket = f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="+Inf"}} {count}\n'
    (reading,) = parse(text + bucket, "recorded")
    assert reading.inter_token_latency is not None
    return Totals(busy, reading.steps or 0.0, reading.inter_token_latency.count, reading.inter_token_latency.sum)


def main() -> None:
    """Print one row a stage, in milliseconds."""
    print("| clients | eager: busy | between tokens | lost | graphs: busy | between tokens | lost |")
    print("|---|---|---|---|---|---|---|")
    for stage in STAGES:
        cells = []
        for run in ("a-before", "b-after"):
            busy, interval = recorded_token(run, stage)
            lost = max(0.0, interval - busy) / interval
            cells += [f"{busy * 1e3:.2f} ms", f"{interval * 1e3:.2f} ms", f"{lost:.0%}"]
        print(f"| {stage[1:]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
