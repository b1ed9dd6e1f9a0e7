"""What signals ask of a daemon: to end, or to go on in another mode or with other settings.

`cli/serve.py` acts on it once the daemon has stopped.

A handler runs inside whatever the main thread is doing, so it takes no lock, which that thread may hold: it notes what
was asked for and leaves the event and the log to a thread of its own.
"""

import signal
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from solpi_exporter.statedir import QUIESCED, RUNNING

THREAD = "signals"
ENDING = (signal.SIGTERM, signal.SIGINT)
RELOAD = signal.SIGHUP
MODES = {signal.SIGUSR1: QUIESCED, signal.SIGUSR2: RUNNING}
HEEDED = (*ENDING, *MODES, RELOAD)

Call = Callable[[], object]


class Signals:
    """Listens for a daemon that is in `mode` and logs through `tell`; `refused` says why settings cannot be taken.

    `stop` is set by the first that matters: to end (`ended`, final), or to go on (`changed`) in the mode `wanted`, of
    which the last one asked for counts.
    """

    def __init__(
        self, mode: str, tell: Callable[[str], object], refused: Callable[[], str | None] = lambda: None
    ) -> None:
        self.stop = threading.Event()
        self.ended = self.changed = False
        self.wanted = self._mode = mode
        self._tell = tell
        self._refused = refused
        self._later = _caller()
        for number in ENDING:
            signal.signal(number, self._on_end)
        for number in MODES:
            signal.signal(number, self._on_mode)
        signal.signal(RELOAD, lambda *_: self._later.put(self._try_to_reload))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)

    def may_change(self) -> bool:
        """Return whether to go on in the mode `wanted`; what comes from now on waits for the program that does.

        Until it has its handlers, a signal would kill it. The mask outlives exec, and so does what waits behind it.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
        return self.changed and not self.ended

    def reload(self) -> None:
        """Go on in the same mode, with the settings as they are now."""
        self.changed = True
        self.stop.set()

    def _try_to_reload(self) -> None:
        if self._refused() is None:
            self.reload()

    def _on_end(self, *_: object) -> None:
        self.ended = True
        self._later.put(self.stop.set)

    def _on_mode(self, number: int, _: object) -> None:
        mode = MODES[signal.Signals(number)]
        if mode == self._mode and not self.changed:
            self._later.put(partial(self._tell, f"already_{mode}"))
        else:
            self.wanted, self.changed = mode, True
            self._later.put(self.stop.set)


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; signals that ask for another mode are ignored."""
    stop, later = threading.Event(), _caller()
    for number in ENDING:
        signal.signal(number, lambda *_: later.put(stop.set))
    for number in MODES:
        signal.signal(number, signal.SIG_IGN)
    return stop


def _caller() -> SimpleQueue[Call]:
    """Return a queue whose calls are made in a thread of their own, in their order."""
    calls: SimpleQueue[Call] = SimpleQueue()

    def work() -> None:
        while True:
            calls.get()()

    threading.Thread(target=work, name=THREAD, daemon=True).start()
    return calls
