"""Turns signals of the launcher into events of its loop."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

from syrtos.launcher.loop import Loop

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def forwarded_signals(loop: Loop, callback: Callable[[int], None]) -> Iterator[None]:
    """Call `callback` on the loop for SIGINT, SIGTERM and SIGHUP; for the main thread only.

    A signal that is ignored (as by ``nohup``) stays ignored.
    """
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def on_readable() -> None:
        for number in os.read(read_end, 4096):
            if number in handled:
                callback(number)

    handled = [number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    old_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    old = {number: signal.signal(number, lambda *_: None) for number in handled}
    loop.add(read_end, on_readable)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_fd)
        loop.remove(read_end)
        os.close(read_end)
        os.close(write_end)
