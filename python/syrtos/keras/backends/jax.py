"""Keras on JAX: calls inside of the programs that Keras compiles, and outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras

from syrtos import _ops
from syrtos._kinds import Kind, ReduceOp
from syrtos.compression import Compression
from syrtos.errors import PeerLostError, SyrtosError
from syrtos.jax import movements, reductions
from syrtos.jax._effects import is_staged
from syrtos.jax.adapter import Squeezed
from syrtos.jax.functions import allgather_object, barrier, broadcast_object, join
from syrtos.jax.primitive import Call, bind
from syrtos.keras.backends._keras_variables import (
    as_written,
    divided,
    is_sparse,
    key_of,
    name_of,
)
from syrtos.process_sets import ProcessSet, global_process_set

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

COMPILES_COLLECTIVES = True


def to_tensor(value: Any) -> Any:
    """Return an array, or a tracer."""
    return keras.ops.convert_to_tensor(value)


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
    """Reduce arrays as one request."""
    squeezed = [Squeezed(tensor, compression) for tensor in tensors]
    call = Call(
        Kind.ALLREDUCE,
        process_set,
        name or "",
        op,
        float(prescale_factor),
        float(postscale_factor),
        part_names=tuple(names),
    )
    results = bind([item.sent for item in squeezed], call)
    return [item.open(result) for item, result in zip(squeezed, results, strict=True)]


def when_updating(
    optimizer: Any, function: Callable[[list[Any]], list[Any]], gradients: list[Any]
) -> list[Any]:
    """Return ``function(gradients)`` for the last of the batches, else the gradients.

    Keras gets here with each batch and selects afterwards. The number of the batch is equal on all
    ranks, and with it the branch.
    """
    steps = optimizer.gradient_accumulation_steps
    if not steps:
        return function(gradients)
    last = (optimizer._iterations.value + 1) % steps == 0
    if not is_staged() and not isinstance(last, jax.core.Tracer):
        return function(gradients) if last else gradients
    result = jax.lax.cond(last, lambda grads: function(grads), lambda grads: grads, gradients)
    return list(result)


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenate the ranks' values."""
    return movements.allgather(to_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value."""
    return movements.broadcast(to_tensor(value), root_rank, name)


def reducescatter(
    value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.Average
) -> Any:
    """Reduce a value and keep this rank's rows."""
    return reductions.reducescatter(to_tensor(value), name, op=op)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give variables the root's values."""
    call = Call(
        Kind.BROADCAST,
        process_set,
        root=_ops.root_number(root_rank),
        part_names=tuple(name_of(variable) for variable in variables),
    )
    values = bind([variable.value for variable in variables], call)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def as_our_error(error: BaseException) -> SyrtosError | None:
    """Return the loss of a rank."""
    if isinstance(error, jax.errors.JaxRuntimeError) and str(error).startswith("ABORTED"):
        return PeerLostError(str(error))
    return None
