"""`DistributedOptimizer` for optimizers of Keras 3 and of ``tf.compat.v1``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow.reducer import GradientReducer
from syrtos.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from syrtos.tensorflow.v1_optimizer import distribute

__all__ = [
    "DistributedGradientTape",
    "DistributedOptimizer",
    "GradientReducer",
    "PartialDistributedGradientTape",
]


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp | int = ReduceOp.Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer reduce its gradients over all ranks before it applies them.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer or tf.compat.v1.train.Optimizer
        See `syrtos.keras.DistributedOptimizer` and `syrtos.tensorflow.v1_optimizer`.
    name : str, optional
        Of an optimizer of ``tf.compat.v1``.
    use_locking : bool
        No effect: kept for Horovod's signature.
    device_dense, device_sparse, compression, sparse_as_dense, backward_passes_per_step, op, \
gradient_predivide_factor, average_aggregated_gradients, num_groups, groups, process_set, \
scale_local_gradients
        See `syrtos.keras.DistributedOptimizer`; ``op=Adasum`` is for ``tf.compat.v1``.

    Returns
    -------
    keras.optimizers.Optimizer or tf.compat.v1.train.Optimizer
        Of Keras 3: the same object. Of ``tf.compat.v1``: a new one around `optimizer`.

    Raises
    ------
    InvalidRequestError
        Arguments that contradict each other; also a ``ValueError``.
    """
    options: dict[str, Any] = {
        "name": name,
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "backward_passes_per_step": backward_passes_per_step,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "average_aggregated_gradients": average_aggregated_gradients,
        "num_groups": num_groups,
        "groups": groups,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return distribute(optimizer, use_locking=use_locking, **options)
    return _distribute_keras(optimizer, **options)


def _distribute_keras(optimizer: Any, op: ReduceOp | int, **options: Any) -> Any:
    if op == ReduceOp.Adasum:
        raise InvalidRequestError(
            "op=Adasum works on what an optimizer has changed, which Keras optimizers do not tell. "
            "Use an optimizer of tf.compat.v1, or another op."
        )
    from syrtos import keras

    return keras.DistributedOptimizer(optimizer, op=op, **options)
