"""Batch normalization over the batches of all ranks, for Keras 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos import _basics
from syrtos.errors import InvalidRequestError
from syrtos.tensorflow.batch_moments import moments
from syrtos.tensorflow.keras_legacy._objects import keras

__all__ = ["SyncBatchNormalization"]


@keras.saving.register_keras_serializable(package="syrtos")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalization whose statistics are those of the batches of all ranks together.

    Parameters
    ----------
    fused : bool
        Must be False: kept for Horovod's signature.
    **kwargs
        As for ``tf_keras.layers.BatchNormalization``.

    Raises
    ------
    InvalidRequestError
        ``fused`` is not False, or ``synchronized=True``, which is TensorFlow's own way.

    Notes
    -----
    As the layer for Keras 3, `syrtos.tensorflow.sync_batch_norm`.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not False:
            raise InvalidRequestError(
                f"SyncBatchNormalization: fused={fused!r}, but only fused=False is possible."
            )
        if kwargs.get("synchronized"):
            raise InvalidRequestError(
                "SyncBatchNormalization: synchronized=True would reduce the statistics a second "
                "time, among the replicas of a tf.distribute strategy: leave it out."
            )
        super().__init__(fused=False, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return what makes an equal layer."""
        config = super().get_config()
        config.pop("synchronized", None)
        return dict(config)

    # Keras 2 has no public place between the statistics and their use.
    def _moments(
        self, inputs: Any, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None
    ) -> Any:
        if _basics.size() == 1:
            return super()._moments(inputs, reduction_axes, keep_dims, mask=mask)
        mean, variance = moments(inputs, reduction_axes, mask)
        if keep_dims:
            shape = tf.shape(tf.reduce_sum(inputs, list(reduction_axes), keepdims=True))
            mean, variance = tf.reshape(mean, shape), tf.reshape(variance, shape)
        return mean, variance
