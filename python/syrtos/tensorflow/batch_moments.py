"""Mean and variance over the batches of all ranks, for the layers of Keras 3 and of Keras 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.tensorflow.reductions import allreduce

__all__ = ["moments"]


def moments(inputs: Any, axes: Sequence[int], mask: Any = None) -> tuple[Any, Any]:
    """Return mean and variance over some axes and over all ranks.

    Parameters
    ----------
    inputs : tensor of floats, at least one dimension
        This rank's batch. The number of rows may differ between ranks, and be 0 on some.
    axes : sequence of int
        All but those of the channels.
    mask : tensor of bool, optional
        Which elements count, for all channels alike; without the last dimension of `inputs`.

    Returns
    -------
    tuple of tensor
        Of the type of `inputs`, in the shape of the channels.
    """
    axes = list(axes)
    values = tf.cast(inputs, tf.float64)
    elements = tf.size(inputs, tf.int64)
    if mask is not None:
        used = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))
        values = tf.where(used, values, 0.0)
        elements = tf.math.count_nonzero(used)
    sums = tf.reduce_sum(values, axes)
    squares = tf.reduce_sum(values * values, axes)
    count = tf.cast(elements, tf.float64) / tf.cast(tf.size(sums), tf.float64)
    # One tensor, so that one request carries all.
    parts = [tf.reshape(sums, [-1]), tf.reshape(squares, [-1]), [count]]
    total = allreduce(tf.concat(parts, 0), op=ReduceOp.Sum)
    mean, square = tf.split(total[:-1] / total[-1], 2)
    variance = tf.maximum(square - mean * mean, 0.0)
    shape = tf.shape(sums)
    return (
        tf.cast(tf.reshape(mean, shape), inputs.dtype),
        tf.cast(tf.reshape(variance, shape), inputs.dtype),
    )
