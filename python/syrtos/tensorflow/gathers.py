"""Gathers, broadcasts and exchanges with Horovod's names and arguments.

All work in eager mode, inside ``tf.function`` and in graphs of ``tf.compat.v1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos._requests import group_of
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter, ops

__all__ = ["allgather", "alltoall", "broadcast", "grouped_allgather"]


@adapter.as_written
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenate the ranks' tensors along the first dimension.

    Parameters
    ----------
    tensor : tensor, shape (any, ...)
        The first dimension may differ from rank to rank.
    name, ignore_name_scope, process_set
        As in `allreduce`.

    Returns
    -------
    tf.Tensor
        In rank order. Differentiable.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@adapter.as_written
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Concatenate several tensors over the ranks, as one request.

    Parameters
    ----------
    tensors : list of tensor
        Equally many on every rank.
    name, ignore_name_scope, process_set
        As in `allreduce`.

    Returns
    -------
    list of tf.Tensor
    """
    values = adapter.tensors_of(tensors, "allgather")
    group = group_of(process_set)
    if not values:
        return []
    return ops.allgather(values, group=group, name=name, ignore_name_scope=ignore_name_scope)


@adapter.as_written
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's value on every rank.

    Parameters
    ----------
    tensor : tensor
        The same type and shape on every rank.
    root_rank : int
        A global rank, also in a process set.
    name, ignore_name_scope, process_set
        As in `allreduce`.

    Returns
    -------
    tf.Tensor
        New. Differentiable.
    """
    return ops.broadcast(
        [adapter.to_tensor(tensor, "broadcast")],
        int(root_rank),
        group=group_of(process_set),
        name=name,
        ignore_name_scope=ignore_name_scope,
    )[0]


@adapter.as_written
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send rows to each rank and receive rows from each.

    Parameters
    ----------
    tensor : tensor, shape (any, ...)
        The rows, those for the first rank first.
    splits : tensor of integers, shape (ranks,), optional
        Rows for each rank; without it the same number for each.
    name, ignore_name_scope, process_set
        As in `allreduce`.

    Returns
    -------
    output : tf.Tensor
        The received rows in rank order. Differentiable.
    received_splits : tf.Tensor of int32, shape (ranks,)
        Rows from each rank; only if `splits` was given.
    """
    given = tf.zeros([0], tf.int64) if splits is None else tf.cast(splits, tf.int64)
    output, received = ops.alltoall(
        adapter.to_tensor(tensor, "alltoall"),
        given,
        group=group_of(process_set),
        name=name,
        ignore_name_scope=ignore_name_scope,
    )
    return output if splits is None else (output, tf.cast(received, tf.int32))
