"""Where settings come from: a TOML file, SOLPI_... variables and flags, merged in that order and checked as a whole."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from solpi_exporter.config import Section, ServerSettings, Settings

PREFIX = "SOLPI_"
FLAG_VARIABLES = ("CONFIG", "LOG_FILE", "METRICS_URL")  # read by the command line, since they name no single setting
# Kubernetes puts the addresses of services called solpi or solpi-exporter into every pod's environment.
_KUBERNETES = re.compile(r"SOLPI_(EXPORTER_)?(SERVICE|PORT)(_.*)?")

Tree = dict[str, Any]


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line: where, which key, what was expected."""


def load(path: Path | None, environment: Mapping[str, str], flags: Tree, base: Tree | None = None) -> Settings:
    """Return the settings: flags over environment over file over `base` over defaults; raise ConfigError."""
    from_file = _read(path)
    _convert(from_file, str(path))  # by itself first, so that a file is blamed for its own faults only
    tree = _merge(_merge(base or {}, from_file), _from_environment(environment))
    return _convert(_merge(tree, flags), "settings")


def _convert(tree: Tree, where: str) -> Settings:
    try:
        return msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(str(error))}") from error


def setting_keys() -> Iterator[tuple[tuple[str, ...], msgspec.structs.FieldInfo]]:
    """Yield every setting's path and declaration, sections before what follows them, server tables left out."""
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.type, type) and issubclass(field.type, Section):
            for inner in msgspec.structs.fields(field.type):
                yield (field.name, inner.name), inner
        else:
            yield (field.name,), field


def _read(path: Path | None) -> Tree:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> Tree:
    """Return SOLPI_GPU_INTERVAL=1 as gpu.interval = 1; the value is TOML, or text where it is not."""
    known = {PREFIX + "_".join(path).upper(): path for path, _ in setting_keys()}
    tree: Tree = {}
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name.removeprefix(PREFIX) in FLAG_VARIABLES or _KUBERNETES.fullmatch(name):
            continue
        if name not in known:
            raise ConfigError(f"environment: {name}: unknown setting{_did_you_mean(name, known)}")
        *sections, key = known[name]
        target = tree
        for section in sections:
            target = target.setdefault(section, {})
        target[key] = _toml_value(text)
    return tree


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _merge(base: Tree, over: Tree) -> Tree:
    """Return `base` with `over` laid on top, table by table."""
    merged = dict(base)
    for key, value in over.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both_tables else value
    return merged


def _explain(message: str) -> str:
    """Turn msgspec's message, "what - at `$.path`", into "path: what", and add what may have been meant."""
    what, _, path = message.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    what = what.replace("`", "").replace("array", "list").replace("object", "table")
    if unknown := re.fullmatch(r"Object contains unknown field (\S+)", what):
        key = f"{path}.{unknown[1]}".lstrip(".")
        servers = [f"{path}.{field.name}" for field in msgspec.structs.fields(ServerSettings)]
        known = servers if path.startswith("engine.server[") else [".".join(parts) for parts, _ in setting_keys()]
        return f"{key}: unknown setting{_did_you_mean(key, known)}"
    if missing := re.fullmatch(r"Object missing required field (\S+)", what):
        return f"{path}.{missing[1]}: expected a value, got none"
    if path == "engine.server":
        what += " (write [[engine.server]])"
    if rule := re.match(r"([a-z_]+): ", what):
        return f"{path}.{rule[1]}: {what[rule.end() :]}".lstrip(".")
    return f"{path}: {what[0].lower()}{what[1:]}"


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" (did you mean {close[0]}?)" if close else ""
