"""How a worker hears that hosts were added or removed."""

from __future__ import annotations

import threading
from enum import IntFlag
from typing import Any, Protocol

__all__ = [
    "HostUpdateResult",
    "HostsUpdatedInterrupt",
    "Listener",
    "WorkerNotificationManager",
    "notification_manager",
]


class HostUpdateResult(IntFlag):
    """What has happened to the hosts of a job; the numbers are Horovod's."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of the job have changed: the engine is made anew, and the state is kept.

    Parameters
    ----------
    skip_sync : bool
        Whether the state need not be synchronised, since ranks only went away.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync

    def __str__(self) -> str:
        return "the hosts of the job have changed"


class Listener(Protocol):
    """Whoever wants to hear of changes: a `State`."""

    def on_hosts_updated(self, timestamp: float, update_res: HostUpdateResult) -> None:
        """Take note of a change; called on any thread."""


class WorkerNotificationManager:
    """Passes changes of the hosts on to the states in use.

    Nothing calls `handle_hosts_updated` in this version but you. It may be called on any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []

    def init(self, *_: Any, **__: Any) -> None:
        """Do nothing: there is no driver to connect to. Horovod's arguments are accepted."""

    def register_listener(self, listener: Listener) -> None:
        """Call ``listener.on_hosts_updated(timestamp, result)`` on each change from now on."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo one `register_listener`.

        Raises
        ------
        ValueError
            It is not registered.
        """
        with self._lock:
            for index, known in enumerate(self._listeners):
                if known is listener:
                    del self._listeners[index]
                    return
        raise ValueError(f"remove_listener({listener!r}): it is not registered.")

    def handle_hosts_updated(self, timestamp: float, update_res: HostUpdateResult) -> None:
        """Tell all listeners.

        Parameters
        ----------
        timestamp : float
            When it happened; later changes have greater ones.
        update_res : HostUpdateResult
            What happened.
        """
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


#: The one that `run_fn` registers states with.
notification_manager = WorkerNotificationManager()
