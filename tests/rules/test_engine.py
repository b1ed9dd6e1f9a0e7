"""The alerts on the serving engine: figures of the recorded vLLM runs, calm, short of KV cache, offloading, hung."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solpi_exporter.engine.dialects.dialect import TROUBLES
from solpi_exporter.rules.engine import GROUPS
from solpi_exporter.rules.rule import Alert
from tests.rules.cases import FIRES, SILENT, Case, alerts_of, boundary, complete, fires, missing, prove, silent

S = 'server="vllm"'
OF = f'{S}, engine="0"'
NOTHING = {"solpi_build_info": "1x60"}
IDLE = 200  # minutes
DAY = 24 * 60


def engine(metric: str, values: str, labels: str = "") -> dict[str, str]:
    return {f"solpi_engine_{metric}{{{OF}{labels}}}": values}


def preempting(per_minute: float, before: int = 0) -> dict[str, str]:
    return engine(
        "preemptions_total", f"0x{before} {per_minute}+{per_minute}x{IDLE}" if before else f"0+{per_minute}x{IDLE}"
    )


def requests(state: str, values: str) -> dict[str, str]:
    return engine("requests", values, f', state="{state}"')


def latency(*stages: tuple[float, int]) -> dict[str, str]:
    """Return the histogram of 600 tokens a minute, each stage's all at most so long (s), for so many minutes."""
    edges, counts = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0), {}
    for edge in (*edges, float("inf")):
        total, values = 0, []
        for most, minutes in stages:
            for _ in range(minutes):
                total += 600 if edge >= most else 0
                values.append(str(total))
        counts[edge] = " ".join(values)
    le = {edge: "+Inf" if edge == float("inf") else f"{edge:g}" for edge in counts}
    buckets = {
        f'solpi_engine_inter_token_latency_seconds_bucket{{{OF}, le="{le[edge]}"}}': values
        for edge, values in counts.items()
    }
    return buckets | {f"solpi_engine_inter_token_latency_seconds_count{{{OF}}}": counts[float("inf")]}


def kv(values: str) -> dict[str, str]:
    return engine("kv_cache_usage_ratio", values)


# As recorded with --kv-offloading-size while prompts return: the cache is full, 33 GB come back, nobody waits.
OFFLOADING = (
    kv("0.97x60")
    | requests("waiting", "0x60")
    | requests("running", "8x60")
    | engine("preemptions_total", "10633x60")
    | engine("kv_transfer_bytes_total", "0+130e9x60", ', direction="load"')
    | latency((0.01, 60))
)
BUSY = kv("0.99x200") | requests("waiting", "3x200") | requests("running", "64x200") | latency((0.025, 200))
QUEUE_RISES = requests("waiting", "0x90 41x180")
ALWAYS_QUEUED = requests("waiting", "41x200")


def errors(kind: str, values: str) -> dict[str, str]:
    return {f'solpi_engine_errors_total{{{S}, kind="{kind}"}}': values}


def up(values: str) -> dict[str, str]:
    return {f"solpi_engine_up{{{S}}}": values}


def reported(values: str) -> dict[str, str]:
    return engine("last_report_timestamp_seconds", values)


HUNG_LOG = reported("0+60x9 540x50") | requests("running", "7x60")
HUNG = HUNG_LOG | engine("generation_tokens_total", "0+900x9 8100x50")
# What an endpoint alone tells of a hang.
NO_STEPS = requests("running", "7x60") | engine("steps_total", "0+900x9 8100x50")
# Beside an engine that works.
PEER = 'server="vllm", engine="1"'
PEER_RUNS = {f'solpi_engine_requests{{{PEER}, state="running"}}': "7x60"}
PEER_REPORTS = PEER_RUNS | {f"solpi_engine_last_report_timestamp_seconds{{{PEER}}}": "0+60x60"}
PEER_STEPS = PEER_RUNS | {f"solpi_engine_steps_total{{{PEER}}}": "0+900x60"}
PEER_TOKENS = PEER_RUNS | {f"solpi_engine_generation_tokens_total{{{PEER}}}": "0+900x60"}
NO_TOKENS = (
    requests("running", "7x60")
    | engine("generation_tokens_total", "0+900x9 8100x50")
    | engine("prompt_tokens_total", "0+90x9 810x50")
)
PROMPT = engine("prompt_tokens_total", "0+9000x60")
# A deploy: the endpoint refuses for four minutes, and nothing of the server is shown.
DEPLOY = requests("running", "7x9 stale _x3 0x2 7x44") | engine("steps_total", "0+900x9 stale _x3 0x2 0+900x44")
GPU = {'solpi_engine_gpu_info{server="vllm", uuid="GPU-0"}': "1x60"}


def spinning(utilization: float, tokens: str) -> dict[str, str]:
    return (
        GPU
        | {'solpi_gpu_utilization_ratio{gpu="0", uuid="GPU-0"}': f"{utilization}x60"}
        | engine("generation_tokens_total", tokens)
        | engine("prompt_tokens_total", "5000x60")
    )


