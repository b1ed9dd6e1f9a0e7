"""What signals ask of a daemon: to end, or to go on in another mode. `cli/serve.py` acts on it once it has stopped.

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
MODES = {signal.SIGUSR1: QUIESCED, signal.SIGUSR2: RUNNING}

Call = Callable[[], object]


class Signals:
    """Listens for a daemon that is in `mode` and logs through `tell`.

    `stop` is set by the first that matters: to end (`ended`, final), or to go on in the mode `wanted` (`changed`; the
    last one asked for counts).
    """

    def __init__(self, mode: str, tell: Callable[[str], object]) -> None:
        self.stop = threading.Event()
        self.ended = self.changed = False
        self.wanted = self._mode = mode
        self._tell = tell
        self._later = _caller()
        for number in ENDING:
            signal.signal(number, self._on_end)
        for number in MODES:
            signal.signal(number, self._on_mode)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, *MODES))

    def may_change(self) -> bool:
        """Return whether to go on in the mode `wanted`; what comes from now on waits for the program that does.

        Until it has its handlers, a signal would kill it. The mask outlives exec, and so does what waits behind it.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, *MODES))
        return self.changed and not self.ended

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
