"""What autograd knows of the collectives.

The rules are Horovod's, so that scripts train as before:

- allreduce: the gradient is reduced by the same op, with the same factors. Min, Max, Product and
  Adasum have none.
- allgather: the mean of the ranks' gradients, of which each rank takes the rows that it sent.
- broadcast: the mean of the ranks' gradients on the root, zero elsewhere.
- alltoall: each row's gradient goes back to the rank that sent the row.
- reducescatter: the shares' gradients are gathered; for Sum, times the number of ranks.

A rule is made of collectives that are differentiable themselves, so second derivatives work. It is
run when the result is part of a backward pass; then it must be so on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syrtos import _ops
from syrtos._kinds import Kind, ReduceOp
from syrtos._requests import Batch, group_of
from syrtos.process_sets import ProcessSet
from syrtos.torch.adapter import ADAPTER

__all__ = [
    "Reduction",
    "allgather",
    "allreduce",
    "alltoall",
    "at_root",
    "broadcast",
    "gathered_shares",
    "grad_name",
    "own_rows",
    "reducescatter",
]


class Reduction:
    """How to reduce: what allreduce and reducescatter have in common.

    Parameters
    ----------
    op : ReduceOp
        Settled already.
    prescale, postscale : float
        Factors before and after.
    process_set : ProcessSet
        The ranks that take part.
    name : str or None
        Of the request.
    """

    __slots__ = ("name", "op", "postscale", "prescale", "process_set")

    def __init__(
        self,
        op: ReduceOp,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        name: str | None,
    ) -> None:
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.process_set = process_set
        self.name = name

    def backward(self, verb: str) -> Reduction:
        """Return how the gradients are reduced.

        Raises
        ------
        RuntimeError
            The op has no gradient.
        """
        if self.op not in (ReduceOp.Average, ReduceOp.Sum):
            what = f'{verb} "{self.name}"' if self.name else verb
            raise RuntimeError(
                f"{what} with op={self.op.name} has no gradient; only Average and Sum have one. "
                "Use tensor.detach() if the result shall be a constant."
            )
        return Reduction(
            self.op, self.prescale, self.postscale, self.process_set, grad_name(self.name)
        )


def grad_name(name: str | None) -> str | None:
    """Return the name of a request for the gradients of one of this name."""
    return f"{name}.grad" if name else None


def _tracked(tensors: Sequence[Any]) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


def allreduce(tensors: Sequence[Any], how: Reduction) -> list[Any]:
    """Reduce tensors as one request; differentiable."""
    if _tracked(tensors):
        return list(_Allreduce.apply(how, *tensors))
    return _allreduce(tensors, how)


def _allreduce(tensors: Sequence[Any], how: Reduction) -> list[Any]:
    results: list[Any] = _ops.allreduce_async(
        ADAPTER,
        list(tensors),
        None,
        how.name,
        how.op,
        how.prescale,
        how.postscale,
        how.process_set,
        grouped=True,
    ).wait()
    return results


class _Allreduce(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(how: Reduction, *tensors: Any) -> tuple[Any, ...]:
        return tuple(_allreduce(tensors, how))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.how = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return None, *allreduce(grads, ctx.how.backward("allreduce"))


def allgather(tensors: Sequence[Any], process_set: ProcessSet, name: str | None) -> list[Any]:
    """Concatenate the ranks' rows as one request; differentiable."""
    if _tracked(tensors):
        return list(_Allgather.apply(process_set, name, *tensors))
    return _allgather(tensors, process_set, name)


def _allgather(tensors: Sequence[Any], process_set: ProcessSet, name: str | None) -> list[Any]:
    results: list[Any] = _ops.allgather_async(
        ADAPTER, list(tensors), name, process_set, grouped=True
    ).wait()
    return results


