"""The engine of a process group: made over torch's store, ended with the group or the process."""

from __future__ import annotations

import atexit
import os
import weakref
from dataclasses import replace
from typing import Any

from syrtos import _last_words, config
from syrtos._creation import Creation
from syrtos._session import Session
from syrtos.torch.c10d.group import SyrtosProcessGroup

__all__ = ["create"]

_KEY = "syrtos"
_PEER_LOST = 4  # a number of ``syrtos::StatusCode``
_groups: weakref.WeakSet[SyrtosProcessGroup] = weakref.WeakSet()
_installed = False


def create(options: Any, backend_options: Any = None) -> SyrtosProcessGroup:
    """Make a process group; torch calls it on all members.

    Parameters
    ----------
    options : _DistributedBackendOptions
        Store, rank, size and name of the group.
    backend_options : None
        There are none.

    Raises
    ------
    PeerLostError, CollectiveTimeout
        Other members did not come in time.
    """
    rank, size = options.group_rank, options.group_size
    session = _open(options.store, rank, size, options.timeout.total_seconds())
    group = SyrtosProcessGroup(session, rank, size, str(options.group_id))
    _groups.add(group)
    _install()
    return group


def _open(store: Any, rank: int, size: int, timeout: float) -> Session:
    """Make the engine; member 0 serves the ranks' rendezvous and tells where in torch's store."""
    from syrtos import _core

    base = config.resolve()
    settings = replace(
        base.settings,
        rank=rank,
        size=size,
        local_rank=rank,
        local_size=size,
        cross_rank=0,
        cross_size=1,
        # The server below is of this group alone, so the job needs no name and the engine no epoch.
        job_id="c10d",
        epoch=0,
        start_timeout=min(timeout, 1e6),
        timeline_path="",
    )
    server = None
    try:
        if size == 1:
            return Session(Creation(config.Setup(settings, "", base.log_level)).run(), settings)
        if rank == 0:
            server = _core.TcpStoreServer(settings.address)
            store.set(_KEY, f"{settings.address}:{server.port}")
        setup = config.Setup(settings, store.get(_KEY).decode(), base.log_level)
        return Session(Creation(setup).run(), settings)
    finally:
        # All members have met when the engine is there, so nobody needs the server any more.
        if server is not None:
            server.close()


def _install() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    process = os.getpid()

    def close_all() -> None:
        if os.getpid() == process:
            for group in list(_groups):
                group.shutdown()

    def tell(text: str, thread: int | None) -> None:
        if os.getpid() != process or thread is not None:
            return
        for group in list(_groups):
            group.engine.abort(_PEER_LOST, f"member {group.rank()} of {group}: {text}")

    atexit.register(close_all)
    _last_words.install(tell)
