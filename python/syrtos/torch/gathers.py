"""allgather and broadcast: operations that hand on tensors as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syrtos import _ops
from syrtos._ops import Handle
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch import routes
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.compression import Compression
from syrtos.torch.reductions import squeeze

__all__ = [
    "allgather",
    "allgather_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
]


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenate the rows of all ranks; every rank gets the result. Differentiable.

    Parameters
    ----------
    tensor : torch.Tensor, shape (n, ...)
        Any dtype. The number of rows may differ between ranks, and be 0.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    torch.Tensor, shape (sum of n, ...)
        New: the rows in the order of the ranks. The gradient of `tensor` is the mean, over the
        ranks, of the gradients of its rows.

    Raises
    ------
    MismatchError
        Ranks disagree about dtype or trailing dimensions.
    InvalidRequestError
        The tensor has no rows (it is 0-d).

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.allgather(torch.tensor([[1, 2]]))
    tensor([[1, 2]])
    """
    return routes.allgather([tensor], process_set, name)[0]


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start an `allgather`; the tensor must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`. The result carries no gradient.
    """
    return _ops.allgather_async(ADAPTER, tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Concatenate several tensors, of any dtypes, as one request; else as `allgather`.

    Parameters
    ----------
    tensors : list or tuple of torch.Tensor
        Equally many on every rank.
    name, process_set
        As for `allgather`.

    Returns
    -------
    list of torch.Tensor
        New tensors in the same order. Differentiable.
    """
    return routes.allgather(squeeze(tensors, Compression.none, "allgather")[0], process_set, name)


def grouped_allgather_async(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allgather`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list; it carries no gradient.
    """
    return _ops.allgather_async(ADAPTER, tensors, name, process_set, grouped=True)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the root's tensor to all ranks. Differentiable.

    Parameters
    ----------
    tensor : torch.Tensor
        Any dtype; the same shape and dtype on every rank.
    root_rank : int
        Global rank of the sender, also within a process set.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    torch.Tensor
        New, with the root's values. The gradient is the mean of the ranks' on the root, and zero
        elsewhere.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype or root.
    InvalidRequestError
        The root is no member.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.broadcast(torch.tensor([True, False]), root_rank=0)
    tensor([ True, False])
    """
    return routes.broadcast(tensor, root_rank, process_set, name)


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Overwrite the tensor with the root's values; arguments as `broadcast`.

    Returns
    -------
    torch.Tensor
        `tensor` itself. It need not be contiguous.

    Notes
    -----
    The values change as under ``torch.no_grad()``, so parameters may be given: no gradient flows
    through the collective. A backward pass that needs the overwritten values raises torch's error.
    """
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `broadcast`; the tensor must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`. The result carries no gradient.
    """
    return _ops.broadcast_async(ADAPTER, tensor, root_rank, name, process_set)


def broadcast_async_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `broadcast_`; the tensor must not be used until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`; its result is `tensor` itself.
    """
    return _ops.broadcast_async(ADAPTER, tensor, root_rank, name, process_set, in_place=True)