CASES = (
    fires("SolpiPreemptions", "as recorded, 171 in 20 s", preempting(513), 7),
    fires("SolpiPreemptions", "V0 has some swapped out", engine("swapped_requests", "0x9 3x50"), 16),
    silent("SolpiPreemptions", "offload at its best", OFFLOADING),
    boundary("SolpiPreemptions", "at the limit", engine("preemptions_total", "0+6x100")),
    missing("SolpiPreemptions", "no endpoint", kv("1x60")),
    fires("SolpiSwapStorm", "the queue rises", preempting(513) | QUEUE_RISES, 97),
    fires("SolpiSwapStorm", "latency rises", preempting(513, DAY - 60) | latency((0.01, DAY), (1.0, 60)), DAY + 6),
    Case(
        "SolpiSwapStorm",
        FIRES,
        "for hours, when users wait and no latency is known",
        preempting(513, DAY) | requests("waiting", f"0x{DAY} 41x200"),
        (DAY,),
        {DAY + 10: 1, DAY + 150: 1},
    ),
    silent(
        "SolpiSwapStorm",
        "one bad minute",
        engine("preemptions_total", f"0x{DAY} 500x60") | latency((0.01, DAY), (1.0, 1), (0.01, 60)),
        DAY + 60,
    ),
    silent("SolpiSwapStorm", "offload at its best", OFFLOADING),
    silent(
        "SolpiSwapStorm", "a server that is always full", preempting(513, 70) | ALWAYS_QUEUED | latency((0.01, 200))
    ),
    silent("SolpiSwapStorm", "a queue without preemptions", QUEUE_RISES, 150),
    boundary(
        "SolpiSwapStorm", "at the limit of preemptions", engine("preemptions_total", "0+6x150") | QUEUE_RISES, 150
    ),
    missing("SolpiSwapStorm", "neither queue nor latency known", preempting(513)),
    fires("SolpiKvCacheFull", "full", kv("0.97x60"), 10),
    silent("SolpiKvCacheFull", "it breathes", kv(" ".join(["0.99 0.9"] * 30))),
    boundary("SolpiKvCacheFull", "at the limit", kv("0.95x60")),
    missing("SolpiKvCacheFull", "idle", kv("0x60")),
    fires("SolpiKvCachePressure", "requests wait", kv("1x60") | requests("waiting", "33x60"), 10),
    fires("SolpiKvCachePressure", "preemptions", kv("1x60") | preempting(10), 14),
    silent("SolpiKvCachePressure", "a small usual queue", BUSY, 120),
    Case(
        "SolpiKvCachePressure",
        SILENT,
        "a batch that is always full, and preempts at times",
        kv("0.99x300") | requests("waiting", "41x300") | engine("preemptions_total", "0+3x300"),
        tuple(range(75, 300, 5)),  # until then, nothing is known of what is usual
    ),
    silent("SolpiKvCachePressure", "offload at its best", OFFLOADING),
    boundary("SolpiKvCachePressure", "at the limit", kv("0.95x60") | requests("waiting", "33x60")),
    missing("SolpiKvCachePressure", "no queue known", kv("1x60")),
    fires("SolpiKvTransferFailures", "some", engine("kv_transfer_failures_total", "0x9 3x50"), 10),
    silent("SolpiKvTransferFailures", "long ago", engine("kv_transfer_failures_total", "3x60")),
    boundary("SolpiKvTransferFailures", "none", engine("kv_transfer_failures_total", "0x60")),
    missing("SolpiKvTransferFailures", "no connector", NOTHING),
    fires("SolpiTokenLatencySpike", "long prefills", latency((0.01, DAY), (0.2, 60)), DAY + 10),
    silent("SolpiTokenLatencySpike", "a rise of little", latency((0.01, DAY), (0.05, 60)), DAY + 60),
    silent("SolpiTokenLatencySpike", "one bad minute", latency((0.01, DAY), (0.2, 1), (0.01, 60)), DAY + 60),
    boundary("SolpiTokenLatencySpike", "less than twice", latency((0.1, DAY), (0.2, 60)), DAY + 60),
    missing("SolpiTokenLatencySpike", "no day is known yet", latency((0.01, 480), (0.2, 60)), 540),
    fires("SolpiTokenLatencyHigh", "a second", latency((1.0, 60)), 9),
    silent("SolpiTokenLatencyHigh", "idle after it", latency((1.0, 4)) | NOTHING),
    boundary("SolpiTokenLatencyHigh", "half a second", latency((0.5, 60))),
    missing("SolpiTokenLatencyHigh", "no traffic", engine("inter_token_latency_seconds_count", "600x60")),
    fires("SolpiQueueGrowing", "and growing", requests("waiting", "0+3x60"), 22),
    silent("SolpiQueueGrowing", "long, and steady", ALWAYS_QUEUED),
    silent("SolpiQueueGrowing", "long, and getting shorter", requests("waiting", "200-3x60")),
    boundary("SolpiQueueGrowing", "at the limit", requests("waiting", "0+1x20 20x40")),
    missing("SolpiQueueGrowing", "no engine", NOTHING),
    fires("SolpiEngineStuck", "the log fell silent, requests run", HUNG, 12),
    fires("SolpiEngineStuck", "the endpoint counts no step", NO_STEPS, 13),
    fires(
        "SolpiEngineStuck",
        "one of two reports no more",
        reported("0+60x9 540x50") | requests("running", "7x60") | PEER_REPORTS,
        12,
    ),
    fires("SolpiEngineStuck", "one of two takes no step", NO_STEPS | PEER_STEPS, 13),
    silent(
        "SolpiEngineStuck", "one of two idles", reported("0+60x9 540x50") | requests("running", "0x60") | PEER_REPORTS
    ),
    fires("SolpiEngineStuck", "an SGLang, which counts no steps", NO_TOKENS, 13),
    fires("SolpiEngineStuck", "one of two SGLangs", NO_TOKENS | PEER_TOKENS, 13),
    silent("SolpiEngineStuck", "an SGLang that reads a long prompt", NO_TOKENS | PROMPT),
    silent("SolpiEngineStuck", "its tokens are counted under another name", HUNG_LOG | PEER_TOKENS),
    silent("SolpiEngineStuck", "a deploy", DEPLOY),
    silent("SolpiEngineStuck", "idle", reported("0+60x9 540x50") | requests("running", "0x60")),
    silent(
        "SolpiEngineStuck",
        "the log is switched off, tokens come",
        reported("0x60") | requests("running", "7x60") | engine("generation_tokens_total", "0+900x60"),
    ),
    boundary("SolpiEngineStuck", "a report a minute", reported("0+60x60") | requests("running", "7x60")),
    missing("SolpiEngineStuck", "no state known", reported("0x60")),
    fires("SolpiEngineDead", "its log says so", errors("engine_dead", "0x9 2x50"), 10),
    Case(
        "SolpiEngineDead",
        FIRES,
        "until its endpoint is back",
        errors("engine_dead", "0x9 2x80") | up("1x10 0x40 1x40"),
        (9, 57),
        {10: 1, 30: 1, 50: 1},
    ),
    silent("SolpiEngineDead", "stopped by somebody", errors("engine_dead", "0x60") | up("1x10 0x50")),
    silent("SolpiEngineDead", "other trouble", errors("out_of_memory", "0x9 2x50")),
    boundary("SolpiEngineDead", "long ago", errors("engine_dead", "2x60")),
    missing("SolpiEngineDead", "no log", NOTHING),
    fires("SolpiEngineDown", "refuses", up("1x9 0x50"), 20),
    silent("SolpiEngineDown", "a deploy of five minutes", up("1x9 0x5 1x50")),
    boundary("SolpiEngineDown", "nine minutes", up("1x9 0x8 1x50")),
    missing("SolpiEngineDown", "no endpoint", NOTHING),
    fires("SolpiEngineErrors", "out of memory", errors("out_of_memory", "0x9 1x50"), 10),
    silent("SolpiEngineErrors", "it died, which pages", errors("engine_dead", "0x9 1x50")),
    boundary("SolpiEngineErrors", "none", errors("cuda_error", "0x60")),
    missing("SolpiEngineErrors", "no log", NOTHING),
    fires("SolpiGpuBusyWithoutTokens", "a rank that spins", spinning(1, "9000x60"), 6),
    silent("SolpiGpuBusyWithoutTokens", "it decodes", spinning(1, "0+900x60")),
    silent("SolpiGpuBusyWithoutTokens", "a server that never generated: embeddings", spinning(1, "0x60")),
    boundary("SolpiGpuBusyWithoutTokens", "at the limit", spinning(0.75, "9000x60")),
    missing("SolpiGpuBusyWithoutTokens", "no endpoint", GPU),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_fires_when_it_should(case: Case, tool: Callable[[str], str], tmp_path: Path) -> None:
    """At the minute that it says, and at no other."""
    prove(case, tool("promtool"), tmp_path)


@pytest.mark.parametrize("alert", alerts_of(GROUPS))
def test_every_alert_has_every_kind_of_case(alert: str, tool: Callable[[str], str], tmp_path: Path) -> None:
    """It fires, stays silent, lies at its limit, and finds nothing; its text names labels that are there."""
    complete(alert, CASES, tool("promtool"), tmp_path)


def test_every_kind_of_trouble_alerts_once() -> None:
    """But for a preemption, which has a rate, and a wait that is a worry only where no step is taken."""
    expressions = [rule.expr for group in GROUPS for rule in group.rules if isinstance(rule, Alert)]

    for kind in set(TROUBLES) - {"preemption", "broadcast_wait"}:
        assert sum(kind in one for one in expressions) == 1
