"""Reduction of a step's gradients, for `DistributedGradientTape` and for `syrtos.keras`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.reductions import grouped_allreduce

__all__ = ["DistributedGradientTape", "DistributedOptimizer", "GradientReducer"]


def _check_groups(num_groups: int, groups: Any) -> tuple[tuple[Any, ...], ...]:
    """Return the groups of variables as tuples; empty without any."""
    if not isinstance(num_groups, int) or isinstance(num_groups, bool) or num_groups < 0:
        raise InvalidRequestError(f"num_groups={num_groups!r}: give a whole number, 0 or more.")
    if groups is None:
        return ()
    if not isinstance(groups, list | tuple) or not all(
        isinstance(group, list | tuple) for group in groups
    ):
        raise InvalidRequestError(
            f"groups={groups!r}: give a list of lists of variables, or use num_groups."
        )
    if num_groups:
        raise InvalidRequestError("num_groups and groups are two ways to say the same: give one.")
    keys = [adapter.key_of(variable) for group in groups for variable in group]
    if len(set(keys)) != len(keys):
        raise InvalidRequestError("groups: a variable is listed twice.")
    return tuple(tuple(group) for group in groups)


@dataclass(frozen=True, eq=False)
class GradientReducer:
    """How the gradients of one training step become those of all ranks.

    Parameters
    ----------
    op : ReduceOp
        Average or Sum.
    compression : type
        What travels.
    sparse_as_dense : bool
        Make ``IndexedSlices`` dense before; else their rows are gathered.
    gradient_predivide_factor : float
        Divide by it before the sum and by the rest of the number of ranks after it; needs Average.
    num_groups : int
        Split the gradients into this many requests; 0 is one request.
    groups : list of lists of variables, optional
        One request for each list, and one for all other variables.
    process_set : ProcessSet
        Who takes part.
    factor : float
        A further factor for the results.
    device_dense, device_sparse : str
        As in `allreduce`.
    """

    op: ReduceOp = ReduceOp.Average
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Any = None
    process_set: ProcessSet = global_process_set
    factor: float = 1.0
    device_dense: str = ""
    device_sparse: str = ""

    def __post_init__(self) -> None:
        if self.op not in (ReduceOp.Average, ReduceOp.Sum):
            raise InvalidRequestError(
                f"op={self.op!r}: gradients are reduced with Average or Sum only."
            )
        object.__setattr__(self, "op", ReduceOp(self.op))
        if self.gradient_predivide_factor != 1.0 and self.op != ReduceOp.Average:
            raise InvalidRequestError("gradient_predivide_factor needs op=Average.")
        object.__setattr__(self, "groups", _check_groups(self.num_groups, self.groups))

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientReducer:
        # Immutable, and its process set must stay the registered object.
        return self

    def _requests(self, positions: list[int], variables: Sequence[Any]) -> list[list[int]]:
        """Split the positions of the gradients into requests, alike on all ranks."""
        if self.num_groups:
            count = min(self.num_groups, len(positions))
            base, more = divmod(len(positions), count) if count else (0, 0)
            sizes = [base + (i < more) for i in range(count)]
            starts = [sum(sizes[:i]) for i in range(count)]
            return [
                positions[start : start + size] for start, size in zip(starts, sizes, strict=True)
            ]
        if not self.groups or len(variables) == 0:
            return [positions]
        place = {adapter.key_of(v): i for i, group in enumerate(self.groups) for v in group}
        split: list[list[int]] = [[] for _ in range(len(self.groups) + 1)]
        for position in positions:
            split[place.get(adapter.key_of(variables[position]), -1)].append(position)
        return split

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any] = ()) -> list[Any]:
        """Return the gradients of all ranks; None stays in its place.

        Parameters
        ----------
        grads : sequence of tensor, tf.IndexedSlices or None
            This rank's gradients, None at the same places on every rank.
        variables : sequence of variable
            What they belong to, for names in messages and for groups; empty if unknown.
        """
        results = list(grads)
        if self.sparse_as_dense:
            results = [
                tf.convert_to_tensor(grad) if adapter.is_sparse(grad) else grad for grad in results
            ]
        positions = [i for i, grad in enumerate(results) if grad is not None]
        divide = self.gradient_predivide_factor
        for request in self._requests(positions, variables):
            if not request:
                continue
            reduced = grouped_allreduce(
                [results[i] for i in request],
                device_dense=self.device_dense,
                device_sparse=self.device_sparse,
                compression=self.compression,
                op=self.op,
                prescale_factor=1.0 / divide,
                postscale_factor=self.factor * divide,
                process_set=self.process_set,
                tensor_names=[adapter.name_of(variables[i]) for i in request] if variables else (),
            )
            for i, value in zip(request, reduced, strict=True):
                results[i] = value
        return results


class DistributedGradientTape:
    """A ``tf.GradientTape`` whose gradients are those of all ranks.

    Parameters
    ----------
    gradtape : tf.GradientTape
        The tape that records; all its other methods are there too.
    device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, \
