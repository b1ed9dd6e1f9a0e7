"""Daemons by the hundred: a process that has imported everything, and forks one that follows a log at each word.

`python -m tests.nursery STATE_DIR LOG` prints pid and port of a daemon in answer to a line. It is the real one, with
nothing but the log to look after, and lives until it is killed, which it has to be before the next.
"""

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from solpi_exporter.config import (
    EngineSettings,
    GpuSettings,
    HostSettings,
    HttpSettings,
    ProbeSettings,
    ServerSettings,
    Settings,
)
from solpi_exporter.daemon import Daemon
from solpi_exporter.logsetup import make_logger
from solpi_exporter.sources import World


def settings_of(state_dir: Path, log: str) -> Settings:
    return Settings(
        state_dir=str(state_dir),
        http=HttpSettings(listen="127.0.0.1:0"),
        gpu=GpuSettings(enabled=False),
        host=HostSettings(enabled=False),
        probe=ProbeSettings(enabled=False),
        engine=EngineSettings(server=(ServerSettings(name="s", log=log),)),
    )


def live(settings: Settings) -> None:
    """Run a daemon, and say where it is once it listens."""
    daemon = Daemon(settings, make_logger("json", "warning"), World())
    web = daemon.bind(settings.http.listen)
    print(os.getpid(), web.port, flush=True)  # noqa: T201 - what is asked for
    daemon.serve(web, threading.Event())


def main() -> None:
    settings = settings_of(Path(sys.argv[1]), sys.argv[2])
    for _ in sys.stdin:
        with suppress(ChildProcessError):  # before the first one
            os.waitpid(-1, 0)
        if os.fork() == 0:
            live(settings)
            os._exit(1)


if __name__ == "__main__":
    main()
