"""What containers and the journal wrap around a line: taken off in blocks, the fast way and the slow way."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solpi_exporter.engine.envelope import ENVELOPES, MAX_BYTES, Line, Unwrapper
from solpi_exporter.engine.prefixes import unix_time, unwrap

LOGLINES = Path(__file__).parent.parent / "loglines"

STATS = b"(APIServer pid=1) INFO 11-20 06:05:05 [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s"
ACCESS = b'INFO:     10.0.0.1:51532 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
STAMP = "2026-11-20T06:05:05.5Z"
TIME = 1795154705.5

PIECE = 1 << 14  # how much of a line docker and containerd put in a record


def candidates(data: bytes) -> Iterator[bytes]:
    """Yield the lines with a marker, as a dialect does."""
    return (line for line in data.split(b"\n") if b"throughput: " in line or b"marker" in line)


def every_line(data: bytes) -> Iterator[bytes]:
    return iter(data.removesuffix(b"\n").split(b"\n"))


def docker(text: bytes | str, stream: str = "stdout", time: str = STAMP) -> bytes:
    """Write a record as docker does: with HTML's characters escaped, and without blanks."""
    text = text if isinstance(text, str) else text.decode(errors="replace")
    record = json.dumps({"log": text, "stream": stream, "time": time}, ensure_ascii=False, separators=(",", ":"))
    return record.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode() + b"\n"


def cri(text: bytes, tag: str = "F", stream: str = "stdout", time: str = STAMP) -> bytes:
    return f"{time} {stream} {tag} ".encode() + text + b"\n"


def journald(message: object, time: object = "1795154705500000") -> bytes:
    return json.dumps({"_PID": "7", "MESSAGE": message, "__REALTIME_TIMESTAMP": time}).encode() + b"\n"


def taken(*blocks: bytes, envelope: str = "auto", name: str = "a.log") -> list[Line]:
    unwrapper = Unwrapper(envelope)
    return [line for block in blocks for line in unwrapper.lines(block, name, candidates)]


def texts(*blocks: bytes, envelope: str = "auto") -> list[bytes]:
    return [line.text for line in taken(*blocks, envelope=envelope)]


WRAPPED = {
    "docker": docker(STATS + b"\n"),
    "docker with blanks and labels": (
        b'{"attrs": {"a": "b"}, "time": "2026-11-20T06:05:05.5Z", "log": "' + STATS + b'\\n", "stream": "stderr"}\n'
    ),
    "docker with labels": docker(STATS + b"\n").replace(b',"time"', b',"attrs":{"a":"b\\n","c":"d"},"time"'),
    "CRI": cri(STATS),
    "CRI in a zone": cri(STATS, stream="stderr", time="2026-11-20T07:05:05.500000001+01:00"),
    "CRI with more tags": cri(STATS, "F:x:y"),
    "journald": journald(STATS.decode()),
    "journald's bytes": journald(list(STATS)),
}


@pytest.mark.parametrize("envelope", WRAPPED)
def test_an_envelope_is_recognised(envelope: str) -> None:
    """By its first line, whatever the order of its keys."""
    assert taken(WRAPPED[envelope]) == [Line(STATS, TIME)]


@pytest.mark.parametrize(
    "line",
    [
        STATS,
        b'{"asctime": "2026-11-20 06:05:05,001", "levelname": "INFO", "message": "Avg prompt throughput: 1"}',
        b'{"log": "Avg prompt throughput: ", "stream": "stdout"}',
        b'{"log": "Avg prompt throughput: ", "stream": ["stdout"], "time": "x"}',
        b'{"MESSAGE": "Avg prompt throughput: "}',
        b'{"a": "marker',
        b"2026-11-20T06:05:05.5Z Avg prompt throughput: ",
        b"\xff\xfe marker \x00",
    ],
)
def test_a_plain_block_is_what_the_candidates_are(line: bytes) -> None:
    """vLLM's own JSON is no envelope, nor is what looks like one but for a part."""
    assert taken(ACCESS + b"\n" + line + b"\n") == [Line(line, None)]
    assert taken(line + b"\n" + docker(STATS + b"\n")) == [Line(line, None), Line(docker(STATS + b"\n")[:-1], None)]


def test_an_envelope_can_be_told() -> None:
    """Then no line of the log decides; "none" takes docker's records as they are."""
    block = WRAPPED["docker"]

    assert texts(block, envelope="none") == [block[:-1]]
    assert texts(b"torn\n" + block, envelope="docker") == [STATS]
    assert [texts(block, envelope=envelope) for envelope in ENVELOPES] == [[STATS], [block[:-1]], [STATS], [], []]


