"""A token and its parts."""

import pytest

from solpi_exporter.overview.split import Part, split_of


def test_parts_lie_end_to_end() -> None:
    """Each begins where the one before ends, and the last ends the bar."""
    split = split_of(0.010, 0.4, {"compute": 0.005, "memory": 0.001, "scheduling": 0.003, "sync": 0.001})

    assert [part.begin for part in split.parts] == pytest.approx([0.0, 0.5, 0.6, 0.9])
    assert split.parts[-1].begin + split.parts[-1].share == pytest.approx(1.0)
    assert (split.token, split.control) == (0.010, 0.4)


def test_a_token_that_the_gpu_outlasts_fills_the_bar() -> None:
    """With asynchronous scheduling it may be busy for longer than the tokens lie apart: no bar is wider than whole."""
    split = split_of(0.005, 0.0, {"busy": 0.006, "lost": 0.0})

    assert split.parts == (Part("busy", 0.006, 1.0, 0.0), Part("lost", 0.0, 0.0, 1.0))
    assert split.token == 0.005
