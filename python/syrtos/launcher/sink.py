"""Writes bytes to a place that may block, without making the caller wait."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from typing import TextIO

#: More waiting bytes than this, and the ranks have to wait for the reader.
HIGH_WATER = 1 << 20


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; a descriptor that somebody made non-blocking is fine."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            time.sleep(0.01)


class Target:
    """Where output goes: a file descriptor, or a text stream without one (a notebook's).

    Parameters
    ----------
    fd : int or None
        The descriptor.
    stream : text file, optional
        Used if there is no descriptor.
    """

    def __init__(self, fd: int | None, stream: TextIO | None = None) -> None:
        self._fd = fd
        self._stream = stream

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it directly."""
        return self._fd is not None and os.isatty(self._fd)

    def same_as(self, other: Target) -> bool:
        """Whether both are one terminal, pipe or file, so that the order of writes matters."""
        if self._fd is None or other._fd is None:
            return self._fd is other._fd and self._stream is other._stream
        try:
            return os.path.sameopenfile(self._fd, other._fd)
        except OSError:
            return False

    def write(self, data: bytes) -> None:
        """Write all of `data`; OSError if that fails."""
        if self._fd is not None:
            write_all(self._fd, data)
        elif self._stream is not None:
            self._stream.write(data.decode(errors="backslashreplace"))
            self._stream.flush()


class Sink:
    """A queue before a target, emptied by a thread of its own.

    The launcher's loop must go on while a pager holds the output back: ranks fail and signals
    arrive meanwhile. So `write` never blocks; who feeds the sink looks at `is_full`.

    Parameters
    ----------
    target : Target
        Where the bytes go.
    on_change : callable
        Called on the sink's thread once a full sink has room again, and when writing fails.
    """

    def __init__(self, target: Target, on_change: Callable[[], None]) -> None:
        self._target = target
        self._on_change = on_change
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._closing = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._drain, name="syrtos-output", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether the target is so slow that no more should be written now."""
        return self._waiting_bytes > HIGH_WATER

    @property
    def error(self) -> OSError | None:
        """Why the target takes nothing any more; what is written then is dropped."""
        return self._error

    @property
    def reader_left(self) -> bool:
        """Whether the target was a pipe and its reader has gone."""
        return self._error is not None and self._error.errno == errno.EPIPE

    def write(self, data: bytes) -> None:
        """Queue `data`."""
        with self._changed:
            if self._error is None and data:
                self._waiting.append(data)
                self._waiting_bytes += len(data)
                self._changed.notify()

    def close(self, timeout: float | None) -> None:
        """Wait until all is written, at most `timeout` seconds (None: for ever)."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _drain(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                data, self._waiting = b"".join(self._waiting), []
            try:
                self._target.write(data)
            except (OSError, ValueError) as error:  # ValueError: a closed text stream
                self._fail(error)
                return
            with self._changed:
                was_full = self.is_full
                self._waiting_bytes -= len(data)
                has_room_again = was_full and not self.is_full
            if has_room_again:
                self._on_change()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error if isinstance(error, OSError) else OSError(str(error))
            self._waiting, self._waiting_bytes = [], 0
        self._on_change()
