"""A loader of batches, and a mixin that lets it read ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

#: Both threads look this often whether the other has ended, in seconds.
_LOOK = 0.1


class BaseDataLoader:
    """Loads batches; subclasses say how in `_iterate`, and how many in ``__len__``."""

    def __len__(self) -> int:
        """Return the number of batches of one pass."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many batches it has.")

    def _iterate(self) -> Iterator[Any]:
        """Yield the batches of one pass."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it loads batches.")

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass as users see them."""
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Return a batch as users see it; may be replaced by a trainer."""
        return batch


class _End:
    """Comes after the last batch of a pass, with what ended it."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class AsyncDataLoaderMixin:
    """Lets a `BaseDataLoader` read ahead, also into the next pass, on a thread of its own.

    ::

        class Loader(AsyncDataLoaderMixin, MyLoader): ...

    Leaving a loop early gives up the rest of that pass; the next loop begins a new one.

    Parameters
    ----------
    async_loader_queue_size : int
        How many batches it may be ahead; 0 loads without a thread.
    debug_data_loader : bool
        Print what it does.
    *args, **kwargs
        For the loader.
    """

    def __init__(
        self,
        async_loader_queue_size: int = 64,
        debug_data_loader: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        super().__init__(*args, **kwargs)
        self.queue: queue.Queue[tuple[int, Any]] = queue.Queue(max(async_loader_queue_size, 1))
        self.finished_event = threading.Event()
        self.started = False
        self.thread = threading.Thread(target=self._async_worker, daemon=True)
        # Passes are numbered; those before this one are not wanted any more.
        self._wanted = 0

    def _debug(self, text: str) -> None:
        if self.debug_data_loader:
            print(f"{type(self).__name__}: {text}")

    def close_async_loader(self) -> None:
        """End the thread; what it has read ahead is dropped. Harmless when repeated."""
        self.finished_event.set()
        if self.started:
            self.thread.join()
        self._debug("closed")

    def _put(self, number: int, item: Any) -> bool:
        """Hand an item over; False if nobody wants it any more."""
        while not self.finished_event.is_set() and number >= self._wanted:
            try:
                self.queue.put((number, item), timeout=_LOOK)
                return True
            except queue.Full:
                continue
        return False

    def _async_worker(self) -> None:
        number = 0
        while not self.finished_event.is_set():
            error: BaseException | None = None
            try:
                for batch in self._iterate():  # type: ignore[attr-defined]
                    if not self._put(number, batch):
                        break
            except BaseException as caught:  # raised by the loop that reads this pass
                error = caught
            self._debug(f"pass {number} has been read")
            self._put(number, _End(error))
            number += 1

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass as users see them.

        Raises
        ------
        RuntimeError
            It has been closed.
        """
        if self.async_loader_queue_size <= 0:
            for batch in self._iterate():  # type: ignore[attr-defined]
                yield self._process_batch(batch)  # type: ignore[attr-defined]
            return
        if not self.started:
            self.started = True
            self.thread.start()
        number = self._wanted
        try:
            while True:
                item = self._get(number)
                if isinstance(item, _End):
                    if item.error is not None:
                        raise item.error
                    return
                yield self._process_batch(item)  # type: ignore[attr-defined]
        finally:
            self._wanted = number + 1

    def _get(self, number: int) -> Any:
        """Return the next item of a pass."""
        while not self.finished_event.is_set():
            try:
                found, item = self.queue.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if found == number:
                return item
        raise RuntimeError(f"{type(self).__name__} has been closed by close_async_loader().")
