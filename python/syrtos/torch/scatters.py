"""reducescatter and alltoall: operations that deal out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos._ops import Handle
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch import routes
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.compression import Compression, decompress
from syrtos.torch.gradients import Reduction
from syrtos.torch.reductions import settle_op, squeeze

__all__ = [
    "alltoall",
    "alltoall_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
]


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce a tensor over all ranks; each rank gets its share of the rows. Differentiable.

    Parameters
    ----------
    tensor : torch.Tensor, shape (n, ...)
        The same shape on every rank.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    compression : type
        ``Compression.none``, ``.fp16`` or ``.bf16``.
    op : ReduceOp
        Average, Sum, Min, Max or Product.
    process_set : ProcessSet
        The ranks that take part.
    prescale_factor, postscale_factor : float
        Multiply each input and the result.

    Returns
    -------
    torch.Tensor, shape (n // size or one more, ...)
        New. The first ``n % size`` ranks get one row more. The gradient of `tensor` is made of the
        gradients of all shares, times the number of ranks for Sum.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype, op or factors.
    InvalidRequestError
        The tensor has no rows (it is 0-d), or the op is Adasum.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    how = Reduction(settle_op(None, op), prescale_factor, postscale_factor, process_set, name)
    (sent,), (context,) = squeeze([tensor], compression, "reducescatter")
    return decompress(compression, routes.reducescatter([sent], how)[0], context)


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start a `reducescatter`; the tensor must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`. The result carries no gradient.
    """
    return _ops.reducescatter_async(
        ADAPTER, tensor, name, op, process_set, prescale_factor, postscale_factor
    )


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduce several tensors and deal out the rows of each; else as `reducescatter`.

    Parameters
    ----------
    tensors : list or tuple of torch.Tensor
        Equally many, and of equal shapes, on every rank.
    name, compression, op, process_set, prescale_factor, postscale_factor
        As for `reducescatter`.

    Returns
    -------
    list of torch.Tensor
        This rank's shares, in the same order. Differentiable.
    """
    how = Reduction(settle_op(None, op), prescale_factor, postscale_factor, process_set, name)
    sent, contexts = squeeze(tensors, compression, "reducescatter")
    results = routes.reducescatter(sent, how)
    return [decompress(compression, *pair) for pair in zip(results, contexts, strict=True)]


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start a `grouped_reducescatter`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list; it carries no gradient.
    """
    return _ops.reducescatter_async(
        ADAPTER, tensors, name, op, process_set, prescale_factor, postscale_factor, grouped=True
    )


def _split_numbers(splits: Any) -> Any:
    """Return the rows for each rank as numbers, but those of a traced graph as they are."""
    if splits is None or (torch.compiler.is_compiling() and isinstance(splits, torch.Tensor)):
        return splits
    if isinstance(splits, torch.Tensor) and splits.dim() != 1:
        raise InvalidRequestError(
            f"alltoall: splits has shape {tuple(splits.shape)}; it must be a vector of whole "
            "numbers, one for each rank."
        )
    return _ops.split_numbers(splits.tolist() if isinstance(splits, torch.Tensor) else splits)


def _as_splits(received: Any, splits: Any) -> Any:
    """Return received splits in the dtype of those that were given."""
    return received.to(splits.dtype) if isinstance(splits, torch.Tensor) else received


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send some rows to each rank and collect what the others send here. Differentiable.

    Parameters
    ----------
    tensor : torch.Tensor, shape (n, ...)
        Any dtype; trailing dimensions equal on every rank.
    splits : torch.Tensor or sequence of int, optional
        How many rows go to each member of the set, in order; their sum is n. Equal shares if not
        given; n must then be divisible by the number of members.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    output : torch.Tensor
        New: the rows received, in the order of the senders.
    received_splits : torch.Tensor
        Rows from each member, in the dtype of `splits` (int64 for a list); only if `splits` was
        given.

    Raises
    ------
    MismatchError
        Ranks disagree about dtype or trailing dimensions.
    InvalidRequestError
        `splits` does not fit the tensor or the number of ranks; also a ``ValueError``.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.alltoall(torch.tensor([7, 8]), splits=[2])
    (tensor([7, 8]), tensor([2]))
    """
    numbers = _split_numbers(splits)
    output, received = routes.alltoall(tensor, numbers, process_set, name)
    return output if splits is None else (output, _as_splits(received, splits))


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `alltoall`; the tensor must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`. The result carries no gradient; received splits are int64.
    """
    return _ops.alltoall_async(ADAPTER, tensor, _split_numbers(splits), name, process_set)
