"""Life cycle, waiting, joining, objects, parameters and optimizer states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from syrtos import _basics, _ops, process_sets
from syrtos.jax._effects import after_programs, is_staged
from syrtos.jax.movements import grouped_broadcast
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = [
    "add_process_set",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "join",
    "remove_process_set",
    "shutdown",
]

#: These are matched by order too, so they must not overtake programs that were started before.
allgather_object = after_programs(_ops.allgather_object)
broadcast_object = after_programs(_ops.broadcast_object)


@after_programs
def shutdown() -> None:
    """End what ``init`` began, once the programs that this thread has started are done."""
    _basics.shutdown()


@after_programs
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once all members have called it.

    Parameters
    ----------
    process_set : ProcessSet
        The ranks that take part.

    Examples
    --------
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    _ops.barrier(process_set)


@after_programs
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
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.join()
    0
    """
    return _ops.join(average_active=average_active)


@after_programs
def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set of ranks; all ranks must call this alike, see `syrtos.add_process_set`."""
    return process_sets.add_process_set(process_set)


@after_programs
def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a set; all ranks must call this alike, see `syrtos.remove_process_set`.

    Programs that were compiled with it must not be run any more: its number may go to another set.
    """
    return process_sets.remove_process_set(process_set)


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, jax.Array | jax.core.Tracer):
        return True
    return isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biufcV"


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's parameters, so that all ranks start alike.

    Parameters
    ----------
    params : pytree
        Of the same structure on every rank. Arrays of any dtype, random keys of both kinds too, are
        one request; all other leaves (numbers, texts) travel together as objects.
    root_rank : int
        Global rank of the sender.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    pytree
        The same structure. Arrays of JAX are immutable, so use what it returns:
        ``params = hvd.broadcast_parameters(params, root_rank=0)``.

    Raises
    ------
    MismatchError
        Ranks disagree about an array, which the text names by its place in the tree.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.broadcast_parameters({"w": jnp.zeros(2), "step": 3}, root_rank=0)["step"]
    3
    """
    leaves, structure = jax.tree_util.tree_flatten(params)
    if is_staged():
        arrays = list(range(len(leaves)))
    else:
        arrays = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
    received = grouped_broadcast([leaves[i] for i in arrays], root_rank, None, process_set)
    result = list(leaves)
    for i, value in zip(arrays, received, strict=True):
        result[i] = value
    others = [i for i in range(len(leaves)) if i not in set(arrays)]
    if others:
        objects = [leaves[i] for i in others]
        objects = broadcast_object(objects, root_rank, None, process_set)
        for i, value in zip(others, objects, strict=True):
            result[i] = value
    return jax.tree_util.tree_unflatten(structure, result)


def broadcast_optimizer_state(
    state: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's state of an optimizer, such as optax's; else as `broadcast_parameters`."""
    return broadcast_parameters(state, root_rank, process_set)
