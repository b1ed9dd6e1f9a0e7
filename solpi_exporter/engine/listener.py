"""From raw lines to what they report: out of their envelope, recognised as one engine's, read by its dialect.

Between whoever has lines, a log that is followed or `solpi-exporter read`, and whoever wants to know what they say.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from solpi_exporter.engine.dialects.dialect import Dialect, Said, Trouble
from solpi_exporter.engine.envelope import Line, Origin, Unwrapper
from solpi_exporter.engine.prefixes import unwrap

ANYBODYS = frozenset({"cuda_error", "out_of_memory", "nccl_timeout"})


class Heard(NamedTuple):
    """What one line reports, and when it was written by its envelope (Unix seconds), None where that does not say."""

    said: Said
    time: float | None


class Listener:
    """Listens to one server. Of several dialects, it speaks the first in which a line reports something.

    `dialect` is None until then. What CUDA and NCCL say is everybody's trouble, and does not tell.
    """

    def __init__(self, dialects: Sequence[Dialect], envelope: str, unfinished: Iterable[Origin] = ()) -> None:
        self.dialect = dialects[0] if len(dialects) == 1 else None
        self._dialects = tuple(dialects)
        self._markers = tuple({marker for dialect in dialects for marker in dialect.markers})
        self._envelope = envelope
        self._unwrapper = Unwrapper(envelope, unfinished)

    @property
    def unfinished(self) -> list[Origin]:
        """Where a successor has to pass over the rest of a line."""
        return self._unwrapper.unfinished

    def hear(self, data: bytes, name: str) -> Iterator[Heard]:
        """Yield what a block of complete lines of the log `name` reports.

        Where that is nothing, another engine may start in it, under the same name as the one before.
        """
        is_silent = True
        for line in self._unwrapper.lines(data, name, self._candidates):
            heard = self._hear(line)
            if heard is not None:
                is_silent = False
                yield heard
        if is_silent and self._is_replaced_in(data):
            self.dialect = None
            yield from self._all(data, name, Unwrapper(self._envelope))

    def hear_before(self, data: bytes, name: str) -> Iterator[Heard]:
        """Yield what a block reports that was written before the first one that is to be heard.

        Of a line that is unfinished at the end of the last such block, the rest is passed over.
        """
        unwrapper = Unwrapper(self._envelope)
        yield from self._all(data, name, unwrapper)
        self._unwrapper.pass_over(name, unwrapper.unfinished)

    def _is_replaced_in(self, data: bytes) -> bool:
        others = [one for one in self._dialects if one is not self.dialect]
        return self.dialect is not None and any(one.starts_in(data) for one in others)

    def _all(self, data: bytes, name: str, unwrapper: Unwrapper) -> Iterator[Heard]:
        heard = map(self._hear, unwrapper.lines(data, name, self._candidates))
        return (one for one in heard if one is not None)

    def _hear(self, line: Line) -> Heard | None:
        text, time = line.text.decode(errors="replace"), line.time
        said = self._parse(text)
        if said is None:
            bare, told = unwrap(text)
            said = None if bare == text else self._parse(bare)
            time = told if time is None else time
        return None if said is None else Heard(said, time)

    def _candidates(self, data: bytes) -> Iterator[bytes]:
        if self.dialect is not None:
            return self.dialect.candidates(data)
        present = [marker for marker in self._markers if marker in data]
        lines = data.split(b"\n") if present else []
        return (line for line in lines if any(marker in line for marker in present))

    def _parse(self, text: str) -> Said | None:
        if self.dialect is not None:
            return self.dialect.parse(text)
        for dialect in self._dialects:
            said = dialect.parse(text)
            if said is not None:
                is_anybodys = isinstance(said.event, Trouble) and said.event.what in ANYBODYS
                self.dialect = None if is_anybodys else dialect
                return said
        return None
