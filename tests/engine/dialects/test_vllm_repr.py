"""Python reprs in vLLM's messages."""

import pytest

from solpi_exporter.engine.dialects.vllm_repr import parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1, b=2", ["a=1", "b=2"]),
        ("a=1, b=2) and more, c=3", ["a=1", "b=2"]),
        ("a={'x': 1, 'y': [2, 3]}, b=(4, 5)", ["a={'x': 1, 'y': [2, 3]}", "b=(4, 5)"]),
        ("a='1, b=2', c=3", ["a='1, b=2'", "c=3"]),
        ('a="it\'s, so", c=3', ['a="it\'s, so"', "c=3"]),
        (r"a='it\'s, so', c=3", [r"a='it\'s, so'", "c=3"]),
        ("a='(', c=3", ["a='('", "c=3"]),
        ("k:('GPU_to_CPU',)=1, c=3", ["k:('GPU_to_CPU',)=1", "c=3"]),
        ("a='never closed, c=3", ["a='never closed", "c=3"]),
        ("a={never closed, c=3", ["a={never closed, c=3"]),
        ("", [""]),
    ],
)
def test_it_is_split_where_nothing_is_open(text: str, expected: list[str]) -> None:
    """At commas that stand in no bracket and no quote, up to the bracket that closes the whole."""
    assert list(parts(text)) == expected


def test_a_line_of_a_megabyte_takes_no_time() -> None:
    """Each character is looked at once, whatever is open."""
    for text in ("(" * (1 << 20), "'" * (1 << 20), "'\\" * (1 << 19), ", " * (1 << 19), '"' + "a'" * (1 << 19)):
        assert "".join(parts(text)) == text.replace(", ", "") or text[0] == ","
