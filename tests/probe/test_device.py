"""Which GPU a setting names, with a torch that sees what a test says."""

from types import SimpleNamespace

import pytest
import torch

from solpi_exporter.probe.device import _given_back, index_of, make_bench
from solpi_exporter.probe.plan import GENTLE, Opening
from solpi_exporter.source import SourceError

FIRST, SECOND, ABSENT = (f"{number}1234567-89ab-cdef-0123-456789abcdef" for number in range(3))


def see(monkeypatch: pytest.MonkeyPatch, *gpus: SimpleNamespace) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpus[index])


@pytest.mark.parametrize(
    ("device", "index"),
    [("cuda", 0), ("cuda:1", 1), (f"GPU-{FIRST}", 0), (f"GPU-{SECOND}", 1), (f"MIG-{SECOND}", 1)],
)
def test_a_gpu_has_a_number_or_a_uuid(monkeypatch: pytest.MonkeyPatch, device: str, index: int) -> None:
    """By its UUID it is found wherever it is."""
    see(monkeypatch, SimpleNamespace(uuid=FIRST), SimpleNamespace(uuid=SECOND))

    assert index_of(device) == index


def test_the_only_gpu_that_is_visible_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So in a worker, where also a torch that tells no UUIDs finds it, and whatever it tells of a MIG instance."""
    see(monkeypatch, SimpleNamespace())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"MIG-{FIRST}")

    assert index_of(f"MIG-{FIRST}") == 0


@pytest.mark.parametrize("gpu", [SimpleNamespace(uuid=FIRST), SimpleNamespace()], ids=["another", "before torch 2.5"])
def test_a_uuid_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, gpu: SimpleNamespace) -> None:
    """With what torch sees instead; nothing else is taken for it."""
    see(monkeypatch, gpu)

    with pytest.raises(SourceError, match=f"probe.device GPU-{ABSENT} is not there: torch .* sees 1 CUDA device"):
        make_bench(Opening(f"GPU-{ABSENT}", "auto", (1,), GENTLE))


def test_what_was_allocated_in_vain_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the frames of the failure hold is let go of first, or it could not be."""
    gone: list[str] = []
    emptied: list[list[str]] = []

    class Tensor:
        def __del__(self) -> None:
            gone.append("tensor")

    def fill() -> None:
        held = Tensor()
        raise torch.cuda.OutOfMemoryError(f"no room beside {type(held).__name__}")

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append([*gone]))

    with pytest.raises(torch.cuda.OutOfMemoryError), _given_back():
        fill()

    assert emptied == [["tensor"]]
