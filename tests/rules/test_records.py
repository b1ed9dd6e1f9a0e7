"""What is recorded, worked out by promtool on small series."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from solpi_exporter.rules.files import FILES, RECORDS
from tests.rules.cases import ALERT_FILES, ANYWHERE, SITE

AT = ANYWHERE
ENGINES = [f'{AT}, server="vllm", engine="{number}"' for number in range(2)]
TOKENS = "solpi_engine_inter_token_latency_seconds"
KIND = 'model="H200", shape="8b", layers="4", context="512", dtype="bfloat16"'


def histogram(metric: str, labels: str, counts: Mapping[str, str]) -> dict[str, str]:
    series = {f'{metric}_bucket{{{labels}, le="{edge}"}}': values for edge, values in counts.items()}
    return series | {f"{metric}_count{{{labels}}}": counts["+Inf"]}


def probed(value: float, host: str) -> dict[str, str]:
    on = f'job="solpi", instance="{host}", {SITE}, device="cuda:0", uuid="GPU-{host}"'
    return {
        f'solpi_probe_info{{{on}, {KIND}, torch="{host}"}}': "1x20",
        f"solpi_probe_launch_seconds{{{on}}}": f"{value}x20",
        f'solpi_probe_token_seconds{{{on}, batch="1", mode="eager_sync", basis="measured"}}': f"{value}x20",
    }


def counted(metric: str, labels: str = "") -> dict[str, str]:
    """Sixty a minute at each of two engines: two a second."""
    return {f"{metric}{{{one}{labels}}}": "60+60x20" for one in ENGINES}


def gauges(metric: str, labels: str = "") -> dict[str, str]:
    return {f"{metric}{{{one}{labels}}}": "3x20" for one in ENGINES}


def hourly(record: str, labels: str, values: str) -> dict[str, str]:
    """What was recorded once an hour."""
    return {f"{record}{{{AT}, {labels}}}": " ".join(f"{value} _x59" for value in values.split())}


PROBED = 'device="cuda:0", uuid="GPU-0"'
SERVER = 'server="vllm"'
CONTROL = "solpi_engine_control_ratio"
FLEET = probed(8, "a") | probed(8, "b") | probed(8, "c") | probed(16, "d")
EVEN = {"0.01": "0+300x20", "0.02": "0+600x20", "+Inf": "0+600x20"}  # half of the tokens below 10 ms, all below 20

CASES: tuple[tuple[str, dict[str, str], str, float | None], ...] = (
    (
        "instance:solpi_gpu_utilization_ratio:avg",
        {f'solpi_gpu_utilization_ratio{{{AT}, gpu="{n}", uuid="GPU-{n}"}}': f"{n}x20" for n in range(2)},
        "",
        0.5,
    ),
    (
        "instance:solpi_engine_kv_cache_usage_ratio:max",
        {f"solpi_engine_kv_cache_usage_ratio{{{one}}}": f"{0.4 + 0.2 * n}x20" for n, one in enumerate(ENGINES)},
        "",
        0.6,
    ),
    (f"instance:{TOKENS}:p50_rate5m", histogram(TOKENS, ENGINES[0], EVEN), "", 0.01),
    (f"server:{TOKENS}:p99_rate5m", histogram(TOKENS, ENGINES[0], EVEN), '{server="vllm"}', 0.0198),
    (
        f"server:{TOKENS}:p99_rate5m",
        histogram(TOKENS, ENGINES[0], dict.fromkeys(("0.01", "+Inf"), "600x20")),
        '{server="vllm"}',
        None,  # idle: absent, and no NaN
    ),
    (
        "instance:solpi_engine_preemptions:rate5m",
        {f"solpi_engine_preemptions_total{{{one}}}": "600+60x20" for one in ENGINES},
        "",
        2.0,
    ),
    (
        "instance:solpi_engine_requests_waiting:sum",
        {f'solpi_engine_requests{{{one}, state="waiting"}}': "3x20" for one in ENGINES}
        | {f'solpi_engine_requests{{{ENGINES[0]}, state="running"}}': "9x20"},
        "",
        6.0,
    ),
    (
        "instance:solpi_engine_generation_tokens_per_joule:ratio_rate5m",
        {f"solpi_engine_generation_tokens_total{{{one}}}": "6000+6000x20" for one in ENGINES}
        | {f'solpi_gpu_energy_joules_total{{{AT}, gpu="0", uuid="GPU-0"}}': "24000+24000x20"},
        "",
        0.5,
    ),
    (
        "server:solpi_engine_control_ratio:avg5m",
        {f'solpi_engine_control_ratio{{{ENGINES[0]}, basis="endpoint"}}': "0.7x20"},
        '{server="vllm"}',
        0.7,
    ),
    (
        "device:solpi_probe_launch_seconds:ratio_fleet",
        FLEET,
        '{instance="d"}',
        2.0,
    ),
    ("model:solpi_probe_launch_seconds:median", FLEET, "", 8.0),
    ("model:solpi_probe_launch_seconds:count", FLEET, "", 4.0),
    ("model:solpi_probe_token_seconds:median", FLEET, '{batch="1", mode="eager_sync", basis="measured"}', 8.0),
    ("model:solpi_probe_token_seconds:count", FLEET, '{batch="1"}', 4.0),
    ("device:solpi_probe_token_seconds:ratio_fleet", FLEET, '{instance="d", cluster="eu"}', 2.0),
    (f"instance:{TOKENS}:p99_rate5m", histogram(TOKENS, ENGINES[0], EVEN), "", 0.0198),
    (f"server:{TOKENS}:p50_rate5m", histogram(TOKENS, ENGINES[0], EVEN), "{cluster='eu'}", 0.01),
    *(
        (f"server:{metric}:{name}_rate5m", histogram(metric, ENGINES[1], EVEN), '{server="vllm"}', value)
        for metric in ("solpi_engine_time_to_first_token_seconds", "solpi_engine_queue_seconds")
        for name, value in (("p50", 0.01), ("p99", 0.0198))
    ),
    *(
        (f"server:solpi_engine_{name}:rate5m", counted(f"solpi_engine_{name}_total"), '{server="vllm"}', 2.0)
        for name in ("preemptions", "generation_tokens", "prompt_tokens")
    ),
    (
        "server:solpi_engine_kv_transfer_bytes:rate5m",
        counted("solpi_engine_kv_transfer_bytes_total", ', direction="load"'),
        '{direction="load"}',
        2.0,
    ),
    ("server:solpi_engine_swapped_requests:sum", gauges("solpi_engine_swapped_requests"), '{server="vllm"}', 6.0),
    (
        "server:solpi_engine_requests:sum",
        gauges("solpi_engine_requests", ', state="running"') | gauges("solpi_engine_requests", ', state="waiting"'),
        '{state="running"}',
        6.0,
    ),
    (f"server:{CONTROL}:avg1h", {f'{CONTROL}{{{ENGINES[0]}, basis="log"}}': "0.7x20"}, '{server="vllm"}', 0.7),
    (
        "device:solpi_probe_control_ratio:avg1h",
        {f'solpi_probe_control_ratio{{{AT}, {PROBED}, batch="1", basis="measured"}}': "0.5x20"},
        '{batch="1"}',
        0.5,
    ),
    *(
        (
            f"device:solpi_probe_step_seconds:{name}_rate1h",
            histogram("solpi_probe_step_seconds", f'{AT}, {PROBED}, batch="1", mode="eager_sync"', EVEN),
            '{batch="1"}',
            value,
        )
        for name, value in (("p50", 0.01), ("p99", 0.0198))
    ),
    (
        "model:solpi_engine_control_ratio:median",
        {
            'solpi_engine_gpu_info{job="solpi", instance="a", server="vllm", uuid="GPU-0"}': "1x20",
            'solpi_engine_gpu_info{job="solpi", instance="a", server="vllm", uuid="GPU-1"}': "1x20",
            'solpi_gpu_info{job="solpi", instance="a", gpu="0", uuid="GPU-0", model="H200"}': "1x20",
            'solpi_gpu_info{job="solpi", instance="a", gpu="1", uuid="GPU-1", model="H100"}': "1x20",
            f'solpi_engine_control_ratio{{{ENGINES[0]}, basis="endpoint"}}': "0.7x20",
        },
        '{model="H200"}',
        0.7,
    ),
)


# After three hours: medians of what came before the last of them.
HOURS = "0.2 0.4 0.6 0.9 0.9"
LATER: tuple[tuple[str, dict[str, str], float | None], ...] = (
    (f"server:{CONTROL}:p50_7d", hourly(f"server:{CONTROL}:avg1h", SERVER, HOURS), 0.4),
    (f"server:{CONTROL}:p50_7d", {f'{CONTROL}{{{ENGINES[0]}, basis="log"}}': "_x150 0.7x60"}, None),
    (f"server:{TOKENS}:p99_rate5m_p50_1d", hourly(f"server:{TOKENS}:p99_rate5m_p50_1h", SERVER, HOURS), 0.4),
    (
        f"server:{TOKENS}:p99_rate5m_p50_1h",
        histogram(TOKENS, ENGINES[0], {edge: values.replace("x20", "x200") for edge, values in EVEN.items()}),
        0.0198,
    ),
    (
        "device:solpi_probe_control_ratio:p50_7d",
        hourly("device:solpi_probe_control_ratio:avg1h", f'{PROBED}, batch="1", basis="measured"', HOURS),
        0.4,
    ),
)


@pytest.mark.parametrize(("name", "series", "selector", "value"), CASES)
def test_it_is_what_its_name_says(
    name: str, series: dict[str, str], selector: str, value: float | None, tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Over engines and GPUs as meant, and absent where there is nothing to tell."""
    prove(f"{name}{selector}", series, value, "15m", tool("promtool"), tmp_path)


