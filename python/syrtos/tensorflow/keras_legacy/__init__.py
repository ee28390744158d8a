"""Syrtos for Keras 2 (the package tf-keras), with the names of `syrtos.keras`.

With ``TF_USE_LEGACY_KERAS=1`` in the environment, TensorFlow's ``tf.keras`` is Keras 2, and
`syrtos.keras` and `syrtos.tensorflow.keras` are these objects::

    import tensorflow as tf
    import syrtos.tensorflow.keras as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam()), loss=..., metrics=...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from __future__ import annotations

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos._objects import allgather_object, broadcast_object
from syrtos._ops import barrier, join
from syrtos.compression import Compression
from syrtos.tensorflow.keras_legacy import callbacks, elastic
from syrtos.tensorflow.keras_legacy.functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    load_model,
    min_steps,
    reducescatter,
    verbose,
)
from syrtos.tensorflow.keras_legacy.hooks import attach, local
from syrtos.tensorflow.keras_legacy.optimizer import (
    DistributedOptimizer,
    PartialDistributedOptimizer,
)
from syrtos.tensorflow.variables import broadcast_variables

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "attach",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "errors",
    "join",
    "load_model",
    "local",
    "min_steps",
    "reducescatter",
    "verbose",
]
__all__ += _basics.__all__
