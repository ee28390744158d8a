"""What an asynchronous collective returns: torch's `Work`, with a future for DDP."""

from __future__ import annotations

import queue
import threading
import time
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import Work

from syrtos._handle import Handle
from syrtos._session import Session
from syrtos.errors import CollectiveTimeout

__all__ = ["CollectiveWork", "Deliveries"]

#: So many works of a group are kept for callers that never wait.
_HELD = 64


class Deliveries:
    """Completes the futures of a group, in order, on a thread that is made when one is asked for.

    The core never calls Python, so somebody must wait. Each group has a thread of its own: what one
    group waits for may depend on another.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[CollectiveWork | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._held: dict[int, CollectiveWork] = {}

    def hold(self, work: CollectiveWork) -> None:
        """Keep a work whose Python half torch may drop before its C++ half is waited for.

        Releases of torch before 2.7 do: its own `wait`, which nothing ever ends, is then called in
        place of ours.
        """
        self._held[id(work)] = work
        if len(self._held) > _HELD:
            self._held.pop(next(iter(self._held)), None)

    def let_go(self, work: CollectiveWork) -> None:
        """Keep a work no longer: somebody has waited for it."""
        self._held.pop(id(work), None)

    def add(self, work: CollectiveWork) -> None:
        """Complete the future of `work` when it is done."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"syrtos-c10d-{self._name}", daemon=True
                )
                self._thread.start()
        self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work.deliver()
            del work  # its tensors are not kept until the next one comes

    def close(self) -> None:
        """End the thread, after what is pending has failed or succeeded."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            if thread is not threading.current_thread():
                thread.join()


class CollectiveWork(Work):  # type: ignore[misc]
    """A collective under way.

    Parameters
    ----------
    session : Session
        The group's engine.
    handle : Handle
        Of the request; its result is the list of output tensors.
    completion : Completion
        What the engine promised.
    deliveries : Deliveries
        Of the group.

    Attributes
    ----------
    completion : Completion
        What the engine promised.
    """

    def __init__(
        self, session: Session, handle: Handle, completion: Any, deliveries: Deliveries
    ) -> None:
        super().__init__()
        self._session = session
        self._handle = handle
        self.completion = completion
        self._deliveries = deliveries
        self._lock = threading.Lock()
        self._future: Any = None
        deliveries.hold(self)

    def _finish(self) -> Any:
        # The waits of two threads must not both write the results back.
        try:
            self._session.wait(self.completion)
            with self._lock:
                return self._handle.wait()
        finally:
            self._deliveries.let_go(self)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the end and raise if it failed; a timeout of 0 means none.

        Raises
        ------
        CollectiveTimeout
            The time is over; the operation goes on.
        """
        seconds = timeout.total_seconds()
        if seconds > 0:
            end = time.monotonic() + seconds
            while not self._session.engine.wait(
                self.completion, min(0.1, max(0.0, end - time.monotonic()))
            ):
                if time.monotonic() >= end:
                    raise CollectiveTimeout(f"the operation is not done after {seconds:g} s.")
        self._finish()
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return bool(self.completion.done())

    def is_success(self) -> bool:
        """Whether it is done and has not failed."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return why it failed, if it has."""
        if not self.is_completed():
            return None
        try:
            self.completion.raise_if_failed()
        except Exception as error:
            return error
        return None

    def synchronize(self) -> None:
        """Wait for the end, as `wait` does."""
        self.wait()

    def result(self) -> list[Any]:
        """Return the output tensors, once done."""
        outputs: list[Any] = self._finish()
        return outputs

    def get_future(self) -> Any:
        """Return a future of the output tensors."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                self._deliveries.add(self)
            return self._future

    def deliver(self) -> None:
        """Wait, and complete the future; on the thread for it."""
        try:
            outputs = self._finish()
        except Exception as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(outputs)
