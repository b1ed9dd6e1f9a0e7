"""Queries: PromQL in which words in capitals stand for what a dashboard's variables choose, and parts to make it of."""

import re
from typing import Any

Json = dict[str, Any]

DATA_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

HOST = 'job=~"$job", instance=~"$instance"'
ENGINE = f'{HOST}, server=~"$server"'
GPU = f'{HOST}, gpu=~"$gpu"'
BATCH = f'{HOST}, batch=~"$batch"'
BY_HOST = "job, instance"
BY_SERVER = f"{BY_HOST}, server"
BY_GPU = f"{BY_HOST}, gpu, uuid, gpu_instance"
WORDS = {
    "HOST": HOST,
    "ENGINE": ENGINE,
    "GPU": GPU,
    "BATCH": BATCH,
    "EACH_HOST": BY_HOST,
    "EACH_SERVER": BY_SERVER,
    "EACH_GPU": BY_GPU,
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


def select(name: str, scope: str, *matchers: str) -> str:
    """Return a selector."""
    return f"{name}{{{', '.join((scope, *matchers))}}}"


def rate(name: str, scope: str, *matchers: str) -> str:
    """Return a counter's rate over a window that fits the scrape interval."""
    return f"rate({select(name, scope, *matchers)}[$__rate_interval])"


def rise(name: str, scope: str, *matchers: str, window: str = "$__rate_interval") -> str:
    """Return by how much a counter rose."""
    return f"increase({select(name, scope, *matchers)}[{window}])"


def mean(by: str, expr: str) -> str:
    """Return the mean of what has these labels in common."""
    return f"avg by ({by}) ({expr})"


def most(by: str, expr: str) -> str:
    """Return the largest of what has these labels in common."""
    return f"max by ({by}) ({expr})"


def total(by: str, expr: str) -> str:
    """Return the sum of what has these labels in common."""
    return f"sum by ({by}) ({expr})"


def share(part: str, whole: str) -> str:
    """Return a quotient that is absent, and not NaN, where there is nothing to divide by."""
    return f"{part} / ({whole} > 0)"


def quantile(of: float, histogram: str, scope: str, by: str) -> str:
    """Return a quantile of what was observed within the window."""
    return f"histogram_quantile({of:g}, {total(f'{by}, le', rate(f'{histogram}_bucket', scope))})"
