"""Collectives that are started and waited for later, outside of programs.

Inside `jax.jit` there is no need of handles: while a program's collective waits for other ranks,
XLA goes on with what does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from syrtos import _ops
from syrtos._kinds import Kind, ReduceOp
from syrtos._ops import Handle, poll, synchronize
from syrtos._requests import group_of
from syrtos.errors import InvalidRequestError
from syrtos.jax._effects import is_staged
from syrtos.jax.adapter import Tree
from syrtos.jax.primitive import Call, start
from syrtos.jax.reductions import check_list
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = [
    "Handle",
    "allgather_async",
    "allreduce_async",
    "alltoall_async",
    "broadcast_async",
    "grouped_allgather_async",
    "grouped_allreduce_async",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter_async",
    "synchronize",
]


def _start(tree: Any, call: Call, *, keys: bool = False) -> Handle:
    what = f"{call.kind.name.lower()}_async"
    group_of(call.process_set)
    parts = Tree(tree, what, keys=keys)
    _check_concrete(parts.arrays, what)
    if not parts.arrays:
        raise InvalidRequestError(f"{what}: there is no array in {tree!r}.")
    inner = start(parts.arrays, call)
    return Handle(inner._session, inner._completion, inner, lambda _: parts.build(inner.wait()))


def _check_concrete(arrays: Sequence[Any], what: str) -> None:
    if is_staged() or any(isinstance(array, jax.core.Tracer) for array in arrays):
        raise InvalidRequestError(
            f"{what}: there are no handles inside jax.jit, jax.grad and jax.vmap. Use the function "
            "without _async: while it waits, XLA goes on with what does not depend on it."
        )


def _allreduce(
    tree: Any,
    average: bool | None,
    name: str | None,
    op: ReduceOp | int | None,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Handle:
    chosen = _ops.reduce_op(average, op)
    scales = float(prescale), float(postscale)
    return _start(tree, Call(Kind.ALLREDUCE, process_set, name or "", chosen, *scales))


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `allreduce` outside of programs.

    Parameters
    ----------
    tensor, average, name, op, prescale_factor, postscale_factor, process_set
        As for `allreduce`.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Raises
    ------
    InvalidRequestError
        Inside `jax.jit` and other transformations.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.synchronize(hvd.allreduce_async(jnp.array([3, 4]), op=hvd.Sum)).tolist()
    [3, 4]
    """
    return _allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allreduce` outside of programs; one handle, whose result is the list."""
    check_list(tensors, "allreduce")
    return _allreduce(
        list(tensors), average, name, op, prescale_factor, postscale_factor, process_set
    )


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start an `allgather` outside of programs; the handle's result is its result."""
    return _start(tensor, Call(Kind.ALLGATHER, process_set, name or ""), keys=True)


def grouped_allgather_async(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allgather` outside of programs; one handle, whose result is the list."""
    check_list(tensors, "allgather")
    return _start(list(tensors), Call(Kind.ALLGATHER, process_set, name or ""), keys=True)


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `broadcast` outside of programs; the handle's result is its result."""
    root = _ops.root_number(root_rank)
    return _start(tensor, Call(Kind.BROADCAST, process_set, name or "", root=root), keys=True)


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `alltoall` of one array outside of programs; the result is as there."""
    call = Call(Kind.ALLTOALL, process_set, name or "")
    parts = Tree(tensor, "alltoall_async", keys=True)
    _check_concrete(parts.arrays, "alltoall_async")
    if len(parts.arrays) != 1:
        raise TypeError(f"alltoall_async: give one array, not a tree of {len(parts.arrays)}.")
    numbers = None if splits is None else _ops.split_numbers(splits)
    inner = start(parts.arrays, call, splits=numbers)

    def finish(_: Any) -> Any:
        if splits is None:
            return parts.build(inner.wait())
        output, received = inner.wait()
        return parts.build([output]), received

    return Handle(inner._session, inner._completion, inner, finish)


def _reducescatter(
    tree: Any,
    name: str | None,
    op: ReduceOp | int,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
) -> Handle:
    chosen = _ops.reduce_op(None, op)
    scales = float(prescale), float(postscale)
    return _start(tree, Call(Kind.REDUCESCATTER, process_set, name or "", chosen, *scales))


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start a `reducescatter` outside of programs; the handle's result is its result."""
    return _reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor)


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start a `grouped_reducescatter` outside of programs; one handle, whose result is the list."""
    check_list(tensors, "reducescatter")
    return _reducescatter(list(tensors), name, op, process_set, prescale_factor, postscale_factor)
