"""Alerts on the serving engine: KV cache and preemptions, latency, queue, and engines that are stuck or dead.

What is told by the log alone, or by the endpoint alone, alerts too; an engine of which nothing is known does not.
"""

from solpi_exporter.rules.records import SERVERS
from solpi_exporter.rules.rule import CRITICAL, INFO, WARNING, Alert, Group

ON = "on (job, instance, server)"
P99 = "server:solpi_engine_inter_token_latency_seconds:p99_rate5m"
WAITING = 'server:solpi_engine_requests:sum{state="waiting"}'

# Counted by the endpoint, or by vLLM's V0, which tells how many requests are swapped out.
PREEMPTING = (
    "(server:solpi_engine_preemptions:rate5m > ${preemptions}\n  or server:solpi_engine_swapped_requests:sum > 0)"
)
# A queue that the day before had as well is the usual one, of a server that is always full: it takes two hours to
# become so. No longer than that is it known of a server that is new.
QUEUE_RISEN = (
    f"(avg_over_time({WAITING}[5m]) > ${{waiting}}\n"
    f"    unless {ON} avg_over_time({WAITING}[5m])\n"
    f"      <= ${{waiting_rise}} * quantile_over_time(0.9, {WAITING}[1d] offset 1h))"
)
# Against the day before, where there was one.
LATENCY_RISEN = (
    f"({P99} > ${{latency_floor}}\n"
    f"    and {ON} ({P99} > {ON} ${{latency_rise}} * {P99}_p50_1d)\n"
    f"    and {ON} present_over_time({P99}_p50_1h[1d] offset 18h))"
)

# One group, so that what is silenced is never worked out, and told, half a minute before its cause; and what silences
# another waits less, since both begin at once: a storm, tokens that are late by any measure, tokens that are late for
# here. None waits for five minutes or less: so long one bad moment stays in a rate, and it is over by then.
LOAD = Group(
    "solpi-engine-load",
    (
        *SERVERS,
        Alert(
            name="SolpiPreemptions",
            severity=WARNING,
            expr=PREEMPTING,
            wait="6m",
            keep="5m",
            summary="A server puts requests back for want of KV cache.",
            description="${server} preempts ${value} requests a second (limit ${preemptions}), or has requests swapped "
            "out; each is computed again. Lower max_num_seqs, or give the KV cache more memory "
            "(gpu_memory_utilization, fp8 KV cache, shorter max_model_len).",
        ),
        Alert(
            name="SolpiSwapStorm",
            severity=CRITICAL,
            expr=f"{PREEMPTING}\n  and {ON} (\n    {LATENCY_RISEN}\n    or {ON} {QUEUE_RISEN}\n  )",
            wait="6m",
            keep="5m",
            summary="A server preempts requests, and its users feel it.",
            description="${server} preempts ${value} requests a second (limit ${preemptions}) while its queue or its "
            "P99 between two tokens rises. It is given more than its KV cache holds: lower max_num_seqs "
            "now, take load off it, then give it more KV cache.",
        ),
        Alert(
            name="SolpiKvCacheFull",
            severity=INFO,
            expr="solpi_engine_kv_cache_usage_ratio > ${kv_usage}",
            wait="10m",
            keep="5m",
            summary="The KV cache is full, which alone is no harm.",
            description="The KV cache of ${server} is ${value:percent} full (limit ${kv_usage:percent}). It is meant to"
            " be used; it matters once requests wait or are preempted.",
        ),
        Alert(
            name="SolpiKvCachePressure",
            severity=CRITICAL,
            expr="(max without (engine) (solpi_engine_kv_cache_usage_ratio) > ${kv_usage})\n"
            f"  and {ON} (\n"
            f"    {QUEUE_RISEN}\n"
            f"    or {ON} server:solpi_engine_preemptions:rate5m > ${{preemptions}}\n"
            "  )",
            wait="10m",
            keep="5m",
            summary="The KV cache is full, and requests wait for it.",
            description="The KV cache of ${server} is ${value:percent} full (limit ${kv_usage:percent}), and requests "
            "wait as they do not usually, or are preempted. Take load off it, or give it more KV cache; if "
            "its requests are few and long, lower max_num_seqs.",
        ),
        Alert(
            name="SolpiKvTransferFailures",
            severity=WARNING,
            expr="increase(solpi_engine_kv_transfer_failures_total[15m]) > 0",
            keep="15m",
            summary="KV transfers from other servers fail.",
            description="${value} KV transfers of ${server} failed within 15 minutes; their prompts are computed again."
            " Look at the network between prefill and decode, and at the log of the other side.",
        ),
        Alert(
            name="SolpiTokenLatencyHigh",
            severity=CRITICAL,
            expr=f"{P99} > ${{latency}}",
            wait="8m",
            keep="5m",
            summary="Tokens come too slowly for anybody who waits for them.",
            description="P99 between two tokens of ${server} is ${value:duration} (limit ${latency} s). Look at "
            "preemptions first, then at prefills that hold decoding up (chunked prefill, "
            "max_num_batched_tokens), then at the lost share of a token.",
        ),
        Alert(
            name="SolpiTokenLatencySpike",
            severity=CRITICAL,
            expr=LATENCY_RISEN[1:-1],
            wait="10m",
            keep="5m",
            summary="Tokens come much more unevenly than a day before.",
            description="P99 between two tokens of ${server} is ${value:duration}, over ${latency_rise} times its "
            "median of the day before. Look what came with it: preemptions, queue, long prompts (chunked "
            "prefill), throttling, the control share.",
        ),
        Alert(
            name="SolpiQueueGrowing",
            severity=WARNING,
            expr=f"({WAITING} > ${{queue_growing}}) and {ON} (deriv({WAITING}[15m]) > 0)",
            wait="15m",
            keep="10m",
            summary="More requests come than a server gets done.",
            description="${value} requests wait at ${server} (limit ${queue_growing}), and they become more. Add a "
            "replica or shed load; if the KV cache is not full, raise max_num_seqs.",
        ),
    ),
)

