"""Statistics over the batches of all ranks, for batch normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.jax.adapter import to_array
from syrtos.jax.reductions import allreduce
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = ["sync_batch_stats"]


def _axes(ndim: int, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim - 1)) or (0,)
    return tuple(number % ndim for number in ((axis,) if isinstance(axis, int) else axis))


def _sums(values: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return sums of the values and of their squares, and how many there are."""
    count = math.prod(values.shape[number] for number in axes)
    if count == 0:  # there are no means of nothing
        nothing = values.sum(axes)
        return nothing, nothing, jnp.zeros((), values.dtype)
    mean = values.mean(axes)
    squares = values.var(axes) + mean * mean
    return count * mean, count * squares, jnp.asarray(count, values.dtype)


def sync_batch_stats(
    x: Any,
    axis: int | Sequence[int] | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[Any, Any]:
    """Return mean and variance of the batches of all ranks together, by one allreduce.

    Parameters
    ----------
    x : array
        This rank's batch. Along `axis` the sizes may differ between ranks, and be 0.
    axis : int or sequence of int, optional
        What to average over; by default all but the last, which is that of the channels.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    mean, variance : jax.Array
        Without the dimensions of `axis`, in float32 or wider. The variance divides by the number of
        values. Differentiable: the gradient with respect to `x` counts what the losses of all ranks
        owe to it.

    Raises
    ------
    InvalidRequestError
        `x` is a scalar.

    Notes
    -----
    Sums of squares travel in float32, or in float64 for such an `x`. So subtract a rough mean from
    data whose mean is thousands of times its deviation.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> mean, variance = hvd.sync_batch_stats(jnp.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> mean.tolist(), variance.tolist()
    ([2.0, 5.0], [1.0, 0.0])
    """
    array = to_array(x, "sync_batch_stats")
    if array.ndim == 0:
        raise InvalidRequestError("sync_batch_stats: give a batch, not a scalar.")
    axes = _axes(array.ndim, axis)
    local = _sums(array.astype(jnp.promote_types(array.dtype, jnp.float32)), axes)
    total, squares, count = allreduce(local, op=ReduceOp.Sum, process_set=process_set)
    mean = total / count
    return mean, jnp.maximum(squares / count - mean * mean, 0.0)
