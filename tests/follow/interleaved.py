"""A follower and a writer of which one runs at a time, and that take turns between any two of their system calls.

What a busy host does once in thousands of runs happens here in each, and the same seed does the same again.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from io import FileIO
from random import Random
from typing import Any

import pytest

PAGE = 4096
FOLLOWER_CALLS = ("stat", "fstat", "listdir", "scandir", "lseek", "readlink")
WRITER_CALLS = ("rename", "truncate", "write", "unlink", "utime")


class Killed(BaseException):
    """The follower's process is gone, wherever it was."""


class Turns:
    """Runs `work`, the writer, in a thread of its own that goes on only between two system calls of this one.

    `odds` is how likely the writer makes its next call before one of the follower's; `deadly` how likely that kills.
    """

    def __init__(self, work: Callable[[], None], random: Random, odds: float, deadly: float) -> None:
        self.done = False
        self.error: BaseException | None = None
        self._work = work
        self._random = random
        self._odds = odds
        self._deadly = deadly
        self._writer_may = threading.Semaphore(0)
        self._follower_may = threading.Semaphore(0)
        self._following = False
        self._follower = threading.current_thread()  # threads that other tests have left take no part
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        self._writer_may.acquire()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised where the test sees it
            self.error = error
        self.done = True
        self._follower_may.release()

    def let_write(self) -> None:
        """Let the writer make its next call."""
        if not self.done:
            self._writer_may.release()
            self._follower_may.acquire()
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        """Let the writer come to its end."""
        while not self.done:
            self.let_write()
        self._thread.join()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Let the writer interfere with this block, and perhaps a kill end it."""
        self._following = True
        try:
            yield
        finally:
            self._following = False

    def _before_writers(self) -> None:
        if threading.current_thread() is self._thread:
            self._follower_may.release()
            self._writer_may.acquire()

    def _before_followers(self) -> None:
        if threading.current_thread() is not self._follower or not self._following:
            return
        while not self.done and self._random.random() < self._odds:
            self.let_write()
        if self._random.random() < self._deadly:
            self._following = False
            raise Killed

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put turns before the system calls of both; large reads and copies are made page by page."""
        for name in FOLLOWER_CALLS:
            patch.setattr(os, name, _after(self._before_followers, getattr(os, name)))
        for name in WRITER_CALLS:
            patch.setattr(os, name, _after(self._before_writers, getattr(os, name)))
        for module in ("opened", "names"):
            path = f"solpi_exporter.follow.{module}.FileIO"
            patch.setattr(path, _after(self._before_followers, FileIO))
        patch.setattr(os, "pread", _read_by_page(_after(self._before_followers, os.pread)))
        patch.setattr(os, "sendfile", _send_by_page(_after(self._before_writers, os.sendfile)))


def _after(first: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        first()
        return function(*args, **named)

    return called


def _read_by_page(pread: Callable[[int, int, int], bytes]) -> Callable[[int, int, int], bytes]:
    def read(descriptor: int, length: int, offset: int) -> bytes:
        data = page = pread(descriptor, min(length, PAGE - offset % PAGE), offset)
        while page and len(data) < length:
            page = pread(descriptor, min(length - len(data), PAGE), offset + len(data))
            data += page
        return data

    return read


def _send_by_page(sendfile: Callable[[int, int, int, int], int]) -> Callable[[int, int, int, int], int]:
    return lambda out, source, offset, count: sendfile(out, source, offset, min(count, PAGE))
