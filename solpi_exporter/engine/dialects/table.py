"""The dialects that there are, by the name that a configuration gives; `auto` tries them in this order."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from solpi_exporter.engine.dialects.dialect import Dialect
from solpi_exporter.engine.dialects.sglang import SGLANG
from solpi_exporter.engine.dialects.tensorrt_llm import TENSORRT_LLM
from solpi_exporter.engine.dialects.vllm import VLLM

DIALECTS: Mapping[str, Dialect] = MappingProxyType({one.name: one for one in (VLLM, SGLANG, TENSORRT_LLM)})
AUTO = "auto"


def chosen(name: str) -> tuple[Dialect, ...]:
    """Return the dialects that a name may mean."""
    return tuple(DIALECTS.values()) if name == AUTO else (DIALECTS[name],)


def start_of(dialects: Sequence[Dialect]) -> re.Pattern[bytes]:
    """Return what matches the line with which an engine of any of these starts."""
    return re.compile(b"|".join(dialect.start.pattern for dialect in dialects), re.MULTILINE)
