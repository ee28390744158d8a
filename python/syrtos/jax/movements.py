"""allgather, broadcast and alltoall, of arrays and of trees of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syrtos import _ops
from syrtos._kinds import Kind
from syrtos._requests import group_of
from syrtos.jax.adapter import Tree
from syrtos.jax.gradients import ragged_alltoall, run
from syrtos.jax.primitive import Call
from syrtos.jax.reductions import check_list, part_names
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = ["allgather", "alltoall", "broadcast", "grouped_allgather", "grouped_broadcast"]


def _move(kind: Kind, tree: Any, name: str | None, process_set: ProcessSet, root: int = 0) -> Any:
    group_of(process_set)
    what = kind.name.lower()
    parts = Tree(tree, f'{what} "{name}"' if name else what, keys=True)
    call = Call(kind, process_set, name or "", root=root, part_names=part_names(parts, name))
    return parts.build(run(parts.arrays, call))


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenate the rows of all ranks; every rank gets the result.

    Parameters
    ----------
    tensor : array or pytree of arrays, each of shape (n, ...)
        Any dtype, random keys too. Outside of `jax.jit` n may differ between ranks, and be 0;
        inside it must be the same, since shapes are fixed before the program runs.
    name : str, optional
        As for `allreduce`.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    jax.Array or pytree, shape (sum of n, ...)
        New arrays: the rows in the order of the ranks. Differentiable.

    Raises
    ------
    MismatchError
        Ranks disagree about dtype or trailing dimensions, or inside `jax.jit` about n. In a program
        it is JAX's ``JaxRuntimeError``, with the same text.
    InvalidRequestError
        An array has no rows (it is 0-d).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.allgather(jnp.array([[1, 2]])).tolist()
    [[1, 2]]
    """
    return _move(Kind.ALLGATHER, tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Concatenate several arrays or trees as one request; else as `allgather`.

    Parameters
    ----------
    tensors : list or tuple
        Equally many on every rank.
    name, process_set
        As for `allgather`.

    Returns
    -------
    list
    """
    check_list(tensors, "allgather")
    results: list[Any] = _move(Kind.ALLGATHER, list(tensors), name, process_set)
    return results


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the root's array, or tree of arrays, to all ranks.

    Parameters
    ----------
    tensor : array or pytree of arrays
        Any dtype, random keys too; the same shapes and dtypes on every rank.
    root_rank : int
        Global rank of the sender, also within a process set.
    name, process_set
        As for `allgather`.

    Returns
    -------
    jax.Array or pytree
        New arrays with the root's values. Differentiable.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype or root.
    InvalidRequestError
        The root is no member.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.broadcast(jnp.arange(3), root_rank=0).tolist()
    [0, 1, 2]
    """
    return _move(Kind.BROADCAST, tensor, name, process_set, _ops.root_number(root_rank))


def grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Send several arrays or trees of the root as one request; else as `broadcast`.

    Parameters
    ----------
    tensors : list or tuple
        Equally many on every rank.
    root_rank, name, process_set
        As for `broadcast`.

    Returns
    -------
    list
    """
    check_list(tensors, "broadcast")
    root = _ops.root_number(root_rank)
    results: list[Any] = _move(Kind.BROADCAST, list(tensors), name, process_set, root)
    return results


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send some rows to each rank and collect what the others send here.

    Parameters
    ----------
    tensor : array, or without splits a pytree of arrays, each of shape (n, ...)
        Any dtype, random keys too; trailing dimensions equal on every rank.
    splits : sequence of int, optional
        How many rows go to each member of the set, in order; their sum is n. Equal shares if not
        given; n must then be divisible by the number of members, and inside `jax.jit`, where
        `splits` cannot be given, be the same on every rank.
    name, process_set
        As for `allgather`.

    Returns
    -------
    output : jax.Array or pytree
        New arrays: the rows received, in the order of the ranks. Differentiable.
    received_splits : jax.Array of int
        How many came from each; only if `splits` is given.

    Raises
    ------
    InvalidRequestError
        `splits` does not fit.
    MismatchError
        Ranks disagree about dtype or trailing dimensions.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.alltoall(jnp.array([7, 8])).tolist()
    [7, 8]
    """
    if splits is None:
        return _move(Kind.ALLTOALL, tensor, name, process_set)
    group_of(process_set)
    call = Call(Kind.ALLTOALL, process_set, name or "")
    parts = Tree(tensor, call.verb, keys=True)
    if len(parts.arrays) != 1:
        raise TypeError(
            f"{call.verb}: with splits give one array, not a tree of {len(parts.arrays)}."
        )
    output, received = ragged_alltoall(call, _ops.split_numbers(splits), parts.arrays[0])
    return parts.build([output]), received
