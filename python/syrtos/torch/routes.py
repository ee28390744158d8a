"""Which way a differentiable collective goes: at once, or into the graph that is being traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syrtos._requests import group_of
from syrtos.process_sets import ProcessSet
from syrtos.torch import gradients, graph_ops
from syrtos.torch.gradients import Reduction

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "reducescatter"]


def _world(process_set: ProcessSet) -> tuple[int, Any, Any]:
    """Return what a graph must know of a process set."""
    return group_of(process_set), process_set.size(), process_set.rank()


def _how(how: Reduction) -> tuple[Any, ...]:
    scales = float(how.prescale), float(how.postscale)
    return how.op.value, *scales, *_world(how.process_set), how.name


def _same_rows() -> bool:
    """Whether graphs may not contain sizes that only the run tells."""
    return not torch._dynamo.config.capture_dynamic_output_shape_ops


def allreduce(tensors: Sequence[Any], how: Reduction) -> list[Any]:
    """Reduce tensors as one request."""
    if torch.compiler.is_compiling():
        return graph_ops.allreduce(list(tensors), *_how(how))  # type: ignore[no-any-return]
    return gradients.allreduce(tensors, how)


def allgather(tensors: Sequence[Any], process_set: ProcessSet, name: str | None) -> list[Any]:
    """Concatenate the ranks' rows as one request."""
    if torch.compiler.is_compiling():
        return graph_ops.allgather(  # type: ignore[no-any-return]
            list(tensors), _same_rows(), *_world(process_set), name
        )
    return gradients.allgather(tensors, process_set, name)


def broadcast(tensor: Any, root: int, process_set: ProcessSet, name: str | None) -> Any:
    """Return the root's tensor on every rank."""
    if torch.compiler.is_compiling():
        return graph_ops.broadcast(tensor, root, *_world(process_set), name)
    return gradients.broadcast(tensor, root, process_set, name)


def alltoall(
    tensor: Any, splits: Any, process_set: ProcessSet, name: str | None
) -> tuple[Any, Any]:
    """Exchange rows; `splits` is None, a tuple of int, or in a graph also a tensor."""
    if torch.compiler.is_compiling():
        if isinstance(splits, tuple):
            splits = torch.tensor(splits, dtype=torch.int64, device="cpu")
        same_rows = splits is None and _same_rows()
        return graph_ops.alltoall(  # type: ignore[no-any-return]
            tensor, splits, same_rows, *_world(process_set), name
        )
    return gradients.alltoall(tensor, splits, process_set, name)


def reducescatter(tensors: Sequence[Any], how: Reduction) -> list[Any]:
    """Reduce tensors as one request, of which each rank keeps its rows."""
    if torch.compiler.is_compiling():
        return graph_ops.reducescatter(list(tensors), *_how(how))  # type: ignore[no-any-return]
    return gradients.reducescatter(tensors, how)
