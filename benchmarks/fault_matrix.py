"""Whether each fault raises its own alert in time, and no other page: real daemons, Prometheus, Alertmanager, a pager.

    python -m benchmarks.fault_matrix [--only "swap storm"] [--out docs/fault-matrix.md]

Every duration of rules and routing is divided by thirty; benchmarks/faults/cases.py is the table of faults. Exit status
1 says that one was late, missing or wrong. Needs gcc, Debian's prometheus, prometheus-alertmanager, stress-ng and
faketime; three minutes, on a host that has nothing else to do.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.faults.cases import CASES
from benchmarks.faults.report import document, table
from benchmarks.faults.run import Outcome, outcomes
from tests.nvml_stub import build


def measured(names: list[str]) -> list[Outcome]:
    """Run the faults, those that take the CPUs from others after the rest."""
    wanted = [case for case in CASES if not names or case.name in names]
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        library = build(Path(name))
        for is_alone in (False, True):
            cases = [case for case in wanted if case.is_alone is is_alone]
            if cases:
                folder = Path(name) / str(is_alone)
                folder.mkdir()
                found += outcomes(cases, library, folder)
    return found


def _versions() -> str:
    told = [
        subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
        for tool in ("prometheus", "prometheus-alertmanager")
    ]
    prometheus, alertmanager = ((one.stdout or one.stderr).split("version ")[1].split()[0].rstrip(",") for one in told)
    return f"Prometheus {prometheus} and Alertmanager {alertmanager}"


def main() -> int:
    """Run, print or write, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], choices=[case.name for case in CASES])
    parser.add_argument("--out", type=Path, help="write a document")
    options = parser.parse_args()
    found = measured(options.only)
    if options.out:
        options.out.write_text(document(found, _versions(), os.cpu_count() or 1))
    else:
        print("\n".join(table(found)))
    return 0 if all(one.is_in_time for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
