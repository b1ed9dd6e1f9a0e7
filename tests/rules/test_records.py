"""What is recorded, worked out by promtool on small series."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from solpi_exporter.rules.files import RECORDS
from tests.rules.cases import ALERT_FILES

AT = 'job="solpi", instance="a"'
ENGINES = [f'{AT}, server="vllm", engine="{number}"' for number in range(2)]
TOKENS = "solpi_engine_inter_token_latency_seconds"
KIND = 'model="H200", shape="8b", layers="4", context="512", dtype="bfloat16"'


def histogram(metric: str, labels: str, counts: Mapping[str, str]) -> dict[str, str]:
    series = {f'{metric}_bucket{{{labels}, le="{edge}"}}': values for edge, values in counts.items()}
    return series | {f"{metric}_count{{{labels}}}": counts["+Inf"]}


def probed(value: float, host: str) -> dict[str, str]:
    on = f'job="solpi", instance="{host}", device="cuda:0", uuid="GPU-{host}"'
    return {
        f'solpi_probe_info{{{on}, {KIND}, torch="{host}"}}': "1x20",
        f"solpi_probe_launch_seconds{{{on}}}": f"{value}x20",
    }


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
        probed(8, "a") | probed(8, "b") | probed(8, "c") | probed(16, "d"),
        '{instance="d"}',
        2.0,
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


@pytest.mark.parametrize(("name", "series", "selector", "value"), CASES)
def test_it_is_what_its_name_says(
    name: str, series: dict[str, str], selector: str, value: float | None, tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Over engines and GPUs as meant, and absent where there is nothing to tell."""
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    test = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {"expr": f"round(max({name}{selector}), 0.0001)", "eval_time": "15m", "exp_samples": samples}
        ],
    }
    rules = {"rule_files": [str(ALERT_FILES / "solpi-records.yml")], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "case.yml").write_text(yaml.safe_dump(rules))

    outcome = subprocess.run(
        [tool("promtool"), "test", "rules", str(tmp_path / "case.yml")], capture_output=True, text=True, check=False
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("name", [record.name for record in RECORDS])
def test_names_are_level_metric_operations(name: str) -> None:
    """As Prometheus' guide has it, so that they are told from what an exporter says."""
    assert re.fullmatch(r"(instance|server|device|model):solpi_\w+:\w+", name)
