"""Syrtos for TensorFlow 2.16 to 2.21: Horovod's names, eagerly, in ``tf.function`` and in graphs.

::

    import syrtos.tensorflow as hvd

    hvd.init()
    gradient = hvd.allreduce(gradient)  # the mean over all ranks

Importing it loads the op library. Errors of a collective are TensorFlow's own classes with Syrtos'
text: ``FailedPreconditionError`` where ranks disagree, ``AbortedError`` where one was lost or has
shut down, ``DeadlineExceededError`` where a limit has passed, ``InvalidArgumentError`` for what no
rank could do. Inside ``tf.function(jit_compile=True)`` collectives are part of what XLA compiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos._keras_generation import uses_keras_2
from syrtos._ops import join
from syrtos.tensorflow import elastic
from syrtos.tensorflow import gradients as _gradients  # noqa: F401  (registers them)
from syrtos.tensorflow.compression import Compression
from syrtos.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather,
    allgather_object,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    grouped_allgather,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from syrtos.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from syrtos.tensorflow.optimizer import (
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
)
from syrtos.tensorflow.reductions import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)

if TYPE_CHECKING:
    from syrtos.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
    "errors",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
__all__ += _basics.__all__


def __getattr__(name: str) -> Any:
    """Load what needs Keras when it is asked for: it would choose Keras' backend."""
    if name == "SyncBatchNormalization":
        if uses_keras_2():
            from syrtos.tensorflow.keras_legacy import sync_batch_norm as _of_keras_2

            return _of_keras_2.SyncBatchNormalization
        from syrtos.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