@pytest.mark.parametrize(("name", "series", "value"), LATER)
def test_what_was_usual_leaves_out_the_last_hour(
    name: str, series: dict[str, str], value: float | None, tool: Callable[[str], str], tmp_path: Path
) -> None:
    """So that what is held against it is no part of it; absent while there is nothing before."""
    prove(name, series, value, "180m", tool("promtool"), tmp_path)


def test_every_record_has_a_case() -> None:
    """One that is worked out nowhere may be of anything."""
    assert {case[0] for case in (*CASES, *LATER)} == {record.name for record in RECORDS}


def prove(
    recorded: str, series: Mapping[str, str], value: float | None, minute: str, promtool: str, folder: Path
) -> None:
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    test = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [{"expr": f"round(max({recorded}), 0.0001)", "eval_time": minute, "exp_samples": samples}],
    }
    rules = {
        "rule_files": [str(path) for path in sorted(ALERT_FILES.glob("*.yml"))],
        "evaluation_interval": "1m",
        "group_eval_order": [group.name for groups in FILES.values() for group in groups],
        "tests": [test],
    }
    (folder / "case.yml").write_text(yaml.safe_dump(rules))

    outcome = subprocess.run(
        [promtool, "test", "rules", str(folder / "case.yml")], capture_output=True, text=True, check=False
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("name", [record.name for record in RECORDS])
def test_names_are_level_metric_operations(name: str) -> None:
    """As Prometheus' guide has it, so that they are told from what an exporter says."""
    assert re.fullmatch(r"(instance|server|device|model):solpi_\w+:\w+", name)
