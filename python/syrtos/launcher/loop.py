"""A small event loop: readable file descriptors and timers, on one thread."""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from collections.abc import Callable


class Loop:
    """Calls back when a descriptor is readable or a time has come.

    All methods belong to the thread that runs the loop.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()

    def add(self, fd: int, callback: Callable[[], object]) -> None:
        """Call `callback` whenever `fd` is readable or at its end."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def remove(self, fd: int) -> None:
        """Watch `fd` no longer; unknown descriptors are fine."""
        try:
            self._selector.unregister(fd)
        except (KeyError, ValueError):
            pass

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        """Call `callback` once, `delay` seconds from now."""
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._count), callback))

    def run_once(self) -> None:
        """Wait for the next events or timer, and serve all that are due."""
        timeout = None
        if self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        for key, _ in self._selector.select(timeout):
            # An earlier callback of this round may have removed it.
            if self._selector.get_map().get(key.fd) is not None:
                key.data()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def run_until(self, finished: Callable[[], bool]) -> None:
        """Run until `finished` returns true; it is asked after each round."""
        while not finished():
            self.run_once()

    def close(self) -> None:
        """Release the loop's own descriptor."""
        self._selector.close()
