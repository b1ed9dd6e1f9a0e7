"""Files on a host: laid down, and taken away again where nobody has changed them since.

What was laid down is noted with its digest, so that an upgrade replaces what nobody has touched, and keeps the rest.
"""

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

NOTES = "etc/solpi-exporter/.installed.json"
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - ProtectHome= and PrivateTmp= hide these


class Deed(Enum):
    """What becomes of a file."""

    WRITE = "write"
    SAME = "is there already"
    KEEP = "keep, since it was changed"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Step:
    """One file, by its place under the root, and what becomes of it; `text` is its content, None to be removed."""

    place: str
    deed: Deed
    text: str | None = None


def to_install(root: Path, texts: Mapping[str, str]) -> list[Step]:
    """Return what installing these files comes to."""
    noted = _noted(root)
    return [Step(place, _deed(root / place, text, noted.get(place)), text) for place, text in texts.items()]


def to_uninstall(root: Path) -> list[Step]:
    """Return what taking away everything that was installed comes to."""
    return [
        Step(place, Deed.REMOVE if _digest(root / place) in (digest, None) else Deed.KEEP)
        for place, digest in _noted(root).items()
    ]


def install(root: Path, steps: list[Step]) -> None:
    """Do it; raise OSError where a file cannot be written."""
    noted = _noted(root)
    for step in steps:
        if step.text is not None and step.deed is not Deed.KEEP:
            path = root / step.place
            path.parent.mkdir(parents=True, exist_ok=True)
            if step.deed is Deed.WRITE:
                path.write_text(step.text)
            noted[step.place] = hashlib.sha256(step.text.encode()).hexdigest()
    (root / NOTES).parent.mkdir(parents=True, exist_ok=True)
    (root / NOTES).write_text(json.dumps(noted, indent=2) + "\n")


def uninstall(root: Path, steps: list[Step]) -> None:
    """Do it, and leave no folder of ours behind that is empty; raise OSError where a file cannot be removed."""
    for step in steps:
        if step.deed is Deed.REMOVE:
            (root / step.place).unlink(missing_ok=True)
    (root / NOTES).unlink(missing_ok=True)
    folders = {Path(place).parent for place in (NOTES, *(step.place for step in steps))}
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        is_ours = any("solpi-exporter" in part for part in folder.parts)
        if is_ours and (root / folder).is_dir() and not any((root / folder).iterdir()):
            (root / folder).rmdir()


def unreadable(path: Path) -> str | None:
    """Return why a service's user could not read a file, or use what lies in a folder; None where it could."""
    for place in (path.absolute(), path.resolve()):  # a venv's interpreter is a link to another
        for hidden in HIDDEN:
            if place.is_relative_to(hidden):
                return f"{place} lies under {hidden}, which the service does not see"
        for one in (place, *place.parents):
            mode = one.stat().st_mode
            if not mode & (stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH):
                return f"{one} is closed to other users"
    return None


def _deed(path: Path, text: str, noted: str | None) -> Deed:
    there = _digest(path)
    if there == hashlib.sha256(text.encode()).hexdigest():
        return Deed.SAME
    return Deed.WRITE if there in (None, noted) else Deed.KEEP


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _noted(root: Path) -> dict[str, str]:
    try:
        noted: dict[str, str] = json.loads((root / NOTES).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return noted


def told(steps: list[Step], root: Path) -> Iterator[str]:
    """Yield a line for each file."""
    for step in steps:
        yield f"{root / step.place}: {step.deed.value}"
