"""The collectives, written once against `TensorAdapter`; front ends only forward to them.

Every function takes the adapter first; the rest are Horovod's arguments. With ``grouped=True`` the
tensor is a list of tensors, of any dtypes, and so is the result. ``..._async`` functions return a
`Handle`; a front end's synchronous function is its ``wait()``. Errors that only the other ranks'
word shows (other shapes, say) are raised by the wait, on all ranks alike.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

from syrtos import _session
from syrtos._handle import Handle, poll, synchronize
from syrtos._kinds import Kind, ReduceOp
from syrtos._objects import allgather_object, broadcast_object
from syrtos._requests import Batch, group_of
from syrtos.adapter import TensorAdapter
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = [
    "Handle",
    "allgather_async",
    "allgather_object",
    "allreduce_async",
    "alltoall_async",
    "barrier",
    "broadcast_async",
    "broadcast_object",
    "join",
    "poll",
    "reduce_op",
    "root_number",
    "reducescatter_async",
    "split_numbers",
    "synchronize",
]


_REDUCE_OPS: dict[int, ReduceOp] = {member.value: member for member in ReduceOp}


def reduce_op(average: bool | None, op: ReduceOp | int | None) -> ReduceOp:
    """Apply Horovod's rule for the two ways to say how to reduce.

    Parameters
    ----------
    average : bool, optional
        Deprecated: True for Average, False for Sum.
    op : ReduceOp, optional
        Average if neither is given.

    Raises
    ------
    InvalidRequestError
        Both are given, or `op` is no reduce op; also a ``ValueError``.
    """
    if average is not None:
        if op is not None:
            raise InvalidRequestError(
                f"average={average!r} and op={op!r} say the same thing twice: give op only."
            )
        warnings.warn(
            "the argument average is deprecated: use op=Average or op=Sum",
            DeprecationWarning,
            stacklevel=4,
        )
        return ReduceOp.Average if average else ReduceOp.Sum
    if op is None:
        return ReduceOp.Average
    if isinstance(op, ReduceOp):
        return op
    try:
        return _REDUCE_OPS[op]
    except (KeyError, TypeError):
        names = ", ".join(member.name for member in ReduceOp)
        raise InvalidRequestError(f"op={op!r} is no reduce op; use one of {names}.") from None


def root_number(root_rank: Any) -> int:
    try:
        return operator.index(root_rank)
    except TypeError:
        raise TypeError(f"root_rank={root_rank!r}: give a global rank, a whole number.") from None


def split_numbers(splits: Any) -> tuple[int, ...]:
    """Return the rows for each rank, from a list or any framework's vector."""
    if hasattr(splits, "numpy"):
        splits = splits.numpy()
    values = splits.tolist() if hasattr(splits, "tolist") else splits
    try:
        numbers = tuple(operator.index(value) for value in values)
    except TypeError:
        raise InvalidRequestError(
            f"alltoall: splits={splits!r} must be a vector of whole numbers, one for each rank."
        ) from None
    if not numbers:
        raise InvalidRequestError(
            "alltoall: splits is empty; give one number for each rank, or None for equal shares."
        )
    return numbers


def allreduce_async(
    adapter: TensorAdapter,
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    in_place: bool = False,
    grouped: bool = False,
    compression: Any = Compression.none,
    part_names: Sequence[str] = (),
) -> Handle:
    """Start the reduction of tensors over all ranks; in place on request."""
    chosen = reduce_op(average, op)
    batch = Batch(
        adapter,
        tensor,
        Kind.ALLREDUCE,
        name,
        grouped=grouped,
        in_place=in_place,
        compression=compression,
    )
    return batch.submit(
        names=part_names,
        group=group_of(process_set),
        op=chosen,
        prescale=float(prescale_factor),
        postscale=float(postscale_factor),
    )


def allgather_async(
    adapter: TensorAdapter,
    tensor: Any,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    grouped: bool = False,
) -> Handle:
    """Start the concatenation of all ranks' rows; their numbers may differ."""
    batch = Batch(adapter, tensor, Kind.ALLGATHER, name, grouped=grouped)
    return batch.collect(group=group_of(process_set))


def broadcast_async(
    adapter: TensorAdapter,
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    in_place: bool = False,
    grouped: bool = False,
    part_names: Sequence[str] = (),
) -> Handle:
    """Start sending the root's tensors to all ranks; `root_rank` is a global rank."""
    root = root_number(root_rank)
    batch = Batch(adapter, tensor, Kind.BROADCAST, name, grouped=grouped, in_place=in_place)
    return batch.submit(names=part_names, group=group_of(process_set), root=root)


def alltoall_async(
    adapter: TensorAdapter,
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start sending rows to each rank: ``splits[i]`` to the i-th, or equal shares.

    The handle's result is the output, or (output, received splits) if `splits` is given.
    """
    batch = Batch(adapter, tensor, Kind.ALLTOALL, name)
    group = group_of(process_set)
    if splits is None:
        return batch.collect(group=group)
    return batch.collect(group=group, splits=split_numbers(splits), with_splits=True)


def reducescatter_async(
    adapter: TensorAdapter,
    tensor: Any,
    name: str | None = None,
    op: ReduceOp | int | None = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    grouped: bool = False,
    compression: Any = Compression.none,
) -> Handle:
    """Start a reduction of which each rank keeps its share of the rows."""
    chosen = reduce_op(None, op)
    batch = Batch(
        adapter, tensor, Kind.REDUCESCATTER, name, grouped=grouped, compression=compression
    )
    return batch.collect(
        group=group_of(process_set),
        op=chosen,
        prescale=float(prescale_factor),
        postscale=float(postscale_factor),
    )


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once all members have called it."""
    session = _session.current()
    session.wait(session.submit(Kind.BARRIER, group=group_of(process_set)))


def join(*, average_active: bool = False) -> int:
    """Take no part from now on; return the rank that joined last once all have joined.

    Parameters
    ----------
    average_active : bool
        Until then, averages divide by the number of ranks that have not joined; else, as Horovod
        does, by the number of all ranks. The same on every rank.

    Raises
    ------
    MismatchError
        The ranks give different values; no rank has joined then.
    """
    session = _session.current()
    completion = session.submit(Kind.JOIN, average_active=bool(average_active))
    session.wait(completion)
    return completion.value
