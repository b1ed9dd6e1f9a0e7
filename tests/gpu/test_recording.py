"""What NVML answered over a while, as a file."""

import json
from typing import Any

import pytest

from solpi_exporter.gpu.driver import Device
from solpi_exporter.gpu.recording import Frame, NotARecording, Recording, Track, dump, key_of, load, recording_of

FRAMES: list[Frame] = [
    (1.0, {"0 power": 100, "0 gpm 1": 50.0, "- count": 1, "0 samples 1": [[1, 5], [2, 6]]}),
    (2.0, {"0 power": 100, "0 gpm 1": 50.0, "- count": 1, "0 samples 1": []}),
    (3.5, {"0 power": {"error": 15}, "- count": 1}),
    (4.0, {"0 power": 120, "- count": 1, "0 late": 7}),
]


@pytest.mark.parametrize(
    ("device", "what", "args", "key"),
    [
        (None, "nvmlDeviceGetCount", (), "- nvmlDeviceGetCount"),
        (Device(3), "nvmlDeviceGetTotalEccErrors", (1, 0), "3 nvmlDeviceGetTotalEccErrors 1 0"),
        (Device(0, 1), "gpm", (20,), "0/1 gpm 20"),
        (Device(0), "field", (138, 0xFFFFFFFF), "0 field 138 4294967295"),
    ],
)
def test_a_key_says_device_call_and_arguments(
    device: Device | None, what: str, args: tuple[int, ...], key: str
) -> None:
    """It is what people read in the file."""
    assert key_of(device, what, *args) == key


def test_a_recording_is_a_track_a_key() -> None:
    """In the order of time, from the first frame to the last."""
    recording = recording_of(FRAMES)

    assert (recording.start, recording.end, recording.answers) == (1.0, 4.0, 13)
    assert recording.tracks["0 power"] == Track((1.0, 2.0, 3.5, 4.0), (100, 100, {"error": 15}, 120))


def test_nothing_recorded_is_empty() -> None:
    """And no error."""
    assert recording_of([]) == Recording(0.0, 0.0, {})


@pytest.mark.parametrize(("time", "answer"), [(0.0, "a"), (1.0, "a"), (1.9, "a"), (2.0, "b"), (9.0, "b")])
def test_an_answer_holds_until_the_next(time: float, answer: str) -> None:
    """Before the first one, the first."""
    assert Track((1.0, 2.0), ("a", "b")).at(time) == answer


@pytest.mark.parametrize(
    ("start", "end", "answers"),
    [
        (1.0, 3.0, (2, 3)),
        (0.0, 1.0, (1,)),
        (1.2, 1.8, (1,)),
        (3.0, 9.0, (3,)),
        (9.0, 1.0, (1,)),
        (float("-inf"), 2.0, (1, 2)),
    ],
)
def test_between_two_times_is_what_came_after_the_first(start: float, end: float, answers: tuple[int, ...]) -> None:
    """Up to the second; at least what holds there, also where time went back."""
    assert Track((1.0, 2.0, 3.0), (1, 2, 3)).between(start, end) == answers


def test_a_file_holds_what_has_changed() -> None:
    """A frame a line; a GPM metric each time, since it is a mean of its own."""
    lines = dump(FRAMES).splitlines()

    assert [json.loads(line.rstrip(","))["answers"] for line in lines[1:-1]] == [
        FRAMES[0][1],
        {"0 gpm 1": 50.0, "0 samples 1": []},
        {"0 power": {"error": 15}},
        {"0 power": 120, "0 late": 7},
    ]


def test_a_file_is_read_as_it_was_written() -> None:
    """Every key has the same answer at every time, errors among them, and the same ends."""
    written, read = recording_of(FRAMES), load(dump(FRAMES))

    assert (read.start, read.end) == (written.start, written.end)
    assert read.tracks.keys() == written.tracks.keys()
    for key, track in written.tracks.items():
        assert [read.tracks[key].at(time) for time in (0.0, 1.0, 2.0, 3.5, 4.0)] == [
            track.at(time) for time in (0.0, 1.0, 2.0, 3.5, 4.0)
        ]


def test_frames_in_which_nothing_changed_count_for_the_end() -> None:
    """A recording is as long as it was looked at."""
    assert load(dump([*FRAMES, (60.0, FRAMES[-1][1])])).end == 60.0


def test_what_is_written_does_not_touch_the_frames() -> None:
    """They may be written again."""
    assert dump(FRAMES) == dump(FRAMES)


def test_times_are_told_to_the_millisecond() -> None:
    """More would be noise."""
    assert '{"t":1.235,"answers":{"0 a":1}}' in dump([(1.23456, {"0 a": 1})])


def frames_with(*frames: Any) -> str:
    return json.dumps({"format": 1, "frames": frames})


GOOD = {"t": 1, "answers": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("\x00\x01", "not JSON"),
        (dump(FRAMES)[:-20], "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("null", "expected"),
        ("[]", "expected"),
        ('"frames"', "expected"),
        ("{}", "expected"),
        ('{"format": 1}', "expected"),
        ('{"format": 1, "frames": []}', "expected"),
        ('{"format": 1, "frames": {}}', "expected"),
        ('{"format": 1, "frames": "x"}', "expected"),
        ('{"frames": [{"t": 1, "answers": {}}]}', "expected"),
        ('{"format": 2, "frames": []}', "format 2: expected 1, it is of another release"),
        ('{"format": "a\\nb", "frames": []}', "format"),
        ('{"format": null, "frames": []}', "format None"),
        (frames_with(GOOD, 7), "a frame is"),
        (frames_with(None), "a frame is"),
        (frames_with({"t": 1}), "a frame is"),
        (frames_with({"answers": {}}), "a frame is"),
        (frames_with({"t": "1", "answers": {}}), "a frame is"),
        (frames_with({"t": None, "answers": {}}), "a frame is"),
        (frames_with({"t": 1, "answers": []}), "a frame is"),
        (frames_with({"t": float("nan"), "answers": {}}), "a frame is of"),
        (frames_with({"t": float("inf"), "answers": {}}), "a frame is of"),
        (frames_with({"t": 10**400, "answers": {}}), "a frame is of"),
        (frames_with({"t": 2, "answers": {}}, GOOD), "a frame is of before the one that it follows"),
    ],
)
def test_a_damaged_file_is_no_recording(text: str, message: str) -> None:
    """One line says why."""
    with pytest.raises(NotARecording, match=message) as error:
        load(text)

    assert "\n" not in str(error.value)
