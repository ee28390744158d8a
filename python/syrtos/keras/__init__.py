"""Syrtos for Keras 3: ``model.fit`` on all ranks, with Horovod's names.

::

    import syrtos.keras as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(optimizer), loss=..., metrics=...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

The rest of a script is the same on the backends tensorflow, torch and jax; Keras' own setting,
``KERAS_BACKEND``, chooses. Importing this module imports no other framework than that.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos._keras_generation import uses_keras_2

if TYPE_CHECKING or not uses_keras_2():
    from syrtos.compression import Compression
    from syrtos.keras import callbacks, elastic, schedules
    from syrtos.keras._backend import current as _current
    from syrtos.keras.fit_arguments import min_steps, verbose
    from syrtos.keras.functions import (
        allgather,
        allreduce,
        broadcast,
        broadcast_global_variables,
        broadcast_variables,
        load_model,
        reducescatter,
    )
    from syrtos.keras.hooks import attach, local
    from syrtos.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
    from syrtos.keras.sharding import shard

    allgather_object = _current.allgather_object
    barrier = _current.barrier
    broadcast_object = _current.broadcast_object
    join = _current.join

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
        "schedules",
        "shard",
        "verbose",
    ]
    __all__ += _basics.__all__
else:
    from syrtos.tensorflow import keras_legacy as _legacy
    from syrtos.tensorflow.keras_legacy import *  # noqa: F403
    from syrtos.tensorflow.keras_legacy import callbacks, elastic

    __all__ = list(_legacy.__all__)
    # `import syrtos.keras.callbacks` gives the same module.
    sys.modules[__name__ + ".callbacks"] = callbacks
    sys.modules[__name__ + ".elastic"] = elastic
