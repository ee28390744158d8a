"""`DistributedOptimizer`: the user's own optimizer, whose gradients are those of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from syrtos import _session
from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch.compression import Compression
from syrtos.torch.optimizer.arguments import (
    Settings,
    check_passes,
    group_parameters,
    name_parameters,
)
from syrtos.torch.optimizer.mixin import Distributed, attach
from syrtos.torch.optimizer.scaler import teach_scalers

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    named_parameters: Iterable[tuple[str, Any]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp | int = ReduceOp.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Make an optimizer step with the gradients of all ranks; they travel during backward.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any, with or without state and schedulers.
    named_parameters : iterable of (str, torch.Tensor), optional
        ``model.named_parameters()``: the names in messages, equal on all ranks. Without it,
        parameters are named by their places.
    compression : type
        What travels: ``Compression.none``, ``.fp16`` or ``.bf16``. Sparse gradients stay as they
        are.
    backward_passes_per_step : int
        Gradients are sent after so many backward passes, which add up on each rank before.
    op : ReduceOp
        Average, Sum or Adasum. With Adasum each rank takes its own step and the changes of the
        weights are combined, so backward passes are not counted.
    gradient_predivide_factor : float
        Divide by it before the sum and by the rest of the number of ranks after it; needs Average.
    num_groups : int
        Horovod's older name for a number as `groups`.
    groups : int or list of lists of torch.Tensor, optional
        Gradients of a group travel as one request, once all are there: so many groups, or the
        members of each. Others travel alone.
    sparse_as_dense : bool
        Make sparse gradients dense before they travel. They stay dense, but for ``SparseAdam``,
        which takes sparse ones only.
    process_set : ProcessSet
        The ranks that take part; others step with their own gradients.

    Returns
    -------
    torch.optim.Optimizer
        The same object; its class is now a subclass of what it was, of the same name, with
        ``synchronize()``, ``skip_synchronize()``, ``no_sync()`` and
        ``set_backward_passes_per_step()``. Its ``state_dict()`` is that of the plain optimizer.
        Copies and unpickled ones are distributed too.

    Raises
    ------
    InvalidRequestError
        Arguments that contradict each other, a parameter without a name, or two with the same;
        also a ``ValueError``.
    TypeError
        `optimizer` is none.
    NotInitializedError
        ``init()`` has not been called.

    Notes
    -----
    A parameter without a gradient on some ranks counts as zeros there; without one on all ranks it
    keeps none. Gradient scalers, closures (whose loss is reduced too), schedulers and
    ``torch.compile`` need no extra calls. Parameters that belonged to another distributed optimizer
    are taken over.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 1)
    >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
    >>> hvd.DistributedOptimizer(sgd, model.named_parameters()) is sgd
    True
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"DistributedOptimizer takes a torch.optim.Optimizer, not {type(optimizer).__name__}."
        )
    if isinstance(optimizer, Distributed):
        raise InvalidRequestError(
            f"DistributedOptimizer: this {type(optimizer).__name__} is distributed already."
        )
    _session.current()
    if num_groups:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=2)
    settings = Settings(
        op=op,  # type: ignore[arg-type]
        compression=compression,
        gradient_predivide_factor=float(gradient_predivide_factor),
        sparse_as_dense=sparse_as_dense,
        keep_sparse=sparse_as_dense and isinstance(optimizer, torch.optim.SparseAdam),
        process_set=process_set,
    )
    named = name_parameters(optimizer.param_groups, named_parameters)
    chosen = group_parameters([parameter for _, parameter in named], groups, num_groups)
    passes = check_passes(backward_passes_per_step)
    attach(optimizer, settings, named, chosen, passes)
    teach_scalers()
    return optimizer
