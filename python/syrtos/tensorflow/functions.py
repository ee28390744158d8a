"""Gathers, broadcasts and exchanges with Horovod's names and arguments.

All work in eager mode and inside ``tf.function``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos import _objects
from syrtos._requests import group_of
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter, ops

__all__ = [
    "allgather",
    "allgather_object",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_variables",
    "grouped_allgather",
    "process_set_included_op",
    "rank_op",
    "size_op",
]


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
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Give variables the root's values, as one request.

    Parameters
    ----------
    variables : list of tf.Variable or Keras variable
        The same types and shapes on every rank.
    root_rank, name, process_set
        As in `broadcast`.

    Returns
    -------
    list
        The variables.
    """
    variables = list(variables)
    backing = [adapter.backing_variable(variable) for variable in variables]
    names = [adapter.name_of(variable) for variable in variables]
    group = group_of(process_set)
    adapter.check_types(backing, names, "broadcast_variables")
    if not variables:
        return variables
    values = ops.broadcast(
        [tf.convert_to_tensor(variable) for variable in backing],
        int(root_rank),
        group=group,
        name=name,
        tensor_names=names,
    )
    for variable, value in zip(backing, values, strict=True):
        variable.assign(value)
    return variables


@adapter.as_written
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> None:
    """Give variables the root's values, for equal beginnings on all ranks.

    Parameters
    ----------
    variables : list of tf.Variable or Keras variable
        Such as ``model.weights + optimizer.variables``.
    root_rank : int
        A global rank.
    process_set : ProcessSet
        The ranks that take part.
    inplace : bool
        No effect: kept for Horovod's signature.

    Raises
    ------
    InvalidRequestError
        A variable holds strings or another type that cannot be sent; the text names it.
    """
    del inplace
    broadcast_(variables, root_rank, process_set=process_set)


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
        No effect: kept for Horovod's signature.
    name, process_set
        As in `allreduce`.

    Returns
    -------
    Any
        On the root `obj` itself, elsewhere an equal object.
    """
    del session
    return _objects.broadcast_object(obj, root_rank, name, process_set)


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
        No effect: kept for Horovod's signature.
    name, process_set
        As in `allreduce`.

    Returns
    -------
    list
        In the order of the ranks.
    """
    del session
    return _objects.allgather_object(obj, name, process_set)


@adapter.as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks of a process set, told whenever a graph runs.

    Parameters
    ----------
    process_set_id : int
        0 for all ranks.
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return tf.identity(ops.group(process_set_id)[0], name=name)


@adapter.as_written
def rank_op(name: str | None = None) -> Any:
    """Return this process's rank, told whenever a graph runs.

    Parameters
    ----------
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return tf.identity(ops.group()[1], name=name)


@adapter.as_written
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 if this rank belongs to a process set, else 0, told whenever a graph runs.

    Parameters
    ----------
    process_set_id : int
        0 for all ranks.
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return tf.cast(ops.group(process_set_id)[1] >= 0, tf.int32, name=name)
