"""The design's rules, read from the imports: a rule without a test is a wish."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "solpi_exporter"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("test_*.py"))

MAX_LINES = 350
MEDIAN_LINES = 130

# A module imports only from rows above its own. Within a row marked *, parts of one folder may import one another.
ROWS: tuple[tuple[str, ...], ...] = (
    ("__init__", "clock", "metric", "journald", "repeats", "statedir"),
    ("source", "rules", "reloads", "service", "logsetup"),
    ("follow", "dashboards"),
    ("board", "gpu", "engine", "probe", "host"),
    (
        "runner",
        "kept",
        "supervisor",
        "collector",
        "render",
        "derived",
        "placement",
        "neighbours",
        "config",
        "environment",
    ),
    ("probing", "overview"),
    ("exposition", "catalog", "settings_file", "sources"),
    ("web",),
    ("protection",),
    ("daemon",),
    ("demo",),
    ("cli",),
    ("__main__",),
)

# The one place, or places, where a foreign library may be imported.
DOORS = {
    "pynvml": {"gpu/nvml.py", "gpu/nvml_gpm.py", "gpu/nvml_events.py", "probe/cuda_costs.py"},  # there an error's name
    "torch": {
        f"probe/{name}.py" for name in ("decode", "cpu", "cuda", "cuda_costs", "cuda_errors", "cuda_steps", "device")
    },
    "watchdog": {"follow/watch.py"},
    "click": {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "cli").glob("*.py")},
    "prometheus_client": {"exposition.py", "engine/scraped.py"},
    "tornado": {"web.py"},
    "yaml": {"rules/files.py", "protection.py"},
    "bcrypt": {"protection.py"},
    "msgspec": {"config.py", "protection.py", "settings_file.py", "statedir.py", "probe/baseline_file.py"},
    "structlog": {
        f"{name}.py" for name in ("logsetup", "repeats", "kept", "runner", "probing", "sources", "daemon", "cli/serve")
    },
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(module: str) -> str:
    """Return the row entry of "solpi_exporter.gpu.driver": its first folder or module."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            if node.module == "solpi_exporter":
                yield from (
                    f"solpi_exporter.{alias.name}" if alias.name[0] != "_" else node.module for alias in node.names
                )
            else:
                yield node.module


def row(part: str) -> int:
    return next(number for number, parts in enumerate(ROWS) if part in parts)


def own_part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    """Downwards only; gpu/, engine/, probe/ and host/ never import one another."""
    own = own_part(path)
    for module in imports(path):
        if module.startswith("solpi_exporter") and part_of(module) != own:
            assert row(part_of(module)) < row(own), f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_foreign_things_have_one_door(path: Path) -> None:
    """A library that is imported elsewhere than at its door would spread its errors and its types."""
    for module in imports(path):
        library = module.split(".")[0]
        if library in DOORS:
            assert name_of(path) in DOORS[library], f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_say_what_they_are_and_stay_small(path: Path) -> None:
    """A docstring that tells the module's place in the flow; no module above the limit."""
    tree = ast.parse(path.read_text())

    assert ast.get_docstring(tree), f"{name_of(path)} has no docstring"
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_the_median_module_is_small() -> None:
    """The limit is not the aim."""
    lengths = sorted(len(path.read_text().splitlines()) for path in MODULES)

    assert lengths[len(lengths) // 2] <= MEDIAN_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_broad_excepts_are_the_runners(path: Path) -> None:
    """Anywhere else an unexpected error is a bug that must be seen."""
    broad = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
    ]

    assert not broad or name_of(path) == "runner.py"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_state_in_modules(path: Path) -> None:
    """No `global`, anywhere."""
    assert not any(isinstance(node, ast.Global) for node in ast.walk(ast.parse(path.read_text())))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_tests_state_a_fact_and_do_not_sleep(path: Path) -> None:
    """Every test has a docstring; time is passed in, or a real thing is waited for, never slept through."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert ast.get_docstring(node), f"{path.name}: {node.name} states no fact"
        if isinstance(node, ast.Attribute):
            assert node.attr != "sleep", f"{path.name} sleeps"


# Modules without behaviour of their own, or whose behaviour is another test file's subject.
TESTED_ELSEWHERE = {
    "source.py",
    "config.py",
    "engine/dialects/dialect.py",
    "engine/quantities.py",
    "follow/lines.py",
    "engine/progress.py",
    "engine/reading.py",
    "probe/quantities.py",
    "probe/pinned_quantities.py",
    "probe/rig.py",
    "probe/cuda_costs.py",
    "probe/cuda_steps.py",
    "cli/probe.py",
    "cli/demo.py",
    "cli/metrics.py",
    "cli/serve.py",
    "rules/rule.py",
    # Held against each other in tests/dashboards/test_frame.py, test_queries.py and test_live.py.
    *(f"dashboards/{name}.py" for name in ("control", "engine", "fleet", "gpu", "looks", "panels", "tables")),
    *(f"dashboards/{name}.py" for name in ("control_host", "engine_requests", "fleet_peers", "gpu_health")),
}


def test_tests_mirror_the_package() -> None:
    """Every module has a test file of its name in the same folder, or a reason why not."""
    for path in MODULES:
        test = Path(__file__).parent / path.relative_to(PACKAGE).parent / f"test_{path.stem}.py"
        if path.stem[0] != "_":
            assert test.exists() != (name_of(path) in TESTED_ELSEWHERE), name_of(path)
