"""What the exporter says of a real vLLM, held against vLLM's own figures and a client's: counts, latency, facts."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.vllm_client import PROMPT_TOKENS, Stage
from benchmarks.vllm_server import MODEL_NAME, series, value_of

SHARE = 0.10  # by which the client's means may differ from the server's
SLACK = (0.005, 0.0005)  # seconds beyond that, to the first token and between tokens: the client sees HTTP as well
STATS = "Avg prompt throughput"  # what grep finds the log's reports by
COUNTERS = {
    "solpi_engine_preemptions_total": "vllm:num_preemptions_total",
    "solpi_engine_prompt_tokens_total": "vllm:prompt_tokens_total",
    "solpi_engine_generation_tokens_total": "vllm:generation_tokens_total",
    "solpi_engine_steps_total": "vllm:iteration_tokens_total_count",
}
FINISHED = ("solpi_engine_finished_requests_total", "vllm:request_success_total")
HISTOGRAMS = {
    "solpi_engine_time_to_first_token_seconds": "vllm:time_to_first_token_seconds",
    "solpi_engine_inter_token_latency_seconds": "vllm:inter_token_latency_seconds",
    "solpi_engine_queue_seconds": "vllm:request_queue_time_seconds",
}
NAMES = ("server", "engine", "model_name")  # labels that are the same everywhere here
NOT_FOUND = "absent"


@dataclass(slots=True)
class Table:
    """The comparisons, as a table in Markdown."""

    rows: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: bool = False

    def add(self, what: str, ours: object, whose: str, theirs: object, *, passed: bool, allowed: str = "none") -> None:
        """Add a comparison."""
        cells = (what, ours, whose, theirs, allowed, "ok" if passed else "**FAILED**")
        self.rows.append(f"| {' | '.join(map(str, cells))} |")
        self.failed |= not passed

    def equal(self, what: str, ours: object, whose: str, theirs: object) -> None:
        """Add a comparison of what must be the same."""
        self.add(what, _brief(ours), whose, _brief(theirs), passed=ours == theirs)

    def near(self, what: str, ours: float, whose: str, theirs: float, slack: float) -> None:
        """Add a comparison of a time that was measured at both ends."""
        passed = abs(theirs - ours) <= SHARE * ours + slack
        allowed = f"{SHARE:.0%} + {slack * 1e3:g} ms"
        self.add(what, f"{ours * 1e3:.2f} ms", whose, f"{theirs * 1e3:.2f} ms", passed=passed, allowed=allowed)

    def print(self) -> None:
        """Print all of them."""
        print("| what | exporter | against | which says | may differ by | |\n|---|---|---|---|---|---|")
        print("\n".join(self.rows), *self.notes, sep="\n\n", flush=True)


def _brief(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_latency(table: Table, stage: Stage, before: str, after: str) -> None:
    """Hold the means of a stage against the client's."""
    measured = (stage.time_to_first_token, stage.inter_token_latency)
    for name, theirs, slack in zip(list(HISTOGRAMS)[:2], measured, SLACK, strict=True):
        added = [value_of(after, name + part) - value_of(before, name + part) for part in ("_sum", "_count")]
        what = f"mean of `{name}`, {stage.clients} clients"
        table.near(what, added[0] / added[1], f"client, {len(stage.answers)} answers", theirs, slack)
    milliseconds = stage.starved / len(stage.answers) * 1e3
    table.notes.append(f"{stage.clients} clients waited for a CPU for {milliseconds:.1f} ms an answer.")


def check_counters(table: Table, served: str, both: str, when: str) -> None:
    """Hold what was counted against vLLM's own count."""
    for ours, theirs in COUNTERS.items():
        table.equal(f"`{ours}`, {when}", value_of(both, ours), "/metrics", value_of(served, theirs))
    ours, theirs = FINISHED
    table.equal(f"`{ours}`, {when}", _reasons(both, ours), "/metrics", _reasons(served, theirs))


def _reasons(text: str, name: str) -> str:
    """Return how many requests have ended, by reason."""
    counted = {dict(labels).popitem()[1]: value for labels, value in series(text, name, *NAMES).items()}
    return ", ".join(f"{reason} {count:g}" for reason, count in sorted(counted.items()))


def check_histograms(table: Table, served: str, both: str) -> None:
    """Hold every bucket, and the sums, against vLLM's own."""
    for ours, theirs in HISTOGRAMS.items():
        other = [
            part for part in ("_bucket", "_count", "_sum") if _part(both, ours + part) != _part(served, theirs + part)
        ]
        shown = f"{len(_part(both, ours + '_bucket'))} buckets, count and sum"
        table.add(f"`{ours}`", shown, "/metrics", f"other: {other}" if other else "the same", passed=not other)


def _part(text: str, name: str) -> Mapping[str, float]:
    """Return some of a histogram's values by their bounds."""
    return {dict(labels).get("le", ""): value for labels, value in series(text, name, *NAMES).items()}


def check_clients(table: Table, stages: Sequence[Stage], both: str) -> None:
    """Hold what was counted against the clients' count."""
    answers = sum(len(stage.answers) for stage in stages)
    generated = value_of(both, "solpi_engine_generation_tokens_total")
    table.equal("`solpi_engine_generation_tokens_total`", generated, "client", sum(stage.tokens for stage in stages))
    prompted = value_of(both, "solpi_engine_prompt_tokens_total")
    table.equal("`solpi_engine_prompt_tokens_total`", prompted, "client", answers * PROMPT_TOKENS)
    table.equal(f"`{FINISHED[0]}`, length", value_of(both, FINISHED[0], reason="length"), "client", answers)
    preempted = value_of(both, "solpi_engine_preemptions_total")
    table.add("`solpi_engine_preemptions_total`", int(preempted), "this run", "above 0", passed=preempted > 0)


def check_facts(table: Table, log: Path, version: str, served: str, pages: Mapping[str, str]) -> None:
    """Hold what both exporters say of the server against its own answers, and lines against grep's count."""
    grep = int(subprocess.run(["grep", "-c", STATS, log], capture_output=True, check=True).stdout)
    capacity = int(re.findall(r'kv_cache_size_tokens="(\d+)"', served)[0])
    info = {"software": "vllm", "version": json.loads(version)["version"], "model": MODEL_NAME}
    for name, page in pages.items():
        told = [dict(labels) for labels in series(page, "solpi_engine_info", "server")]
        shown = " ".join(told[0].get(key, "?") for key in info) if told else NOT_FOUND
        table.equal(f"`solpi_engine_info`, {name}", shown, "/version, --served-model-name", " ".join(info.values()))
        tokens = value_of(page, "solpi_engine_kv_cache_capacity_tokens")
        table.equal(f"`solpi_engine_kv_cache_capacity_tokens`, {name}", tokens, "/metrics", capacity)
        matched = value_of(page, "solpi_log_matched_lines_total", kind="stats")
        table.equal(f'`solpi_log_matched_lines_total{{kind="stats"}}`, {name}', matched, "grep -c", grep)
    told_of = len(series(pages["log alone"], "solpi_engine_preemptions_total"))
    table.add("`solpi_engine_preemptions_total`, log alone", told_of or NOT_FOUND, "log", NOT_FOUND, passed=not told_of)
