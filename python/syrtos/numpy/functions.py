"""Waiting, joining, objects and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syrtos import _ops
from syrtos._ops import Handle, allgather_object, broadcast_object, poll, synchronize
from syrtos.numpy.adapter import ADAPTER
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = [
    "Handle",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "broadcast_parameters",
    "join",
    "poll",
    "synchronize",
]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once all members have called it.

    Parameters
    ----------
    process_set : ProcessSet
        The ranks that take part.

    Examples
    --------
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.barrier()
    """
    _ops.barrier(process_set)


def join(*, average_active: bool = False) -> int:
    """Say that this rank has no more data, and wait until all ranks have.

    Until then the collectives of the others go on without this rank, as if it sent nothing.

    Parameters
    ----------
    average_active : bool
        Averages of the others divide by the number of ranks that have not joined; else, as Horovod
        does, by the number of all ranks. The same on every rank.

    Returns
    -------
    int
        The rank that joined last, the same on every rank: it worked longest.

    Examples
    --------
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.join()
    0
    """
    return _ops.join(average_active=average_active)


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite named arrays with the root's, so that all ranks start alike.

    Parameters
    ----------
    params : mapping, or iterable of (name, array)
        The same names, shapes and dtypes on every rank; their order does not matter.
    root_rank : int
        Global rank of the sender.
    process_set : ProcessSet
        The ranks that take part.

    Raises
    ------
    MismatchError
        Ranks disagree about an array, which the text names.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.broadcast_parameters({"w": np.zeros((2, 2)), "b": np.zeros(2)}, root_rank=0)
    """
    items = params.items() if isinstance(params, Mapping) else params
    handles = [
        _ops.broadcast_async(ADAPTER, array, root_rank, name, process_set, in_place=True)
        for name, array in items
    ]
    for handle in handles:
        handle.wait()