def test_recorded_records_of_docker() -> None:
    """Colours and carriage returns are the dialect's; what came in two pieces is one line of more than 16 KiB."""
    data = (LOGLINES / "wrap-docker-json.log").read_bytes()

    lines = list(Unwrapper().lines(data, "a.log", every_line))

    assert [(line.text[:30], line.text[-16:], len(line.text)) for line in lines] == [
        (b"(APIServer pid=1) INFO 11-20 0", b" hit rate: 12.0%", 241),
        (b"\x1b[1;36m(APIServer pid=20)\x1b[0;0", b" hit rate: 42.4%", 254),
        (b"EngineCore encountered a fatal", b" a fatal error.\r", 38),
        (b"INFO 11-20 06:05:06 [request_l", b"a_request: None.", PIECE + 25),
        (b"\x1b[0;36m(RustFrontend pid=44)\x1b[", b"e hit rate: 0.0%", 264),
    ]
    assert [line.time for line in lines] == [
        unix_time(time)
        for time in (
            *("2026-11-20T06:05:05.001234567Z", "2025-10-14T17:00:48.753199366Z", "2026-11-20T06:05:05.5Z"),
            *("2026-11-20T06:05:06.000000001Z", "2026-11-20T06:05:05.002Z"),
        )
    ]


def test_recorded_lines_of_journald_and_others() -> None:
    """Each line for itself: of twelve, ten have a prefix, and the journal's second is the bytes of a coloured word."""
    records = (LOGLINES / "wrap-journald-and-others.log").read_bytes().splitlines(keepends=True)

    lines = [line for record in records for line in Unwrapper().lines(record, "a.log", every_line)]
    stats = {unwrap(line.text.decode())[0] for line in lines if b"throughput" in line.text}

    assert len(stats) == 1
    assert stats.pop().startswith("(APIServer pid=1) INFO 11-20 06:05:05 [loggers.py:335] Engine 000: ")
    assert [line for line in lines if line.time is not None][1] == Line(b"\x1b[32mINFO\x1b[0m 11-20", 1795241105.001234)
    assert [index for index, line in enumerate(lines) if line.time is not None] == [4, 5]


def test_pieces_of_two_streams_and_two_logs_are_joined() -> None:
    """Over blocks, each stream of each log for itself; the time is that of the last piece."""
    unwrapper = Unwrapper()
    long, other = b"marker " + b"x" * PIECE, b"marker " + b"y" * PIECE
    later = "2026-11-20T06:05:06.5Z"

    def lines(name: str, *records: bytes) -> list[Line]:
        return list(unwrapper.lines(b"".join(records), name, candidates))

    assert lines("a", docker(long), docker(other, "stderr"), docker(long)) == []
    assert lines("b", docker(b"marker b\n"), docker(b"marker "), cri(b"no record of docker's")) == [
        Line(b"marker b", TIME)
    ]
    assert lines("a", docker(b"end\n", "stderr"), docker(STATS + b"\n", "stderr"), docker(b"end\n", time=later)) == [
        Line(other + b"end", TIME),
        Line(STATS, TIME),
        Line(long + long + b"end", TIME + 1),
    ]
    assert lines("b", docker(b"b\n"), docker(STATS + b"\n")) == [Line(b"marker b", TIME), Line(STATS, TIME)]
    assert lines("c", docker(STATS + b"\n")) == [Line(STATS, TIME)]


def test_pieces_of_cri_are_joined() -> None:
    """P until F, in each stream, whatever tags stand behind; the bytes of a character may be in two pieces."""
    blocks = [
        cri(b"marker \xc3", "P") + cri(b"marker err", "P:x", "stderr") + cri(b"\xa4", "P"),
        cri(b"or\r", "F", "stderr") + cri(b"end", "F:y", time="2026-11-20T06:05:06.5Z") + cri(b"", "F") + cri(STATS),
    ]

    assert taken(*blocks) == [
        Line(b"marker error\r", TIME),
        Line("marker äend".encode(), TIME + 1),
        Line(STATS, TIME),
    ]


def cri_piece(text: bytes) -> bytes:
    return cri(text[:-1]) if text.endswith(b"\n") else cri(text, "P")


@pytest.mark.parametrize("wrap", [docker, cri_piece])
def test_a_prompt_s_later_piece_is_no_line(wrap: Callable[[bytes], bytes]) -> None:
    """However much it looks like a report, in this block or at the start of the next."""
    prompt = b"INFO 11-20 06:05:06 [request_logger.py:66] Received request: prompt: " + b"x" * PIECE

    for blocks in ([wrap(prompt) + wrap(STATS + b"\n")], [wrap(prompt), wrap(STATS + b"\n")]):
        assert texts(*blocks, wrap(STATS + b"\n")) == [prompt + STATS, STATS]


