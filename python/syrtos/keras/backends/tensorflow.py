"""Keras on TensorFlow: the ops of `syrtos.tensorflow`; see `syrtos.keras.backends`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos._ops import allgather_object, barrier, broadcast_object, join
from syrtos.compression import Compression
from syrtos.errors import PeerLostError, SyrtosError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import _library, _xla_library, reductions
from syrtos.tensorflow.adapter import as_written, backing_variable, is_sparse, key_of, name_of
from syrtos.tensorflow.elastic import is_ours
from syrtos.tensorflow.functions import allgather, broadcast, broadcast_
from syrtos.tensorflow.reducer import divided

__all__ = [
    "COMPILES_COLLECTIVES",
    "allgather",
    "allgather_object",
    "as_our_error",
    "as_written",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "divided",
    "grouped_allreduce",
    "is_sparse",
    "join",
    "key_of",
    "name_of",
    "reducescatter",
    "to_tensor",
    "when_updating",
]

COMPILES_COLLECTIVES = _xla_library.minor_of(tf.__version__) <= _library.NEWEST


def to_tensor(value: Any) -> Any:
    """Return a dense tensor."""
    return tf.convert_to_tensor(backing_variable(value))


@as_written
def grouped_allreduce(
    tensors: Sequence[Any],
    *,
    op: ReduceOp = ReduceOp.Average,
    compression: Any = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    name: str | None = None,
    names: Sequence[str] = (),
    devices: tuple[str, str] = ("", ""),
) -> list[Any]:
    """Reduce tensors as one request."""
    return reductions.grouped_allreduce(
        list(tensors),
        device_dense=devices[0],
        device_sparse=devices[1],
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
        name=name,
        tensor_names=names,
    )


def when_updating(
    optimizer: Any, function: Callable[[list[Any]], list[Any]], gradients: list[Any]
) -> list[Any]:
    """Return ``function(gradients)``: Keras gets here for the last of the batches only."""
    return function(gradients)


def reducescatter(
    value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.Average
) -> Any:
    """Reduce a value and keep this rank's rows."""
    return reductions.reducescatter(value, op=op, name=name)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give variables the root's values."""
    broadcast_(list(variables), root_rank, process_set=process_set)


def as_our_error(error: BaseException) -> SyrtosError | None:
    """Return the loss of a rank."""
    if isinstance(error, tf.errors.AbortedError) and is_ours(error):
        return PeerLostError(error.message)
    return None
