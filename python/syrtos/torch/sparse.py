"""Reduction of sparse tensors: what the ranks have is gathered, so that little is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError, MismatchError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch.adapter import ADAPTER

__all__ = ["sparse_allreduce_async"]


def sparse_allreduce_async(
    tensor: Any,
    name: str | None,
    op: ReduceOp | int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], Any]:
    """Start the reduction of a sparse tensor.

    Parameters
    ----------
    tensor : torch.Tensor, sparse COO
        The same shape and dtype on every rank; the number of entries may differ, and be 0.
    name : str or None
        Pairs the calls of different ranks; without it, the order of the calls does.
    op : ReduceOp
        Average or Sum.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    callable
        Call it without arguments to wait; it returns the result, a coalesced sparse tensor.

    Raises
    ------
    InvalidRequestError
        Another op.
    TypeError
        The tensor is not sparse.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> wait = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "eye", hvd.Sum)
    >>> wait().to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    what = f'sparse_allreduce_async "{name}"' if name else "sparse_allreduce_async"
    chosen = _check(tensor, op, what)
    shape = tensor.shape
    plain = tensor.detach().coalesce()
    # One entry a row, so that rows can be gathered; the shape must agree beyond that.
    indices = plain.indices().t().contiguous()
    rows = [indices, plain.values(), _shape_row(shape, tensor.sparse_dim())]
    handle = _ops.allgather_async(ADAPTER, rows, name, process_set, grouped=True)

    def finish() -> Any:
        indices, values, shapes = handle.wait()
        _check_shapes(shapes, what)
        return _combine(indices, values, shape, chosen, process_set)

    return finish


def _check(tensor: Any, op: ReduceOp | int, what: str) -> ReduceOp:
    """Return the op, if it and the tensor are what can be reduced."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        kind = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(
            f"{what}: give a sparse COO tensor, not {kind}; tensor.to_sparse() makes one."
        )
    chosen = _ops.reduce_op(None, op)
    if chosen not in (ReduceOp.Average, ReduceOp.Sum):
        raise InvalidRequestError(
            f"{what}: op={chosen.name} is not possible for sparse tensors; use Average or Sum."
        )
    return chosen


def _combine(indices: Any, values: Any, shape: Any, op: ReduceOp, process_set: ProcessSet) -> Any:
    """Return the tensor of all ranks' entries, those of one place added up."""
    # Checks would only see what the ranks' own tensors have stood already.
    options = {"check_invariants": False}
    result = torch.sparse_coo_tensor(indices.t(), values, shape, **options).coalesce()
    if op == ReduceOp.Sum:
        return result
    mean = (result.values() / (process_set.size() or 1)).to(values.dtype)
    return torch.sparse_coo_tensor(result.indices(), mean, shape, is_coalesced=True, **options)


def _shape_row(shape: Any, dims: int) -> Any:
    """Return one row that tells a tensor's shape and its number of sparse dimensions."""
    return torch.tensor([[*shape, dims]], dtype=torch.int64, device="cpu")


def _check_shapes(shapes: Any, what: str) -> None:
    rows = shapes.tolist()
    other = next((row for row in rows if row != rows[0]), None)
    if other is not None:
        raise MismatchError(
            f"{what}: ranks disagree about the shape of the sparse tensor: "
            f"{tuple(rows[0][:-1])} with {rows[0][-1]} sparse dimensions on the first, "
            f"{tuple(other[:-1])} with {other[-1]} on another. Make them equal."
        )
