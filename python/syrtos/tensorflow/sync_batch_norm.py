"""Batch normalization over the batches of all ranks, for Keras 3."""

from __future__ import annotations

from typing import Any

import keras

from syrtos import _basics
from syrtos.errors import BackendUnavailableError, InvalidRequestError
from syrtos.tensorflow.batch_moments import moments

__all__ = ["SyncBatchNormalization"]


@keras.saving.register_keras_serializable(package="syrtos")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalization whose statistics are those of the batches of all ranks together.

    Parameters
    ----------
    fused : bool
        Must be False: kept for Horovod's signature.
    **kwargs
        As for ``keras.layers.BatchNormalization``.

    Raises
    ------
    InvalidRequestError
        ``fused`` is not False, or ``synchronized=True``, which is TensorFlow's own way.
    BackendUnavailableError
        Keras works with another backend than TensorFlow, or is too new.

    Notes
    -----
    In training one allreduce brings the sums, sums of squares and counts of all channels together,
    in float64, and the backward pass does another; so all ranks must do them alike. The numbers of
    rows may differ between ranks, and be 0 on some. Weights get the gradients of this rank's
    outputs, to be averaged by `DistributedOptimizer` or `DistributedGradientTape` like others.
    In inference it is a plain batch normalization.

    Examples
    --------
    >>> import numpy
    >>> import syrtos.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.SyncBatchNormalization()(numpy.ones([4, 3]), training=True).shape
    TensorShape([4, 3])
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if keras.backend.backend() != "tensorflow":
            raise BackendUnavailableError(
                "syrtos.tensorflow.SyncBatchNormalization needs Keras with the backend tensorflow, "
                f"but it is {keras.backend.backend()}. Set KERAS_BACKEND=tensorflow before Keras "
                "is imported."
            )
        if not hasattr(keras.layers.BatchNormalization, "_moments"):
            raise BackendUnavailableError(
                "syrtos.tensorflow.SyncBatchNormalization cannot work with Keras "
                f"{keras.__version__}, whose BatchNormalization has no method _moments: install "
                "Keras 3.15, or a newer Syrtos."
            )
        if fused is not False:
            raise InvalidRequestError(
                f"SyncBatchNormalization: fused={fused!r}, but only fused=False is possible."
            )
        if kwargs.get("synchronized"):
            raise InvalidRequestError(
                "SyncBatchNormalization: synchronized=True would reduce the statistics a second "
                "time, among the replicas of a tf.distribute strategy: leave it out."
            )
        super().__init__(**kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return what makes an equal layer."""
        config = super().get_config()
        config.pop("synchronized", None)
        return dict(config)

    # Keras has no public place between the statistics and their use, and this one in all its
    # releases so far; the tests compare the outputs with the plain layer's.
    def _moments(self, inputs: Any, mask: Any) -> Any:
        if _basics.size() == 1:
            return super()._moments(inputs, mask)
        return moments(inputs, self._reduction_axes, mask)