class _Allgather(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(process_set: ProcessSet, name: str | None, *tensors: Any) -> tuple[Any, ...]:
        return tuple(_allgather(tensors, process_set, name))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.process_set, ctx.name, *tensors = inputs
        ctx.rows = [tensor.shape[0] for tensor in tensors]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return None, None, *own_rows(grads, ctx.rows, ctx.process_set, grad_name(ctx.name))


def own_rows(
    grads: Sequence[Any], rows: Sequence[int], process_set: ProcessSet, name: str | None
) -> list[Any]:
    """Return the mean of the ranks' gradients, of each tensor the rows that this rank sent.

    Parameters
    ----------
    grads : sequence of tensor
        Of the concatenated tensors.
    rows : sequence of int
        How many rows of each came from this rank.
    process_set : ProcessSet
        The ranks that took part.
    name : str or None
        Of the request.
    """
    counts = torch.tensor([list(rows)], dtype=torch.int64, device="cpu")
    # Both under way at once, so that the counts cost no round of their own.
    asked = _ops.allgather_async(ADAPTER, counts, f"{name}.rows" if name else None, process_set)
    means = allreduce(grads, Reduction(ReduceOp.Average, 1.0, 1.0, process_set, name))
    position = process_set.rank()
    starts = asked.wait()[:position].sum(0).tolist()
    pairs = zip(means, starts, rows, strict=True)
    return [mean.narrow(0, start, count) for mean, start, count in pairs]


def broadcast(tensor: Any, root: int, process_set: ProcessSet, name: str | None) -> Any:
    """Return the root's tensor on every rank; differentiable."""
    if _tracked([tensor]):
        return _Broadcast.apply(tensor, root, process_set, name)
    return _ops.broadcast_async(ADAPTER, tensor, root, name, process_set).wait()


class _Broadcast(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(tensor: Any, root: int, process_set: ProcessSet, name: str | None) -> Any:
        return _ops.broadcast_async(ADAPTER, tensor, root, name, process_set).wait()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.root, ctx.process_set, ctx.name = inputs

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        return at_root(grad, ctx.root, ctx.process_set, grad_name(ctx.name)), None, None, None


def at_root(grad: Any, root: int, process_set: ProcessSet, name: str | None) -> Any:
    """Return the mean of the ranks' gradients on the root, zero elsewhere.

    Parameters
    ----------
    grad : tensor
        Of the result.
    root : int
        The global rank that sent the tensor.
    process_set : ProcessSet
        The ranks that took part.
    name : str or None
        Of the request.
    """
    mean = allreduce([grad], Reduction(ReduceOp.Average, 1.0, 1.0, process_set, name))[0]
    me = (process_set.ranks or [])[process_set.rank() or 0]
    return mean if me == root else torch.zeros_like(mean)


def alltoall(
    tensor: Any, splits: tuple[int, ...] | None, process_set: ProcessSet, name: str | None
) -> tuple[Any, Any]:
    """Exchange rows; differentiable.

    Parameters
    ----------
    tensor : tensor
        The rows to send.
    splits : tuple of int or None
        Rows for each rank; None for equal shares.
    process_set : ProcessSet
        The ranks that take part.
    name : str or None
        Of the request.

    Returns
    -------
    output : tensor
        The rows received.
    received : tensor of int64
        Rows from each rank.
    """
    if _tracked([tensor]):
        output, received = _Alltoall.apply(tensor, splits, process_set, name)
        return output, received
    return _alltoall(tensor, splits, process_set, name)


def _alltoall(
    tensor: Any, splits: tuple[int, ...] | None, process_set: ProcessSet, name: str | None
) -> tuple[Any, Any]:
    batch = Batch(ADAPTER, tensor, Kind.ALLTOALL, name)
    pair: tuple[Any, Any] = batch.collect(
        group=group_of(process_set), splits=splits or (), with_splits=True
    ).wait()
    return pair


class _Alltoall(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        tensor: Any, splits: tuple[int, ...] | None, process_set: ProcessSet, name: str | None
    ) -> tuple[Any, Any]:
        return _alltoall(tensor, splits, process_set, name)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, _, ctx.process_set, ctx.name = inputs
        ctx.received = tuple(output[1].tolist())
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> tuple[Any, ...]:
        back, _ = alltoall(grad, ctx.received, ctx.process_set, grad_name(ctx.name))
        return back, None, None, None


def reducescatter(tensors: Sequence[Any], how: Reduction) -> list[Any]:
    """Reduce tensors as one request, of which each rank keeps its rows; differentiable."""
    if _tracked(tensors):
        return list(_Reducescatter.apply(how, *tensors))
    return _reducescatter(tensors, how)


def _reducescatter(tensors: Sequence[Any], how: Reduction) -> list[Any]:
    results: list[Any] = _ops.reducescatter_async(
        ADAPTER,
        list(tensors),
        how.name,
        how.op,
        how.process_set,
        how.prescale,
        how.postscale,
        grouped=True,
    ).wait()
    return results


class _Reducescatter(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(how: Reduction, *tensors: Any) -> tuple[Any, ...]:
        return tuple(_reducescatter(tensors, how))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.how = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return None, *gathered_shares(grads, ctx.how.backward("reducescatter"))


def gathered_shares(grads: Sequence[Any], how: Reduction) -> list[Any]:
    """Return the gradients of the tensors whose shares have the gradients given.

    Parameters
    ----------
    grads : sequence of tensor
        Of this rank's shares.
    how : Reduction
        As `Reduction.backward` returns it.
    """
    factor = how.prescale * how.postscale
    if how.op == ReduceOp.Sum:
        factor *= how.process_set.size() or 1
    gathered = allgather(grads, how.process_set, how.name)
    return [grad * factor for grad in gathered] if factor != 1 else gathered
