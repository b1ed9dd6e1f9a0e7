"""Seven healthy hosts with nine servers, and what happens to them in eight days: plain data.

By day they serve, from one to five at night nobody asks. Nothing here is a fault, though each looks like one for some
minutes: deploys, restarts, a reboot, a host that is taken out, bursts, an upgrade of the exporter on every host.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

DAY = 24 * 60
SEED = 7
BURST = 8  # minutes
NIGHT = range(1, 5)  # hours
SETTLE = 3  # minutes after a start in which nobody asks yet


def at(day: int, hour: int, minute: int = 0) -> int:
    """Return the minute of the week; the first day is 1."""
    return (day - 1) * DAY + hour * 60 + minute


@dataclass(frozen=True, slots=True)
class Server:
    """An engine. `token` is its mean time between two tokens (s), `lost` the share of it that is lost.

    `away` are the minutes in which its endpoint does not answer: it was stopped, loads its model, compiles.
    """

    name: str
    gpus: tuple[int, ...]
    token: float
    lost: float
    away: tuple[range, ...] = ()
    eager: bool = False
    always_full: bool = False
    transfers: bool = False
    log_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host. `slow` is its probe's token against its peers'; in `down` nothing answers, in `out` it is no target."""

    name: str
    gpus: int
    servers: tuple[Server, ...]
    slow: float = 1.0
    restarts: tuple[int, ...] = ()
    upgrade: int
    down: tuple[range, ...] = ()
    out: tuple[range, ...] = ()
    xids: tuple[tuple[int, int], ...] = ()  # minute and code

    def scraped(self, minute: int) -> bool:
        """Whether the exporter answered."""
        return not (
            minute in self.restarts or minute == self.upgrade or _in(self.down, minute) or _in(self.out, minute)
        )


def _in(spans: tuple[range, ...], minute: int) -> bool:
    return any(minute in span for span in spans)


# fmt: off
FLEET = (
    Host(name="chat-1", gpus=2, restarts=(at(2, 11, 40),), upgrade=at(4, 10, 45), xids=((at(3, 15), 31),), servers=(
        Server("vllm", (0, 1), 0.008, 0.03, away=(range(at(3, 14), at(3, 14, 5)), range(at(7, 9), at(7, 9, 2)))),
    )),
    Host(name="chat-2", gpus=2, restarts=(at(2, 11, 50),), upgrade=at(4, 10, 50), servers=(
        Server("vllm-a", (0,), 0.007, 0.02, away=(range(at(4, 15), at(4, 15, 5)), range(at(5, 9), at(5, 9, 3)))),
        Server("vllm-b", (1,), 0.009, 0.04, away=(range(at(4, 15, 10), at(4, 15, 15)),)),
    )),
    Host(name="slow", gpus=1, slow=1.15, upgrade=at(4, 10, 55), xids=((at(2, 16, 20), 13),),
         out=(range(at(6, 10), at(6, 10, 12)),), servers=(
        Server("vllm", (0,), 0.010, 0.05, away=(range(at(6, 10), at(6, 10, 12)),)),
    )),
    Host(name="eager", gpus=1, upgrade=at(4, 11), down=(range(at(6, 20), at(6, 20, 4)),), servers=(
        Server("vllm", (0,), 0.015, 0.65, eager=True, away=(range(at(6, 20), at(6, 20, 8)),)),
    )),
    Host(name="batch", gpus=2, restarts=(at(5, 3),), upgrade=at(4, 11, 5), servers=(
        Server("vllm", (0, 1), 0.018, 0.05, always_full=True, away=(range(at(5, 10), at(5, 10, 4)),)),
    )),
    Host(name="split", gpus=2, upgrade=at(4, 11, 10), servers=(
        Server("prefill", (0,), 0.008, 0.04, transfers=True, away=(range(at(7, 16), at(7, 16, 4)),)),
        Server("decode", (1,), 0.007, 0.03, transfers=True, away=(range(at(7, 16, 6), at(7, 16, 10)),)),
    )),
    Host(name="logs", gpus=1, upgrade=at(4, 11, 15), servers=(
        Server("vllm", (0,), 0.009, 0.0, log_only=True, away=(range(at(3, 12), at(3, 12, 5)),)),
    )),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Course:
    """What a server does in each minute: its load (0 to 1, None while it is away), and whether a burst is on."""

    server: Server
    load: tuple[float | None, ...]
    burst: tuple[bool, ...]


def course(host: Host, server: Server, minutes: int) -> Course:
    """Return a week of a server: more by day, nothing at night, two bursts a day, and a quiet start after each stop."""
    dice = random.Random(f"{SEED} load {host.name} {server.name}")
    bursts = set(_bursts(dice, minutes))
    load: list[float | None] = []
    for minute in range(minutes):
        here = 1.0 if minute in bursts or server.always_full else _usual(minute) * dice.uniform(0.9, 1.1)
        starts = _in(server.away, minute - SETTLE)
        load.append(None if _in(server.away, minute) else 0.0 if starts else here)
    return Course(server, tuple(load), tuple(minute in bursts for minute in range(minutes)))


def _bursts(dice: random.Random, minutes: int) -> Iterator[int]:
    for day in range(0, minutes, DAY):
        for hour in (dice.randrange(8, 13), dice.randrange(14, 22)):
            begun = day + 60 * hour + dice.randrange(60)
            yield from range(begun, begun + BURST)


def _usual(minute: int) -> float:
    hour = minute % DAY / 60
    return 0.0 if int(hour) in NIGHT else 0.15 + 0.6 * math.sin(math.pi * ((hour - 5) % 24) / 20) ** 2