@pytest.mark.parametrize("text", [b"prompt \\n", b"prompt \\\\n", b'prompt \\n","stream":"stdout", \\n'])
@pytest.mark.parametrize("blanks", [False, True])
def test_a_user_s_backslash_and_n_end_nothing(text: bytes, blanks: bool) -> None:
    """A piece that ends in these two characters is unfinished, as docker tells; what follows is no line."""
    block = docker(text) + docker(STATS + b"\n") + docker(STATS + b"\n")

    assert texts(block.replace(b'","', b'", "') if blanks else block) == [text + STATS, STATS]


def test_a_torn_record_does_not_hide_an_unfinished_one() -> None:
    """Two ends on one line, none on the other: the number of ends is the number of lines, but not one on each."""
    torn = docker(b"a\n")[:-20] + docker(b"b\n")
    block = docker(b"prompt ") + torn + docker(STATS + b"\n") + docker(STATS + b"\n")

    assert texts(block) == [b"prompt " + STATS, STATS]


@pytest.mark.parametrize("extra", [0, 1, 1 << 20])
def test_a_line_without_an_end_is_bounded(extra: int) -> None:
    """A MiB is the most; what is longer is passed over to its end, and the next line is a line."""
    text = b"marker " + b"x" * (MAX_BYTES - 7 + extra)
    records = [docker(text[begin : begin + PIECE]) for begin in range(0, len(text), PIECE)] + [docker(b"\n")]

    assert texts(*records, docker(STATS + b"\n")) == ([STATS] if extra else [text, STATS])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (None, None),
        ("", None),
        (17, None),
        ("marker\nINFO", b"marker INFO"),
        ([27, 91, 109, *b"marker\n", 255], b"\x1b[mmarker \xff"),
        (["marker", list(b"two"), None], b"marker two "),
        ([*b"marker", 256], None),
        ("marker \ud800", b"marker ?"),
        ({"a": 1}, None),
    ],
)
def test_a_message_of_the_journal_is_one_line(message: object, text: bytes | None) -> None:
    """Text, bytes, several of these or nothing; what stands behind a newline in it is no line of the log."""
    assert taken(journald(STATS.decode()) + journald(message))[1:] == ([] if text is None else [Line(text, TIME)])


@pytest.mark.parametrize("time", [None, 5, "", "x", "-1", "9" * 400, "\uff11", {"a": 1}, 1e308])
def test_a_journal_entry_has_a_time(time: object) -> None:
    """Any other line is none of the journal's, and is passed over."""
    assert texts(journald("marker", time) + journald(STATS.decode()), envelope="journald") == [STATS]


