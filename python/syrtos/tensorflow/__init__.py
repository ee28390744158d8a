"""Syrtos for TensorFlow 2.16 to 2.21: Horovod's names, in eager mode and inside ``tf.function``.

::

    import syrtos.tensorflow as hvd

    hvd.init()
    gradient = hvd.allreduce(gradient)  # the mean over all ranks

Importing it loads the op library. Errors of a collective are TensorFlow's own classes with Syrtos'
text: ``FailedPreconditionError`` where ranks disagree, ``AbortedError`` where one was lost or has
shut down, ``DeadlineExceededError`` where a limit has passed, ``InvalidArgumentError`` for what no
rank could do. XLA (``jit_compile=True``) is refused with a text that says so.
"""

from __future__ import annotations

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos._ops import barrier, join
from syrtos.compression import Compression
from syrtos.tensorflow import gradients as _gradients  # noqa: F401  (registers them)
from syrtos.tensorflow.functions import (
    allgather,
    allgather_object,
    alltoall,
    broadcast,
    broadcast_,
    broadcast_object,
    broadcast_variables,
    grouped_allgather,
    process_set_included_op,
    rank_op,
    size_op,
)
from syrtos.tensorflow.optimizer import DistributedGradientTape, DistributedOptimizer
from syrtos.tensorflow.reductions import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)

__all__ = [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_variables",
    "errors",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
__all__ += _basics.__all__
