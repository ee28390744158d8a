"""allreduce, alone and grouped, in place and not, synchronous and not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos._ops import Handle
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch import routes
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.compression import Compression, compress, decompress
from syrtos.torch.gradients import Reduction

__all__ = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
]


def settle_op(average: bool | None, op: ReduceOp | int | None) -> ReduceOp:
    """Apply Horovod's rule for the two ways to say how to reduce.

    It stands between the public function and the rule, so that the rule's warning names the line of
    the user.
    """
    if average is not None and op is None and torch.compiler.is_compiling():
        return ReduceOp.Average if average else ReduceOp.Sum  # a traced graph cannot warn
    return _ops.reduce_op(average, op)


def squeeze(tensors: Any, compression: Any, verb: str) -> tuple[list[Any], list[Any]]:
    """Compress each tensor; return what is sent, and the contexts to open the results with.

    Raises
    ------
    TypeError
        `tensors` is no list or tuple.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"grouped_{verb} takes a list or tuple of tensors, not {type(tensors).__name__}."
        )
    if compression is Compression.none:
        return list(tensors), [None] * len(tensors)
    pairs = [compress(compression, tensor) for tensor in tensors]
    return [sent for sent, _ in pairs], [context for _, context in pairs]


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce a tensor over all ranks; every rank gets the result. Differentiable.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape, the same on every rank; bool, integer, floating (bfloat16 too) or complex.
    average : bool, optional
        Deprecated: use `op`.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    compression : type
        ``Compression.none``, ``.fp16`` or ``.bf16``: the dtype on the wire.
    op : ReduceOp, optional
        Average (the default), Sum, Min, Max, Product or Adasum. Averages of integers are truncated
        toward zero.
    prescale_factor, postscale_factor : float
        Multiply each input and the result.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    torch.Tensor
        New and contiguous, of the same shape and dtype, bit-identical on every rank. Its gradient
        is reduced by the same op.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype, op or factors; raised on all of them.
    InvalidRequestError
        What this rank can judge alone: a tensor that is not on the CPU. Also a ``ValueError``.
    TypeError
        No dense tensor.

    Notes
    -----
    May be called from any thread; name the calls then, since they have no common order.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.allreduce(torch.tensor([1.0, 2.0]), op=hvd.Sum)
    tensor([1., 2.])
    """
    how = Reduction(settle_op(average, op), prescale_factor, postscale_factor, process_set, name)
    (sent,), (context,) = squeeze([tensor], compression, "allreduce")
    return decompress(compression, routes.allreduce([sent], how)[0], context)


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce a tensor over all ranks, in place; arguments as `allreduce`.

    Returns
    -------
    torch.Tensor
        `tensor` itself. It need not be contiguous.

    Notes
    -----
    The values change as under ``torch.no_grad()``, so parameters may be given: no gradient flows
    through the collective. A backward pass that needs the overwritten values raises torch's error.
    """
    # The op is settled here, so that a warning names the line of the caller.
    chosen = settle_op(average, op)
    return allreduce_async_(
        tensor, None, name, chosen, prescale_factor, postscale_factor, process_set
    ).wait()


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `allreduce`; the tensor must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`. The result carries no gradient.
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensor,
        None,
        name,
        settle_op(average, op),
        prescale_factor,
        postscale_factor,
        process_set,
    )


def allreduce_async_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `allreduce_`; the tensor must not be used until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`; its result is `tensor` itself.
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensor,
        None,
        name,
        settle_op(average, op),
        prescale_factor,
        postscale_factor,
        process_set,
        in_place=True,
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduce several tensors, of any dtypes, as one request; else as `allreduce`.

    Parameters
    ----------
    tensors : list or tuple of torch.Tensor
        Equally many, and of equal shapes, on every rank.
    average, name, compression, op, prescale_factor, postscale_factor, process_set
        As for `allreduce`.

    Returns
    -------
    list of torch.Tensor
        New tensors in the same order. Differentiable.
    """
    how = Reduction(settle_op(average, op), prescale_factor, postscale_factor, process_set, name)
    sent, contexts = squeeze(tensors, compression, "allreduce")
    results = routes.allreduce(sent, how)
    return [decompress(compression, *pair) for pair in zip(results, contexts, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduce several tensors in place as one request; else as `grouped_allreduce`.

    Returns
    -------
    list of torch.Tensor
        The tensors themselves.
    """
    chosen = settle_op(average, op)
    results: list[Any] = grouped_allreduce_async_(
        tensors, None, name, chosen, prescale_factor, postscale_factor, process_set
    ).wait()
    return results


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allreduce`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list; it carries no gradient.
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensors,
        None,
        name,
        settle_op(average, op),
        prescale_factor,
        postscale_factor,
        process_set,
        grouped=True,
    )


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allreduce_`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list of the tensors themselves.
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensors,
        None,
        name,
        settle_op(average, op),
        prescale_factor,
        postscale_factor,
        process_set,
        grouped=True,
        in_place=True,
    )
