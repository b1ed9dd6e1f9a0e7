"""Puts faults into hosts, each into its own, and writes down what fired and who was told.

hosts, all well  ->  Prometheus, Alertmanager, pager  ->  faults, one after the other  ->  outcomes
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.cases import Case
from solpi_exporter.rules.files import ALERTS
from tests.paging import EVALUATION, FASTER, Pager, paging, seconds

READY_SECONDS = 60.0
SETTLE_SECONDS = 15.0  # windows of five minutes are full by then
LATE_SECONDS = 15.0  # over its bar, after which an alert is not waited for
LINGER_SECONDS = 25.0  # in which what follows from a fault would page, too: twelve minutes
EVALUATIONS = 2

WAITS: Mapping[str, str] = {alert.name: alert.wait for alert in ALERTS}

# A day in which tokens came evenly and nobody waited, as rules that compare with it want to know.
_PAST_SECONDS, _PAST_STEP = 7200, 60
_PAST = {
    "server:solpi_engine_inter_token_latency_seconds:p99_rate5m_p50_1h": ("", 0.02),
    "server:solpi_engine_requests:sum": (',state="waiting"', 0),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a fault: alerts that fired and that paged, in seconds after it, sooner than which is negative."""

    case: Case
    fired: Mapping[str, float]
    paged: Mapping[str, float]

    @property
    def own(self) -> str | None:
        """The alert that has to come."""
        return self.case.alerts[0] if self.case.alerts else None

    @property
    def after(self) -> float | None:
        """After how many seconds it fired; None where it did not."""
        return None if self.own is None else self.fired.get(self.own)

    @property
    def wrong(self) -> list[str]:
        """The pages that are not its own."""
        return sorted(set(self.paged) - set(self.case.alerts))

    @property
    def is_right(self) -> bool:
        """Whether its own alert came, after the fault, and no other page."""
        return not self.wrong and (self.own is None or (self.after is not None and self.after > 0))

    @property
    def is_in_time(self) -> bool:
        """Whether it came within its bar, too."""
        return self.is_right and (self.after is None or self.after <= bar(self.case))


def bar(case: Case) -> float:
    """Return within how many seconds its alert has to fire: what that needs, its `for` and two evaluations."""
    wait = seconds(WAITS[case.alerts[0]]) if case.alerts else 0
    needs = case.needs.seconds / (FASTER if case.needs.divided else 1)
    return needs + wait / FASTER + EVALUATIONS * EVALUATION


def outcomes(cases: Sequence[Case], library: Path, folder: Path) -> list[Outcome]:
    """Run cases on hosts that stand side by side."""
    names = {case.name: f"host-{number:02}" for number, case in enumerate(cases)}
    with ExitStack() as stack:
        stages = [stack.enter_context(case.make(library, folder / names[case.name])) for case in cases]
        for case, stage in zip(cases, stages, strict=True):
            _await(stage.is_ready, READY_SECONDS, f"{case.name}: its host is not well")
        ports = {names[case.name]: stage.port for case, stage in zip(cases, stages, strict=True)}
        pager = stack.enter_context(paging(folder, ports, _past(ports)))
        _await(lambda: pager.heard["alive"] > 0, READY_SECONDS, "no heartbeat comes: see the servers' logs")
        time.sleep(SETTLE_SECONDS)
        begun: dict[str, float] = {}
        for case, stage in zip(cases, stages, strict=True):
            begun[case.name] = time.time()
            stage.inject()
        _watch(pager, [(case, names[case.name]) for case in cases])
        fired = pager.fired()
        return [
            Outcome(
                case,
                _since(begun[case.name], fired.get(names[case.name], {})),
                _since(begun[case.name], pager.pages(names[case.name])),
            )
            for case in cases
        ]


def _watch(pager: Pager, hosts: Sequence[tuple[Case, str]]) -> None:
    """Wait until each own alert fires or is too late, and for what may follow."""
    until = time.monotonic() + max(bar(case) for case, _ in hosts) + LATE_SECONDS

    def is_over() -> bool:
        fired = pager.fired()
        return all(not case.alerts or case.alerts[0] in fired.get(host, {}) for case, host in hosts)

    while time.monotonic() < until and not is_over():
        time.sleep(EVALUATION)
    time.sleep(LINGER_SECONDS)


def _since(begun: float, times: Mapping[str, float]) -> dict[str, float]:
    return {name: moment - begun for name, moment in times.items()}


def _past(hosts: Mapping[str, int]) -> Iterator[str]:
    now = int(time.time())
    for name, (labels, value) in _PAST.items():
        yield f"# TYPE {name} gauge"
        for host in hosts:
            for moment in range(now - _PAST_SECONDS, now, _PAST_STEP):
                yield f'{name}{{job="solpi",instance="{host}",server="vllm"{labels}}} {value} {moment}'


def _await(condition: Callable[[], bool], limit: float, otherwise: str) -> None:
    until = time.monotonic() + limit
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(otherwise)
        time.sleep(0.1)
