"""Keras on PyTorch: eager calls, and operators in what ``torch.compile`` makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos._ops import allgather_object, barrier, broadcast_object, join
from syrtos.compression import Compression
from syrtos.errors import SyrtosError
from syrtos.keras.backends._keras_variables import (
    as_written,
    divided,
    is_sparse,
    key_of,
    name_of,
)
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch import gathers, reductions, scatters
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.parameters import broadcast_tensors

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
    """Return a tensor without gradient."""
    return keras.ops.convert_to_tensor(value).detach()


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
    if not tensors:
        return []
    with torch.no_grad():
        if torch.compiler.is_compiling():
            return reductions.grouped_allreduce(
                list(tensors),
                None,
                name,
                compression,
                op,
                prescale_factor,
                postscale_factor,
                process_set,
            )
        results: list[Any] = _ops.allreduce_async(
            ADAPTER,
            [tensor.detach() for tensor in tensors],
            None,
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            grouped=True,
            compression=compression,
            part_names=names,
        ).wait()
        return results


def when_updating(
    optimizer: Any, function: Callable[[list[Any]], list[Any]], gradients: list[Any]
) -> list[Any]:
    """Return ``function(gradients)``: Keras gets here for the last of the batches only."""
    return function(gradients)


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenate the ranks' values."""
    return gathers.allgather(to_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value."""
    return gathers.broadcast(to_tensor(value), root_rank, name)


def reducescatter(
    value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.Average
) -> Any:
    """Reduce a value and keep this rank's rows."""
    return scatters.reducescatter(to_tensor(value), name, op=op)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give variables the root's values, in the memory that they have."""
    pairs = [(name_of(variable), variable.value) for variable in variables]
    broadcast_tensors(pairs, _ops.root_number(root_rank), process_set)


def as_our_error(error: BaseException) -> SyrtosError | None:
    """Return None: collectives raise errors of Syrtos."""
    return None
