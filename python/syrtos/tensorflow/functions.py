"""Python objects and variables between ranks, with Horovod's names and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from syrtos import _objects, _ops
from syrtos._requests import group_of
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter, ops
from syrtos.tensorflow.gathers import allgather, alltoall, broadcast, grouped_allgather
from syrtos.tensorflow.topology import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from syrtos.tensorflow.variables import (
    BroadcastGlobalVariablesHook,
    broadcast_,
    broadcast_global_variables,
    broadcast_variables,
)

__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather",
    "allgather_object",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "grouped_allgather",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]


@adapter.as_written
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Wait until all ranks have come here.

    Parameters
    ----------
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    None or tf.Operation
        In a graph the wait is part of it: done among the other collectives in the order of the
        text inside ``tf.function``; in graphs of ``tf.compat.v1`` it must be run.
    """
    if tf.executing_eagerly():
        return _ops.barrier(process_set)
    return ops.barrier(group_of(process_set))


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the root's Python object to all ranks.

    Parameters
    ----------
    obj : Any
        Used on the root only.
    root_rank : int
        A global rank.
    session : Any
        No effect: kept for Horovod's signature. No graph is needed to send an object.
    name, process_set
        As in `allreduce`.

    Returns
    -------
    Any
        On the root `obj` itself, elsewhere an equal object.
    """
    del session
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Return a function that sends the root's Python object to all ranks.

    Parameters
    ----------
    root_rank, session, name, process_set
        As in `broadcast_object`.

    Returns
    -------
    callable
        ``broadcast(obj) -> obj``; may be called again and again.
    """

    def broadcast(obj: Any) -> Any:
        return broadcast_object(obj, root_rank, session, name, process_set)

    return broadcast


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Collect one Python object of each rank.

    Parameters
    ----------
    obj : Any
        This rank's object.
    session : Any
        No effect: kept for Horovod's signature. No graph is needed to send an object.
    name, process_set
        As in `allreduce`.

    Returns
    -------
    list
        In the order of the ranks.
    """
    del session
    return _objects.allgather_object(obj, name, process_set)
