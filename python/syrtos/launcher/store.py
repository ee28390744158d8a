"""The rendezvous store, hosted by the launcher for the time of the job."""

from __future__ import annotations

from typing import Protocol

from syrtos.errors import BackendUnavailableError
from syrtos.launcher.environment import LOOPBACK


class StoreServer(Protocol):
    """What the launcher needs of ``_core.TcpStoreServer``."""

    @property
    def port(self) -> int:
        """The port on which it listens."""

    def close(self) -> None:
        """Stop serving."""


def open_store() -> StoreServer:
    """Serve a store on a free port of this machine's loopback address.

    Raises
    ------
    BackendUnavailableError
        If this installation lacks the native module.
    """
    try:
        from syrtos import _core
    except ImportError as error:
        raise BackendUnavailableError(
            f"the native module of Syrtos cannot be loaded ({error}); install Syrtos with its core"
        ) from error
    return _core.TcpStoreServer(LOOPBACK, 0)
