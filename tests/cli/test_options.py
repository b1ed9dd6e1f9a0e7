"""Flags to settings."""

from typing import Any

import pytest

from solpi_exporter.cli.options import Fatal, flags_tree


def test_no_flag_says_nothing() -> None:
    """So that environment, file and defaults show."""
    assert flags_tree() == {}


@pytest.mark.parametrize(
    ("flags", "tree"),
    [
        ({"listen": ":1"}, {"http": {"listen": ":1"}}),
        ({"no_gpu": True}, {"gpu": {"enabled": False}}),
        ({"no_engine": True}, {"engine": {"enabled": False}}),
        ({"no_probe": True}, {"probe": {"enabled": False}}),
        ({"read_from": "beginning"}, {"engine": {"read_from": "beginning"}}),
        ({"state_dir": "/x"}, {"state_dir": "/x"}),
        ({"log_format": "json", "log_level": "debug"}, {"log": {"format": "json", "level": "debug"}}),
    ],
)
def test_a_flag_is_a_setting(flags: dict[str, Any], tree: dict[str, Any]) -> None:
    """And nothing else."""
    assert flags_tree(**flags) == tree


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/var/log/qwen.log", "qwen"),
        ("/var/log/vllm-*.log", "vllm"),
        ("vllm-0.8.5.log", "vllm-0.8.5"),
        ("vllm.log.1", "vllm.log"),
        ("/logs/my log.log", "my_log"),
        ("/logs/" + "x" * 80 + ".log", "x" * 64),
        ("/logs/*", "engine"),
    ],
)
def test_a_log_file_names_its_server(path: str, name: str) -> None:
    """After the file's stem, without what makes a pattern."""
    assert flags_tree(log_file=(path,))["engine"]["server"] == [{"name": name, "log": path}]


def test_an_endpoint_belongs_to_the_only_log() -> None:
    """Or is a server of its own."""
    url = "http://127.0.0.1:8000/metrics"

    assert flags_tree(log_file=("a.log",), metrics_url=url)["engine"]["server"] == [
        {"name": "a", "log": "a.log", "metrics_url": url}
    ]
    assert flags_tree(metrics_url=url)["engine"]["server"] == [{"name": "engine", "metrics_url": url}]


def test_an_endpoint_of_several_logs_is_ambiguous() -> None:
    """It dies with a way out."""
    with pytest.raises(Fatal, match=r"Write a \[\[engine.server\]\] table for each"):
        flags_tree(log_file=("a.log", "b.log"), metrics_url="http://127.0.0.1:8000/metrics")