GARBAGE = [
    b"",
    b"marker",
    b"{",
    b"{}",
    b"[]marker",
    b'{"log":"marker',
    b'{"log":5,"stream":"stdout","time":"marker"}',
    b'{"log":"marker\\n","stream":"marker","time":"x"}',
    b'{"log":"marker\\n","stream":{},"time":"x"}',
    b'{"log":"marker\\n","stream":"stdout","time":5}',
    b'{"log":"marker\\n","stream":"stdout","time":' + b"9" * 5000 + b"}",
    b'{"marker":' * 100_000,
    b'{"marker":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"__REALTIME_TIMESTAMP":' + b"[" * 900 + b"]" * 900 + b',"MESSAGE":"marker"}',
    b"2026-11-20T06:05:05Z stdout X marker",
    b"2026-11-20T06:05:05Z nowhere F marker",
    b"2026-11-20 stdout F marker",
    b"\x00" * 64 + b"marker",
    b"\xef\xbb\xbf{}marker",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("envelope", ["docker", "cri", "journald"])
def test_what_is_no_record_is_passed_over(envelope: str, garbage: bytes) -> None:
    """Whatever it is, in the fast way and in the slow one; it is never read as a plain line."""
    record = {"docker": docker(STATS + b"\n"), "cri": cri(STATS), "journald": journald(STATS.decode())}[envelope]
    start = {"docker": docker(b"marker "), "cri": cri(b"marker ", "P"), "journald": b""}[envelope]

    assert texts(record + garbage + b"\n" + record) == [STATS, STATS]
    assert texts(garbage + b"\n" + record, envelope=envelope) == [STATS]
    assert texts(record + start + garbage + b"\n" + record) == [STATS, (start and b"marker ") + STATS]


def test_records_that_are_not_quite_right_are_lines() -> None:
    """A line counts though its bytes are no UTF-8, or its time is no time."""
    invalid = docker("marker \xe4\n").replace("\xe4".encode(), b"\xff")
    surrogate = b'{"log":"marker \\ud800\\n","stream":"stdout","time":"2026-11-20T06:05:05.5Z"}\n'

    assert taken(invalid + surrogate + docker(b"marker\n", time="2026-02-30T06:05:05Z") + docker("a\nmarker\n")) == [
        Line("marker \ufffd".encode(), TIME),
        Line(b"marker ?", TIME),
        Line(b"marker", None),
        Line(b"a marker", TIME),
    ]
    assert taken(cri(b"marker \xff", time="9999-99-99T06:05:05Z")) == [Line(b"marker \xff", None)]


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_raise_nothing(seed: int) -> None:
    """In no envelope, and behind the start of a record of each."""
    chance = random.Random(seed)
    starts = [b"", *(record[: chance.randrange(len(record))] for record in WRAPPED.values())]
    lines = [chance.choice(starts) + chance.randbytes(chance.randrange(60)) for _ in range(200)]

    for envelope in ENVELOPES:
        for line in taken(
            b"\n".join(lines) + b"\n", docker(STATS + b"\n") + b"\n".join(lines) + b"\n", envelope=envelope
        ):
            assert b"\n" not in line.text


SAID = (
    *(
        STATS,
        ACCESS,
        b'marker "quoted" \\n","stream":"',
        b"marker \\",
        b"<marker> & \xff\xfe",
        b"\x1b[32mmarker\x1b[0m\r",
    ),
    *(
        b"",
        b"marker stdout P stderr P:",
        b"x" * 300,
        "marker äöü █".encode(),
        b'{"asctime": "marker", "message": "\\n"}',
    ),
)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("envelope", ["docker", "cri"])
def test_the_fast_way_and_the_slow_way_yield_the_same(envelope: str, seed: int) -> None:
    """Of blocks of whole lines; a line of the other stream that has begun before makes the way slow."""
    chance = random.Random(seed)
    said = [chance.choice(SAID) for _ in range(chance.randrange(1, 60))]
    if envelope == "docker":
        block, start = b"".join(docker(text + b"\n") for text in said), docker(b"x", "stderr")
    else:
        block, start = b"".join(cri(text) for text in said), cri(b"x", "P", "stderr")

    fast, slow = taken(block), taken(start, block)

    assert fast == slow
    assert [line.text for line in fast] == [
        text.decode(errors="replace").encode() if envelope == "docker" else text
        for text in said
        if b"throughput: " in text or b"marker" in text
    ]


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("envelope", ["docker", "cri"])
def test_lines_in_pieces_in_any_blocks_are_the_lines(envelope: str, seed: int) -> None:
    """Cut anywhere, the two streams mixed, the records in blocks of any size: each stream's lines come in its order."""
    chance = random.Random(seed)
    streams = {
        stream: [chance.choice(SAID) + f" {stream}".encode() for _ in range(20)] for stream in ("stdout", "stderr")
    }
    records: dict[str, list[bytes]] = {stream: [] for stream in streams}
    for stream, said in streams.items():
        for text in said:
            cut = chance.randrange(len(text)) if chance.random() < 0.3 and text.isascii() else 0
            if envelope == "docker":
                records[stream] += [docker(text[:cut], stream)] * bool(cut) + [docker(text[cut:] + b"\n", stream)]
            else:
                records[stream] += [cri(text[:cut], "P", stream)] * bool(cut) + [cri(text[cut:], "F", stream)]
    mixed = []
    while any(records.values()):
        mixed.append(records[chance.choice([stream for stream in records if records[stream]])].pop(0))
    blocks = []
    while mixed:
        size = chance.randrange(1, 8)
        blocks.append(b"".join(mixed[:size]))
        mixed = mixed[size:]

    found = texts(*blocks)

    for stream, said in streams.items():
        assert [text for text in found if text.endswith(stream.encode())] == [
            text.decode(errors="replace").encode() if envelope == "docker" else text
            for text in said
            if b"throughput: " in text or b"marker" in text
        ]


def test_a_damaged_record_at_a_blocks_start_costs_itself_alone() -> None:
    """What the log is wrapped in is known from the block before, and its last line is in it too."""
    damaged = b'{"log":"torn\n'

    blocks = docker(b"marker 1\n"), damaged + docker(b"marker 2\n") + docker(b"marker 3\n")

    assert texts(*blocks) == [b"marker 1", b"marker 2", b"marker 3"]


def test_a_log_that_is_plain_now_is_plain() -> None:
    """A container's log may be followed by a file of the engine's own under the same name."""
    assert texts(docker(b"marker 1\n"), b"marker 2\nmarker 3\n") == [b"marker 1", b"marker 2", b"marker 3"]


def test_the_rest_of_a_line_of_another_log_delays_none() -> None:
    """It may never come: that log may be gone."""
    unwrapper = Unwrapper("auto", [("gone.log", "stdout")])
    seen: list[bytes] = []

    def looked_at(data: bytes) -> Iterator[bytes]:
        seen.append(data)
        return every_line(data)

    list(unwrapper.lines(docker(b"one\n"), "here.log", looked_at))

    assert seen[0] == docker(b"one\n")  # the raw block: the way that decodes nothing in vain
