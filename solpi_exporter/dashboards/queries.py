"""Queries: PromQL in which words in capitals stand for what a dashboard's variables choose, and for long lists."""

import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

DATA_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

_HOST = 'job=~"$job", instance=~"$instance"'
WORDS: Mapping[str, str] = {
    # Matchers: what the variables choose.
    "HOST": _HOST,
    "ENGINE": f'{_HOST}, server=~"$server"',
    "GPU": f'{_HOST}, gpu=~"$gpu"',
    "BATCH": f'{_HOST}, batch=~"$batch"',
    # Matchers: states and reasons that are somebody's business.
    "NOT_OK": 'state!~"ok|quiesced"',
    "HARMFUL": 'reason=~"hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown|reliability"',
    # Labels: what a sum keeps apart.
    "EACH_HOST": "job, instance",
    "EACH_SERVER": "job, instance, server",
    "EACH_GPU": "job, instance, gpu, uuid, gpu_instance",
}
_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b")


def promql(written: str) -> str:
    """Return a query as Grafana takes it: `x{HOST}` selects the chosen hosts, `by (EACH_HOST)` keeps them apart."""
    return _WORD.sub(lambda word: WORDS[word[0]], written)


def query(expr: str, legend: str = "__auto") -> Json:
    """Return a query over the range that is shown."""
    return {
        "datasource": DATA_SOURCE,
        "editorMode": "code",
        "expr": promql(expr),
        "legendFormat": legend,
        "range": True,
    }


def query_now(expr: str) -> Json:
    """Return a query of the present, as a table."""
    return query(expr) | {"instant": True, "range": False, "format": "table"}


def query_buckets(expr: str) -> Json:
    """Return a query of a histogram's buckets, for a heatmap."""
    return query(expr, "{{le}}") | {"format": "heatmap"}
