"""What a training program must not lose."""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from syrtos import _basics, _objects
from syrtos.elastic.notifications import HostsUpdatedInterrupt, HostUpdateResult
from syrtos.errors import InvalidRequestError

__all__ = ["ObjectState", "State"]


class State:
    """The state of a training program, in the memory of each rank.

    Subclasses say how it is saved, restored and synchronised.

    Parameters
    ----------
    bcast_object : callable, optional
        Sends rank 0's object to all ranks: ``bcast_object(obj) -> obj``. Syrtos' own by default.
    get_rank : callable, optional
        Returns this process's rank.
    """

    # How often commit() was called: a run that fails again and again without it makes no progress.
    _commits = 0

    def __init__(
        self,
        bcast_object: Callable[[Any], Any] | None = None,
        get_rank: Callable[[], int] | None = None,
    ) -> None:
        self._bcast_object = bcast_object or _objects.broadcast_object
        self._rank = get_rank or _basics.rank
        self._host_messages: queue.SimpleQueue[tuple[float, HostUpdateResult]] = queue.SimpleQueue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Call functions after each new start of the engine, in their order.

        Parameters
        ----------
        callbacks : sequence of callable
            Called without arguments, when ``rank()`` and ``size()`` are the new ones: a place to
            adapt the learning rate.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Forget changes of the hosts, call `reset` and the callbacks; called by `run_fn`."""
        self._host_messages = queue.SimpleQueue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: HostUpdateResult) -> None:
        """Take note that hosts were added or removed; called on any thread."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, then raise if the hosts have changed; on all ranks alike.

        Raises
        ------
        HostsUpdatedInterrupt
            As `check_host_updates`.
        """
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise on all ranks if rank 0 has heard that hosts were added or removed.

        All ranks must call it.

        Raises
        ------
        HostsUpdatedInterrupt
            The hosts have changed since the last call.
        """
        before = latest = self._last_updated_timestamp
        result = HostUpdateResult.no_update
        while True:
            try:
                timestamp, update = self._host_messages.get_nowait()
            except queue.Empty:
                break
            if timestamp > before:
                latest = max(latest, timestamp)
                result |= update
        # Rank 0's view is everybody's, so that all ranks raise at the same commit or none does.
        before, latest, result = self._bcast_object((before, latest, result))
        self._last_updated_timestamp = latest
        if latest > before:
            raise HostsUpdatedInterrupt(result == HostUpdateResult.removed)

    def save(self) -> None:
        """Keep a copy of the state in this process's memory."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is saved.")

    def restore(self) -> None:
        """Go back to the last copy that `save` has made."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is restored.")

    def sync(self) -> None:
        """Make the state that of rank 0 on all ranks."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is synchronised.")

    def reset(self) -> None:
        """Adapt to a new engine, before the synchronisation; by default nothing."""


class ObjectState(State):
    """Python objects, as attributes.

    Copies are deep, so a list that is changed in place after a commit is restored too.

    Parameters
    ----------
    bcast_object, get_rank : callable, optional
        As for `State`.
    **kwargs
        The objects by name; each becomes an attribute. They must be picklable.

    Raises
    ------
    InvalidRequestError
        A name is that of a method, or an object cannot be copied; the text names it.

    Examples
    --------
    >>> from syrtos.elastic import ObjectState
    >>> state = ObjectState(step=0, losses=[])
    >>> state.step += 1
    >>> state.losses.append(0.5)
    >>> state.restore()
    >>> state.step, state.losses
    (0, [])
    """

    def __init__(
        self,
        bcast_object: Callable[[Any], Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        self._refuse_methods(kwargs)
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        self._saved_state = {name: self._copy(name, value) for name, value in kwargs.items()}
        for name, value in kwargs.items():
            setattr(self, name, value)

    def _refuse_methods(self, names: Iterable[str]) -> None:
        for name in names:
            if callable(getattr(type(self), name, None)):
                raise InvalidRequestError(
                    f"{type(self).__name__}({name}=...): {name} is a method of it. Give the object "
                    "another name."
                )

    def _copy(self, name: str, value: Any) -> Any:
        try:
            return copy.deepcopy(value)
        except Exception as error:
            raise InvalidRequestError(
                f"{type(self).__name__}({name}=...): an object of type {type(value).__name__} "
                f"cannot be copied: {error}. Keep what makes it up instead, such as its state_dict."
            ) from error

    def save(self) -> None:
        """Keep copies of all objects."""
        self._saved_state = {
            name: self._copy(name, getattr(self, name)) for name in self._saved_state
        }

    def restore(self) -> None:
        """Set all attributes to copies of what was saved last."""
        for name, value in self._saved_state.items():
            setattr(self, name, self._copy(name, value))

    def sync(self) -> None:
        """Set all attributes to rank 0's current objects, and save them."""
        if not self._saved_state:
            return
        mine = {name: getattr(self, name) for name in self._saved_state}
        values = self._bcast_object(mine)
        for name, value in values.items():
            setattr(self, name, value)
        self._saved_state = {name: self._copy(name, value) for name, value in values.items()}
