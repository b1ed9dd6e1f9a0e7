"""What torch raises about a GPU, in our words: what cannot go on in this process, and what only does not fit."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from solpi_exporter.source import NeedsRestart, SourceError


@contextmanager
def cuda_errors(device: str) -> Iterator[None]:
    """Raise SourceError for torch's errors, NeedsRestart where they have spoilt CUDA for this process.

    Most of CUDA's errors are sticky: every later call fails with them, until the process ends.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise SourceError(
            f"the probe does not fit on {device}: choose a smaller probe.shape, or leave it more room "
            "(vLLM: lower --gpu-memory-utilization)"
        ) from error
    except (RecursionError, NotImplementedError):  # no error of a GPU
        raise
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        if _is_spoilt():
            raise NeedsRestart(f"CUDA failed on {device} ({reason}): see the kernel log for an XID") from error
        raise SourceError(f"the probe failed on {device} ({reason}): see the kernel log") from error


def _is_spoilt() -> bool:
    if not torch.cuda.is_initialized():  # it never began: no driver, or one that is too old
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
