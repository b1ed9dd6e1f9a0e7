"""A client of a completions endpoint that streams, and measures for itself what the server tells of latency."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

PROMPT_TOKENS = 128
ANSWER_TOKENS = 256
TOKEN_IDS = range(300, 4000)
TIMEOUT = 120.0
HANG_UP_AFTER = 10  # pieces of an answer


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its tokens, seconds to the first of them, and seconds from the first to the last."""

    tokens: int
    first: float
    rest: float


@dataclass(frozen=True, slots=True)
class Stage:
    """What so many clients were answered, each of which asked again as soon as it had its answer.

    `starved` are the seconds, of all of them together, in which a client was ready to run and had no CPU.
    """

    clients: int
    answers: Sequence[Answer]
    starved: float

    @property
    def tokens(self) -> int:
        """Tokens that were received."""
        return sum(answer.tokens for answer in self.answers)

    @property
    def time_to_first_token(self) -> float:
        """The mean, in seconds."""
        return sum(answer.first for answer in self.answers) / len(self.answers)

    @property
    def inter_token_latency(self) -> float:
        """The mean, in seconds, whatever number of tokens a piece of the stream held."""
        return sum(answer.rest for answer in self.answers) / (self.tokens - len(self.answers))


def _ask(connection: HTTPConnection, model: str) -> HTTPResponse:
    """Ask for an answer of a fixed length to a prompt that no other shares a prefix with."""
    wish = {
        "model": model,
        "prompt": random.choices(TOKEN_IDS, k=PROMPT_TOKENS),
        "max_tokens": ANSWER_TOKENS,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    connection.request("POST", "/v1/completions", json.dumps(wish), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, (response.status, response.read())
    return response


def _pieces(response: HTTPResponse) -> Iterator[tuple[float, int]]:
    """Yield when each piece of a stream came, and how many tokens it held."""
    while line := response.readline():
        now = time.perf_counter()
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                yield now, len(choice["token_ids"] or ())


def _answer(connection: HTTPConnection, model: str) -> Answer:
    begun = time.perf_counter()
    pieces = [(when, tokens) for when, tokens in _pieces(_ask(connection, model)) if tokens]
    first, last = pieces[0][0], pieces[-1][0]
    return Answer(sum(tokens for _, tokens in pieces), first - begun, last - first)


def run_stage(port: int, model: str, clients: int, seconds: float) -> Stage:
    """Keep a server busy for so long, and until everything that was asked is answered."""
    end = time.monotonic() + seconds

    def keep_asking(_: int) -> tuple[list[Answer], float]:
        answers: list[Answer] = []
        with closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
            connection.connect()
            while time.monotonic() < end:
                answers.append(_answer(connection, model))
        return answers, int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9

    with ThreadPoolExecutor(clients) as pool:
        done = list(pool.map(keep_asking, range(clients)))
    return Stage(clients, [answer for answers, _ in done for answer in answers], sum(starved for _, starved in done))


def hang_up(port: int, model: str) -> None:
    """Ask, and go away in the middle of the answer."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection, _ask(connection, model) as response:
        for number, _ in enumerate(_pieces(response), 1):
            if number == HANG_UP_AFTER:
                return
