"""Reduction of a step's gradients, on any backend of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from syrtos._gradients import check_groups, check_op, split_requests
from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.keras._backend import current
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = ["GradientReducer"]


@dataclass(frozen=True, eq=False)
class GradientReducer:
    """How the gradients of one update become those of all ranks.

    Parameters
    ----------
    op : ReduceOp
        Average or Sum.
    compression : type
        What travels.
    sparse_as_dense : bool
        Make gradients of some rows dense before; else these rows are gathered.
    gradient_predivide_factor : float
        Divide by it before the sum and by the rest of the number of ranks after it; needs Average.
    num_groups : int
        Split the gradients into this many requests; 0 is one request.
    groups : int or list of lists of variables, optional
        The number of requests, or one request for each list and one for all other variables.
    process_set : ProcessSet
        Who takes part; other ranks keep their gradients.
    factor : float
        A further factor for the results.
    devices : tuple of str
        Where TensorFlow puts the operations for dense and for sparse gradients.

    Raises
    ------
    InvalidRequestError
        Arguments that contradict each other.
    """

    op: ReduceOp = ReduceOp.Average
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Any = None
    process_set: ProcessSet = global_process_set
    factor: float = 1.0
    devices: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        object.__setattr__(self, "op", check_op(self.op, self.gradient_predivide_factor))
        num_groups, groups = check_groups(self.num_groups, self.groups, current.key_of)
        object.__setattr__(self, "num_groups", num_groups)
        object.__setattr__(self, "groups", groups)

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientReducer:
        # Immutable, and its process set must stay the registered object.
        return self

    @property
    def takes_part(self) -> bool:
        """Whether this rank reduces anything."""
        return self.process_set.included() is not False

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the gradients of all ranks; None stays in its place.

        Parameters
        ----------
        grads : sequence of tensor or None
            This rank's gradients, None at the same places on every rank.
        variables : sequence of variable
            What they belong to, for names in messages and for groups; empty if unknown.
        """
        results = [
            current.to_tensor(grad) if self.sparse_as_dense and current.is_sparse(grad) else grad
            for grad in grads
        ]
        if not self.takes_part:
            return results
        positions = [i for i, grad in enumerate(results) if grad is not None]
        divide = self.gradient_predivide_factor
        requests = split_requests(
            positions, self.num_groups, self.groups, variables, current.key_of
        )
        for request in filter(None, requests):
            reduced = current.grouped_allreduce(
                [results[i] for i in request],
                op=self.op,
                compression=self.compression,
                prescale_factor=1.0 / divide,
                postscale_factor=self.factor * divide,
                process_set=self.process_set,
                names=[current.name_of(variables[i]) for i in request] if variables else (),
                devices=self.devices,
            )
            for i, value in zip(request, reduced, strict=True):
                results[i] = value
        return results

    def largest(self, tensors: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the elementwise maximum over the ranks, as one request."""
        if not self.takes_part:
            return list(tensors)
        return current.grouped_allreduce(
            tensors,
            op=ReduceOp.Max,
            process_set=self.process_set,
            names=[current.name_of(variable) for variable in variables],
            devices=self.devices,
        )

    def agree(self, finite: Any) -> Any:
        """Return whether a flag is true on all ranks that take part."""
        if not self.takes_part:
            return finite
        flag = keras.ops.cast(finite, "int32")
        everywhere = current.grouped_allreduce(
            [flag], op=ReduceOp.Min, process_set=self.process_set
        )
        return keras.ops.cast(everywhere[0], "bool")
