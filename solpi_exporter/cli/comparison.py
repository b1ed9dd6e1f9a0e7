"""What a comparison with a baseline says to a person, and as JSON."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from solpi_exporter.probe.baseline import COPY, Baseline, Fingerprint
from solpi_exporter.probe.compare import BETTER, NOT_COMPARABLE, SAME, WORSE, Comparison, Row

COLOURS = {WORSE: "red", BETTER: "green"}
NAMES = 38  # columns


def machine(one: Fingerprint) -> str:
    """Return on what and how was measured."""
    layers = f"{one.layers} layer{'s' * (one.layers != 1)}"
    parts = [None if one.device == "cpu" else one.model, one.cpu or "a CPU that is not known"]
    where = " beside ".join(part for part in parts if part is not None)
    return f"{where}, {one.shape} shape: {layers}, context {one.context}, {one.dtype}"


def report(before: Baseline, now: Baseline, result: Comparison, path: str) -> Iterator[str]:
    """Yield the lines: what changed figure by figure, what did not in one, and what may explain it."""
    taken = datetime.fromtimestamp(before.time, UTC)
    yield f"{machine(now.fingerprint)}, against {path} of {taken:%Y-%m-%d %H:%M} UTC"
    yield ""
    changed = [*result.those(WORSE), *result.those(BETTER)]
    if changed:
        yield f"{'':{NAMES}}  {'now':>9}  {'baseline':>9}  {'change':>9}  {'band':>10}"
        yield from map(_line, changed)
        yield ""
    yield from _summary(result)
    if result.surroundings:
        yield f"Since then: {'; '.join(map(str, result.surroundings))}."


def as_json(before: Baseline, now: Baseline, result: Comparison) -> str:
    """Return the same as one JSON object, all figures in base units."""
    plain = {
        "verdict": next((one for one in (WORSE, BETTER) if result.those(one)), SAME),
        "baseline_timestamp": before.time,
        "timestamp": now.time,
        "figures": [_plain(row) for row in result.rows],
        "surroundings": {one.item.name: {"value": one.now, "baseline": one.before} for one in result.surroundings},
    }
    return json.dumps(plain, indent=2)


def _plain(row: Row) -> dict[str, Any]:
    return {
        "figure": row.key.name,
        "batch": row.key.batch,
        "part": row.key.part,
        "verdict": row.verdict,
        "value": None if row.now is None else row.now.value,
        "baseline": None if row.before is None else row.before.value,
        "change": row.change,
        "band": row.band,
    }


def _line(row: Row) -> str:
    assert row.now is not None
    assert row.before is not None
    assert row.change is not None
    assert row.band is not None
    verdict = click.style(f"{row.verdict:7}", fg=COLOURS[row.verdict])
    now, before = _value(row, row.now.value), _value(row, row.before.value)
    change = f"{'-' if row.change < 0 else '+'}{_amount(row, abs(row.change))}"
    return f"{verdict}{_name(row):{NAMES - 7}}  {now:>9}  {before:>9}  {change:>9}  {f'± {_amount(row, row.band)}':>10}"


def _name(row: Row) -> str:
    return row.rule.words if row.key.batch is None else f"batch {row.key.batch}: {row.rule.words}"


def _value(row: Row, value: float) -> str:
    if row.rule.points:
        return f"{value:.1%}"
    if row.key.name == COPY:
        return f"{value / 1e12:.2f} TB/s"
    return f"{value * 1e3:.3f} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.1f} us"


def _amount(row: Row, amount: float) -> str:
    """Return a change or a band: in points, or relative to the baseline where that is not 0."""
    assert row.before is not None
    if row.rule.points:
        return f"{100 * amount:.1f} pt"
    return f"{amount / abs(row.before.value):.0%}" if row.before.value else _value(row, amount)


def _summary(result: Comparison) -> Iterator[str]:
    counts = {verdict: len(result.those(verdict)) for verdict in (WORSE, BETTER, SAME)}
    yield f"{counts[WORSE] or 'Nothing'} worse, {counts[BETTER]} better, {counts[SAME]} the same within their bands."
    absent = result.those(NOT_COMPARABLE)
    if absent:
        yield f"Absent on one side, and not compared: {', '.join(_absent(result.rows, absent))}."


def _absent(rows: Sequence[Row], absent: Sequence[Row]) -> list[str]:
    """Return the names of what is absent, in short where that is all of a batch size."""
    partly = {row.key.batch for row in rows if row.verdict != NOT_COMPARABLE}
    names = (f"batch {row.key.batch}" if row.key.batch not in {*partly, None} else _name(row) for row in absent)
    return list(dict.fromkeys(names))
