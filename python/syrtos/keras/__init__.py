"""Syrtos for Keras 3: ``model.fit`` on all ranks, with Horovod's names.

::

    import syrtos.keras as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(optimizer), loss=..., metrics=...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Keras' backend must be TensorFlow.
"""

from __future__ import annotations

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos._objects import allgather_object, broadcast_object
from syrtos._ops import barrier, join
from syrtos.compression import Compression
from syrtos.keras import _backend as _backend  # first: it refuses backends that do not work
from syrtos.keras import callbacks
from syrtos.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    load_model,
    reducescatter,
)
from syrtos.keras.hooks import attach, local
from syrtos.keras.optimizer import DistributedOptimizer

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "attach",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "callbacks",
    "errors",
    "join",
    "load_model",
    "local",
    "reducescatter",
]
__all__ += _basics.__all__
