"""Python reprs, which vLLM logs arguments and connectors' metrics in: split where no bracket and no quote is open."""

import re
from collections.abc import Iterator

_TOKEN = (
    re.compile(  # the last one, an escape outside of quotes, keeps a quote that never closes from costing its square
        r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?P<open>[\[({])|(?P<close>[\])}])|(?P<comma>, )|\\."""
    )
)


def parts(text: str) -> Iterator[str]:
    """Yield what stands between the commas of a repr's inside, up to the bracket that closes it, if it is there."""
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth < 0:
                yield text[begin : token.start()]
                return
        elif token["comma"] and not depth:
            yield text[begin : token.start()]
            begin = token.end()
    yield text[begin:]
