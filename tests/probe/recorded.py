"""The cycles that were recorded on an H200, under conditions and faults, as the values that a bench returns."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from solpi_exporter.probe.result import BatchResult, Costs, Identity, ModeResult, SplitResult
from solpi_exporter.probe.split import Split
from tests.fakes import RECORDINGS


@dataclass(frozen=True, slots=True)
class RecordedCycle:
    """`tags` say under which condition, or with which fault, it was measured."""

    tags: dict[str, Any]
    identity: Identity
    costs: Costs
    results: list[BatchResult]


def cycles(name: str) -> Iterator[RecordedCycle]:
    """Yield what `benchmarks/probe_NAME.py` has recorded."""
    _, *lines = (RECORDINGS / "h200-probe" / f"{name}.jsonl").read_text().splitlines()
    for line in lines:
        row = json.loads(line)
        identity, costs, results = Identity(**row.pop("identity")), row.pop("costs"), row.pop("results")
        costs |= {key: tuple(pair) for key, pair in costs.items() if isinstance(pair, list)}
        yield RecordedCycle(row, identity, Costs(**costs), [_result(one) for one in results])


def _result(plain: dict[str, Any]) -> BatchResult:
    modes = {name: ModeResult(**{**mode, "steps": tuple(mode["steps"])}) for name, mode in plain.pop("modes").items()}
    splits = tuple(SplitResult(one["basis"], Split(**one["split"]), one["errors"]) for one in plain.pop("splits"))
    return BatchResult(modes=modes, splits=splits, **plain)
