"""Waiting, joining, objects and parameters."""

from __future__ import annotations

from typing import Any

from syrtos import _ops
from syrtos._ops import Handle, allgather_object, broadcast_object
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch.optimizer_state import broadcast_optimizer_state
from syrtos.torch.parameters import broadcast_parameters

__all__ = [
    "Handle",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "join",
    "poll",
    "synchronize",
]


def poll(handle: Handle) -> bool:
    """Return whether an asynchronous operation has ended.

    Parameters
    ----------
    handle : Handle
        What an ``..._async`` function returned.

    Raises
    ------
    TypeError
        It is no handle.
    """
    return _ops.poll(handle)


def synchronize(handle: Handle) -> Any:
    """Wait for an asynchronous operation and return its result.

    Parameters
    ----------
    handle : Handle
        What an ``..._async`` function returned. For a number, which can be a handle of Horovod's
        only, there is nothing to wait for, and the result is None as there.

    Raises
    ------
    HorovodInternalError
        Why the operation failed.
    TypeError
        It is no handle.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.synchronize(hvd.allreduce_async(torch.tensor([3, 4]), op=hvd.Sum))
    tensor([3, 4])
    """
    if isinstance(handle, int):
        return None
    return _ops.synchronize(handle)


def join(device: int = -1, *, average_active: bool = False) -> int:
    """Say that this rank has no more data, and wait until all ranks have.

    Until then the collectives of the others go on without this rank, as if it sent nothing.

    Parameters
    ----------
    device : int
        No effect: kept for Horovod's signature.
    average_active : bool
        Averages of the others divide by the number of ranks that have not joined; else, as Horovod
        does, by the number of all ranks. The same on every rank.

    Returns
    -------
    int
        The rank that joined last, the same on every rank: it worked longest.
    """
    del device
    return _ops.join(average_active=average_active)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once all members have called it.

    Parameters
    ----------
    process_set : ProcessSet
        The ranks that take part.
    """
    _ops.barrier(process_set)
