"""Gradients summed over several batches before they are sent, in graphs of ``tf.compat.v1``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.reducer import LocalSources, divided

__all__ = ["LocalGradientAggregationHelper"]


def check_passes(passes: Any) -> int:
    """Return ``backward_passes_per_step``.

    Raises
    ------
    InvalidRequestError
        It is no whole number of 1 or more; also a ``ValueError``.
    """
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise InvalidRequestError(f"backward_passes_per_step={passes!r}: give 1 or more.")
    return passes


def dense(grad: Any, sparse_as_dense: bool) -> Any:
    """Return a gradient that can be added to others; None stays None.

    Raises
    ------
    InvalidRequestError
        It is sparse and may not become dense; also a ``ValueError``.
    """
    if not adapter.is_sparse(grad):
        return grad
    if not sparse_as_dense:
        raise InvalidRequestError(
            "IndexedSlices cannot be summed over batches: use sparse_as_dense=True, or "
            "backward_passes_per_step=1."
        )
    return tf.convert_to_tensor(grad)


def _after(things: Sequence[Any]) -> Any:
    """Return an operation that comes after tensors and operations, also inside branches."""
    with tf.control_dependencies([thing for thing in things if thing is not None]):
        return tf.zeros([], tf.int32)


class LocalGradientAggregationHelper:
    """Sums gradients and reduces the sums over the ranks every few batches.

    For graphs of ``tf.compat.v1``. The sums and a counter are local variables of the graph
    (``tf.compat.v1.local_variables_initializer``).

    Parameters
    ----------
    backward_passes_per_step : int
        Batches for each reduction.
    allreduce_func : callable
        ``allreduce_func(grads, variables) -> grads`` reduces over the ranks; None stays None.
    sparse_as_dense : bool
        Whether ``IndexedSlices`` become dense; otherwise they are refused.
    average_aggregated_gradients : bool
        Take the mean over the batches, not the sum.
    rank, optimizer_type : optional
        No effect: kept for Horovod's signature.
    process_set : ProcessSet
        The ranks that take part.
    scale_local_gradients : bool
        Divide the gradients of local variables by the number of ranks.
    name : str
        How the names of the variables begin.

    Attributes
    ----------
    counter : tf.Variable or None
        Batches since the last reduction, once the graph is built.
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], Sequence[Any]], Sequence[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int | None = None,
        optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        del rank, optimizer_type
        self.backward_passes_per_step = check_passes(backward_passes_per_step)
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.name = name
        self.counter: Any = None
        self.locally_aggregated_grads: list[Any] = []
        self._allreduce = allreduce_func
        self._local = LocalSources(process_set, scale_local_gradients)

    def register_local_var(self, var: Any) -> None:
        """Leave the gradient of this variable on its rank."""
        self._local.add(var)

    def _make_variables(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        graph = tf.compat.v1.get_default_graph()
        if self.counter is not None and self.counter.graph is graph:
            raise InvalidRequestError(
                "backward_passes_per_step > 1: compute_gradients was called a second time in this "
                "graph, which would count its batches twice. Make one optimizer for each call."
            )

        def local(initial: Any, name: str) -> Any:
            return tf.compat.v1.Variable(
                initial,
                trainable=False,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
                name=name,
            )

        with tf.compat.v1.name_scope(f"aggregation_variables_{self.name}".rstrip("_")):
            self.counter = local(tf.zeros([], tf.int32), "aggregation_counter")
            self.locally_aggregated_grads = [
                None if grad is None else local(tf.zeros(variable.shape, grad.dtype), str(i))
                for i, (grad, variable) in enumerate(zip(grads, variables, strict=True))
            ]

    def _reduce(self, variables: Sequence[Any]) -> list[Any]:
        sums = [None if s is None else s.read_value() for s in self.locally_aggregated_grads]
        reduced = self._local.reduce(self._allreduce, sums, variables)
        with tf.control_dependencies([grad for grad in reduced if grad is not None]):
            reset = self.counter.assign(0, read_value=False)
        divisor = self.backward_passes_per_step if self.average_aggregated_gradients else 1
        with tf.control_dependencies([reset]):
            return [divided(tf.identity(grad), divisor) for grad in reduced if grad is not None]

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:  # noqa: A002
        """Add gradients to the sums; to be called once for each graph.

        Parameters
        ----------
        grads : sequence of tensor, tf.IndexedSlices or None
            Those of this batch.
        vars : sequence of variable
            What they belong to.

        Returns
        -------
        list
            After every ``backward_passes_per_step`` batches the reduced sums, in between `grads`;
            `apply_gradients` applies the former only.
        """
        grads = [dense(grad, self.sparse_as_dense) for grad in grads]
        self._make_variables(grads, vars)
        present = [i for i, grad in enumerate(grads) if grad is not None]
        is_first = tf.equal(self.counter.read_value(), 0)
        sums = []
        for i in present:
            total = self.locally_aggregated_grads[i]
            # Not a branch that clears it: the sum before the first batch counts for nothing.
            new = tf.where(is_first, grads[i], total.read_value() + grads[i])
            sums.append(total.assign(new, read_value=False))
        with tf.control_dependencies(sums):
            count = self.counter.assign_add(1)
        with tf.control_dependencies([count]):
            results = tf.cond(
                tf.equal(count, self.backward_passes_per_step),
                lambda: tuple(self._reduce(vars)),
                lambda: tuple(tf.identity(grads[i]) for i in present),
            )
        placed: list[Any] = [None] * len(grads)
        for i, result in zip(present, results if present else (), strict=True):
            placed[i] = result
        return placed

    def apply_gradients(
        self,
        apply_grads_closure: Callable[[], Any],
        optimizer: Any,
        grads_and_vars: Sequence[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Apply gradients if they have just been reduced; count a step in any case.

        Parameters
        ----------
        apply_grads_closure : callable
            Applies them, and counts the step.
        optimizer : object
            Its ``iterations``, if it has any, count the batches in between.
        grads_and_vars : sequence of (gradient, variable)
            From `compute_gradients`.
        global_step : tf.Variable, optional
            Counts the batches in between too.
        name : str, optional
            Of the operation.

        Returns
        -------
        tf.Operation
        """

        def count() -> Any:
            counters = [getattr(optimizer, "iterations", None), global_step]
            return _after([c.assign_add(1).op for c in counters if c is not None])

        with tf.control_dependencies([grad for grad, _ in grads_and_vars if grad is not None]):
            is_reduced = tf.equal(self.counter.read_value(), 0)
            done = tf.cond(is_reduced, lambda: _after([apply_grads_closure()]), count)
        return tf.group(done, name=name)
