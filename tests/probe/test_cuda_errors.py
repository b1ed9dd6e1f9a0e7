"""What torch raises about a GPU: what to do, and whether this process can go on."""

import pytest
import torch

from solpi_exporter.probe.cuda_errors import cuda_errors
from solpi_exporter.source import NeedsRestart, SourceError


def poisoned() -> None:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")


def raised(error: Exception) -> SourceError:
    with pytest.raises(SourceError) as told, cuda_errors("cuda:0"):
        raise error
    return told.value


def test_short_of_memory_is_no_broken_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever CUDA says afterwards; the remedy is named."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", poisoned)

    error = raised(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried ..."))

    assert type(error) is SourceError
    assert str(error).startswith("the probe does not fit on cuda:0: choose a smaller")


def test_an_error_that_every_later_call_repeats_needs_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sticky: asked once more, CUDA fails again. One line, and where to look."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", poisoned)

    error = raised(RuntimeError("CUDA error: uncorrectable ECC error encountered\nmore"))

    assert isinstance(error, NeedsRestart)
    assert str(error) == (
        "CUDA failed on cuda:0 (CUDA error: uncorrectable ECC error encountered): see the kernel log for an XID"
    )


def test_an_error_after_which_cuda_works_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of cuBLAS, which found no memory for its workspace."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    error = raised(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"))

    assert type(error) is SourceError
    assert "CUBLAS_STATUS_ALLOC_FAILED" in str(error)


def test_a_driver_that_is_too_old_makes_no_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA never began in this process, and would not in the next."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", poisoned)

    assert type(raised(RuntimeError("The NVIDIA driver on your system is too old"))) is SourceError


@pytest.mark.parametrize("error", [RecursionError("too deep"), NotImplementedError("no such kernel")])
def test_a_bug_is_no_failure_of_the_gpu(error: RuntimeError) -> None:
    """Python's own errors are RuntimeErrors, too; they keep their traceback."""
    with pytest.raises(type(error)), cuda_errors("cuda:0"):
        raise error
