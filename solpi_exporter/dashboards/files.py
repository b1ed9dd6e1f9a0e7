"""All dashboards as files: what they are called, what is in them, and which of a folder's are not as they should be."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from solpi_exporter.dashboards import control, engine, fleet, gpu
from solpi_exporter.dashboards.queries import Json

DASHBOARDS: Mapping[str, Callable[[], Json]] = MappingProxyType(
    {f"{module.UID}.json": module.build for module in (fleet, control, engine, gpu)}
)


def text(name: str) -> str:
    """Return a file's content."""
    return json.dumps(DASHBOARDS[name](), indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> None:
    """Write all files, the folder included; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (folder / name).write_text(text(name), encoding="utf-8")


def stale(folder: Path) -> list[str]:
    """Return the names of files that are missing or differ."""
    return [name for name in DASHBOARDS if not _holds(folder / name, text(name))]


def _holds(path: Path, content: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == content
    except (OSError, UnicodeDecodeError):
        return False