num_groups, groups, process_set
        See `GradientReducer`.
    scale_local_gradients : bool
        Divide the gradients of sources that `register_local_source` named by the number of ranks.

    Examples
    --------
    >>> import tensorflow as tf
    >>> import syrtos.tensorflow as hvd
    >>> hvd.init()
    >>> x = tf.Variable(3.0)
    >>> with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    ...     loss = x * x
    >>> float(tape.gradient(loss, x))
    6.0
    """

    def __init__(
        self,
        gradtape: Any,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: ReduceOp | int = ReduceOp.Average,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        self._tape = gradtape
        self._reducer = GradientReducer(
            op=ReduceOp(op),
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            device_dense=device_dense,
            device_sparse=device_sparse,
        )
        self._scale_local = scale_local_gradients
        self._local: set[Any] = set()

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._tape.__exit__(*exception)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_tape"], name)

    def register_local_source(self, source: Any) -> None:
        """Leave the gradient of this source as it is on each rank.

        Parameters
        ----------
        source : variable or tensor
            One of the sources of later calls of `gradient`.
        """
        self._local.add(adapter.key_of(source))

    @adapter.as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """Return the gradients of all ranks.

        Parameters
        ----------
        target, sources, output_gradients, **options
            As in ``tf.GradientTape.gradient``.
        use_generic_names : bool
            No effect: kept for Horovod's signature.
        """
        del use_generic_names
        grads = self._tape.gradient(target, sources, output_gradients, **options)
        flat = tf.nest.flatten(grads)
        variables = tf.nest.flatten(sources)
        local = [adapter.key_of(v) in self._local for v in variables]
        remote = [None if alone else grad for grad, alone in zip(flat, local, strict=True)]
        reduced = self._reducer.reduce(remote, variables)
        for i, alone in enumerate(local):
            if alone:
                reduced[i] = self._own(flat[i])
        return tf.nest.pack_sequence_as(grads, reduced)

    def _own(self, grad: Any) -> Any:
        if grad is None or not self._scale_local:
            return grad
        ranks = self._reducer.process_set.size() or 1
        if adapter.is_sparse(grad):
            return tf.IndexedSlices(grad.values / ranks, grad.indices, grad.dense_shape)
        return grad / ranks


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
    """Make a Keras 3 optimizer reduce gradients: `syrtos.keras.DistributedOptimizer`.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Optimizers of ``tf.compat.v1`` are not supported.
    use_locking : bool
        No effect: kept for Horovod's signature.
    name, device_dense, device_sparse, compression, sparse_as_dense, backward_passes_per_step, op, \
gradient_predivide_factor, average_aggregated_gradients, num_groups, groups, process_set, \
scale_local_gradients
        See `syrtos.keras.DistributedOptimizer`.

    Returns
    -------
    keras.optimizers.Optimizer
        The same object.
    """
    del use_locking
    from syrtos import keras

    return keras.DistributedOptimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