# The log falls silent both when an engine idles and when it hangs: the last report tells which. An engine whose tokens
# go on has only stopped reporting. Each is held against itself, since one that works must not hide another, but where
# tokens are counted under other names than reports: there the server's count.
ENGINE = "on (job, instance, server, engine)"
RUNNING = 'solpi_engine_requests{state="running"}'
STUCK = (
    "(\n"
    "  max without (engine) (\n"
    "    (time() - solpi_engine_last_report_timestamp_seconds > ${silence})\n"
    f"      and {ENGINE} {RUNNING} > 0\n"
    f"      unless {ENGINE} rate(solpi_engine_generation_tokens_total[2m]) > 0\n"
    "  )\n"
    f"    unless {ON} sum without (engine) (\n"
    "      rate(solpi_engine_generation_tokens_total[2m])\n"
    f"        unless {ENGINE} solpi_engine_last_report_timestamp_seconds\n"
    "    ) > 0\n"
    ") or max without (engine, state) (\n"
    f"  min_over_time({RUNNING}[3m]) > 0\n"
    f"    and {ENGINE} rate(solpi_engine_steps_total[3m]) == 0\n"
    ") or max without (engine, state) (\n"
    f"  min_over_time({RUNNING}[3m]) > 0\n"
    f"    and {ENGINE} rate(solpi_engine_generation_tokens_total[3m]) == 0\n"
    f"    and {ENGINE} rate(solpi_engine_prompt_tokens_total[3m]) == 0\n"
    f"    unless {ENGINE} solpi_engine_steps_total\n"
    ")"
)

LIFE = Group(
    "solpi-engine-life",
    (
        Alert(
            name="SolpiEngineStuck",
            severity=CRITICAL,
            expr=STUCK,
            wait="1m",
            keep="2m",
            summary="An engine has running requests and makes no progress.",
            description="${server} has running requests, and has reported nothing for ${silence} s, or made neither "
            "step nor token for 3 minutes. Take it out of rotation, keep its stacks (py-spy dump --pid PID),"
            " and restart it; look at XIDs and at NCCL time-outs.",
        ),
        Alert(
            name="SolpiEngineDead",
            severity=CRITICAL,
            expr="sum without (kind) (\n"
            '  increase(solpi_engine_errors_total{kind=~"engine_dead|start_failed|worker_died"}[5m])\n'
            ") > 0\n"
            "or (solpi_engine_up == 0)\n"  # as long as nobody has started it again: its endpoint would page next
            f'  and {ON} ALERTS{{alertname="SolpiEngineDead", alertstate="firing"}}',
            keep="5m",
            summary="An engine says that it died.",
            description="The log of ${server} tells of an engine or a worker that died, or did not start. Read the "
            "lines before it (journalctl -u UNIT, or the log file); look at XIDs and memory, then restart "
            "it.",
        ),
        Alert(
            name="SolpiEngineDown",
            severity=CRITICAL,
            expr="solpi_engine_up == 0",
            wait="10m",
            keep="2m",
            summary="A server's endpoint does not answer.",
            description="The endpoint of ${server} has not answered for 10 minutes, longer than a start takes. See "
            "whether its process lives (systemctl status, docker ps), and its log.",
        ),
        Alert(
            name="SolpiEngineErrors",
            severity=WARNING,
            expr="increase(\n"
            "  solpi_engine_errors_total"
            '{kind=~"cuda_error|out_of_memory|nccl_timeout|step_timeout|kv_load_failed|ulimit"}[10m]\n'
            ") > 0",
            keep="10m",
            summary="An engine's log speaks of trouble.",
            description="The log of ${server} has ${value} new lines of kind {{ $labels.kind }}. Read them: "
            "`solpi-exporter read LOG` shows which lines were taken for it.",
        ),
        Alert(
            name="SolpiGpuBusyWithoutTokens",
            severity=WARNING,
            expr="min without (uuid) (\n"
            "  solpi_engine_gpu_info * on (job, instance, uuid) group_left ()\n"
            "    avg_over_time(solpi_gpu_utilization_ratio[5m])\n"
            ") > ${busy_ratio}\n"
            "  and on (job, instance, server) (server:solpi_engine_generation_tokens:rate5m == 0)\n"
            "  and on (job, instance, server) (server:solpi_engine_prompt_tokens:rate5m == 0)\n"
            "  and on (job, instance, server) (sum without (engine) (solpi_engine_generation_tokens_total) > 0)",
            wait="5m",
            keep="5m",
            summary="GPUs of a server are busy, and no tokens come.",
            description="The GPUs of ${server} are ${value:percent} busy (limit ${busy_ratio:percent}) without a token "
            "for 5 minutes. A rank that waits for its peers spins: look at each rank's log and at NCCL; or "
            "somebody else computes there (nvidia-smi).",
        ),
    ),
)

GROUPS = (LOAD, LIFE)
