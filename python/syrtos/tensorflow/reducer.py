"""Reduction of a step's gradients, for tapes and for optimizers of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from syrtos._gradients import check_groups, check_op, split_requests
from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.reductions import grouped_allreduce

__all__ = ["GradientReducer", "LocalSources", "divided"]


@dataclass(frozen=True, eq=False)
class GradientReducer:
    """How the gradients of one training step become those of all ranks.

    Parameters
    ----------
    op : ReduceOp
        Average or Sum; Adasum if `adasum`.
    compression : type
        What travels.
    sparse_as_dense : bool
        Make ``IndexedSlices`` dense before; else their rows are gathered.
    gradient_predivide_factor : float
        Divide by it before the sum and by the rest of the number of ranks after it; needs Average.
    num_groups : int
        Split the gradients into this many requests; 0 is one request.
    groups : int or list of lists of variables, optional
        The number of requests, or one request for each list and one for all other variables.
    process_set : ProcessSet
        Who takes part; other ranks keep their gradients.
    device_dense, device_sparse : str
        As in `allreduce`.
    adasum : bool
        Whether `op` may be Adasum.
    """

    op: ReduceOp = ReduceOp.Average
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Any = None
    process_set: ProcessSet = global_process_set
    device_dense: str = ""
    device_sparse: str = ""
    adasum: bool = False

    def __post_init__(self) -> None:
        chosen = check_op(self.op, self.gradient_predivide_factor, adasum=self.adasum)
        object.__setattr__(self, "op", chosen)
        num_groups, groups = check_groups(self.num_groups, self.groups, adapter.key_of)
        object.__setattr__(self, "num_groups", num_groups)
        object.__setattr__(self, "groups", groups)

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientReducer:
        # Immutable, and its process set must stay the registered object.
        return self

    def reduce(
        self,
        grads: Sequence[Any],
        variables: Sequence[Any] = (),
        name: str | None = None,
    ) -> list[Any]:
        """Return the gradients of all ranks; None stays in its place.

        Parameters
        ----------
        grads : sequence of tensor, tf.IndexedSlices or None
            This rank's gradients, None at the same places on every rank.
        variables : sequence of variable
            What they belong to, for names in messages and for groups; empty if unknown.
        name : str, optional
            How the requests' names begin, whatever the scope; by default they have none.
        """
        results = list(grads)
        if self.sparse_as_dense:
            results = [
                tf.convert_to_tensor(grad) if adapter.is_sparse(grad) else grad for grad in results
            ]
        if self.process_set.included() is False:
            return results
        positions = [i for i, grad in enumerate(results) if grad is not None]
        divide = self.gradient_predivide_factor
        requests = split_requests(
            positions, self.num_groups, self.groups, variables, adapter.key_of
        )
        for number, request in enumerate(requests):
            if not request:
                continue
            reduced = grouped_allreduce(
                [results[i] for i in request],
                device_dense=self.device_dense,
                device_sparse=self.device_sparse,
                compression=self.compression,
                op=self.op,
                prescale_factor=1.0 / divide,
                postscale_factor=divide,
                process_set=self.process_set,
                ignore_name_scope=name is not None,
                name=f"{name}_{number}" if name else None,
                tensor_names=[adapter.name_of(variables[i]) for i in request] if variables else (),
            )
            for i, value in zip(request, reduced, strict=True):
                results[i] = value
        return results


def divided(grad: Any, divisor: float) -> Any:
    """Return a gradient, which may be None or sparse, divided by a number."""
    if grad is None or divisor == 1:
        return grad
    if adapter.is_sparse(grad):
        return tf.IndexedSlices(grad.values / divisor, grad.indices, grad.dense_shape)
    return grad / divisor


class LocalSources:
    """The variables whose gradients stay on their rank.

    Parameters
    ----------
    process_set : ProcessSet
        Who reduces the other gradients.
    scale : bool
        Divide local gradients by the number of ranks in it.
    """

    def __init__(self, process_set: ProcessSet, scale: bool) -> None:
        self._process_set = process_set
        self._scale = scale
        self._sources: dict[int, Any] = {}  # keeps them alive, as the keys are their ids

    def add(self, source: Any) -> None:
        """Leave the gradient of this variable or tensor on its rank."""
        self._sources[adapter.key_of(source)] = source

    def __contains__(self, source: Any) -> bool:
        return adapter.key_of(source) in self._sources

    def reduce(
        self,
        function: Callable[[list[Any], Sequence[Any]], Sequence[Any]],
        grads: Sequence[Any],
        variables: Sequence[Any],
    ) -> list[Any]:
        """Return reduced gradients, and local ones where variables are local.

        Parameters
        ----------
        function : callable
            ``function(grads, variables) -> grads`` reduces; None stays None.
        grads : sequence of tensor, tf.IndexedSlices or None
            This rank's gradients.
        variables : sequence of variable
            What they belong to.
        """
        if not self._sources:
            return list(function(list(grads), variables))
        own = [variable in self for variable in variables]
        shared = [None if alone else grad for grad, alone in zip(grads, own, strict=True)]
        reduced = function(shared, variables)
        ranks = (self._process_set.size() or 1) if self._scale else 1
        return [
            divided(grad, ranks) if alone else result
            for grad, result, alone in zip(grads, reduced, own, strict=True)
        ]
