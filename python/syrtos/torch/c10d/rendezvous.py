"""How ranks of ``syrtosrun`` find each other when ``init_process_group`` is not told how."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from syrtos import _contract, config

__all__ = ["register"]

_KEY = "syrtos.torch.c10d"
_TIMEOUT = timedelta(minutes=30)  # as torch has it
_rounds = 0  # equal on all ranks, since init_process_group is called by all


def _launched_here(environ: Mapping[str, str]) -> bool:
    """Whether the variables are the launcher's, and those of torch are missing."""
    return _contract.STORE in environ and "MASTER_PORT" not in environ


def _from_launcher(url: str, timeout: timedelta, **kwargs: Any) -> Iterator[Any]:
    """Yield torch's store, this rank and the number of ranks, from what the launcher has told.

    Rank 0 serves torch's store on a port that is surely free, since the system chooses it when the
    store is made, and publishes it in the launcher's.
    """
    global _rounds
    from syrtos import _core

    setup = config.resolve()
    settings = setup.settings
    host, _, port = setup.store.rpartition(":")
    launcher = _core.TcpStore.connect(host.strip("[]"), int(port), settings.start_timeout)
    key = f"{settings.job_id}.{_KEY}.{_rounds}"
    _rounds += 1
    if settings.rank == 0:
        store = dist.TCPStore(
            settings.address, 0, settings.size, True, timeout=timeout, wait_for_workers=False
        )
        launcher.set(key, f"{settings.address}:{store.port}".encode())
    else:
        found = launcher.get(key, timeout.total_seconds()).decode()
        address, _, number = found.rpartition(":")
        store = dist.TCPStore(address, int(number), settings.size, False, timeout=timeout)
    yield store, settings.rank, settings.size
    raise RuntimeError("torch's process groups cannot be joined again; make a new one.")


def register() -> None:
    """Teach ``init_process_group()`` without arguments the launcher's variables.

    ``init_method="syrtos://"`` asks for them by name.
    """

    def named(url: str, timeout: timedelta = _TIMEOUT, **kwargs: Any) -> Any:
        return _from_launcher(url, timeout, **kwargs)

    dist.register_rendezvous_handler("syrtos", named)
    # Torch has no public way to extend the meaning of "env://"; the table is there since 1.0.
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    by_environment = handlers["env"]

    def environment(url: str, timeout: timedelta = _TIMEOUT, **kwargs: Any) -> Any:
        if _launched_here(os.environ):
            return _from_launcher(url, timeout, **kwargs)
        return by_environment(url, timeout, **kwargs)

    handlers["env"] = environment
