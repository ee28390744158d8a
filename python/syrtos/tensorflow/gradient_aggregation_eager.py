"""Gradients summed over several batches before they are sent, eagerly and in ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.gradient_aggregation import check_passes, dense
from syrtos.tensorflow.reducer import LocalSources, divided

__all__ = ["LocalGradientAggregationHelperEager"]


class LocalGradientAggregationHelperEager:
    """Sums gradients and reduces the sums over the ranks every few batches.

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
    process_set : ProcessSet
        The ranks that take part.
    scale_local_gradients : bool
        Divide the gradients of local variables by the number of ranks.

    Attributes
    ----------
    counter : tf.Variable
        Batches since the last reduction.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], Sequence[Any]], Sequence[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        self.backward_passes_per_step = check_passes(backward_passes_per_step)
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.counter = tf.Variable(0, trainable=False, name="aggregation_counter")
        self.locally_aggregated_grads: dict[int, Any] = {}
        self._allreduce = allreduce_func
        self._local = LocalSources(process_set, scale_local_gradients)

    def register_local_var(self, var: Any) -> None:
        """Leave the gradient of this variable on its rank."""
        self._local.add(var)

    def _sum_of(self, index: int, grad: Any, variable: Any) -> Any:
        """Return the variable that holds the sum of a gradient; made at the first batch."""
        if index not in self.locally_aggregated_grads:
            with tf.init_scope():
                self.locally_aggregated_grads[index] = tf.Variable(
                    tf.zeros(variable.shape, grad.dtype), trainable=False
                )
        return self.locally_aggregated_grads[index]

    @adapter.as_written
    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:  # noqa: A002
        """Add gradients to the sums.

        Parameters
        ----------
        grads : sequence of tensor, tf.IndexedSlices or None
            Those of this batch; None at the same places in every batch.
        vars : sequence of variable
            What they belong to.

        Returns
        -------
        list
            After every ``backward_passes_per_step`` batches the reduced sums, in between this
            rank's sums so far; `apply_gradients` applies the former only.
        """
        grads = [dense(grad, self.sparse_as_dense) for grad in grads]
        present = [i for i, grad in enumerate(grads) if grad is not None]
        sums = [self._sum_of(i, grads[i], vars[i]) for i in present]
        for total, i in zip(sums, present, strict=True):
            total.assign_add(grads[i])
        count = self.counter.assign_add(1)

        def reduce() -> tuple[Any, ...]:
            own: list[Any] = [None] * len(grads)
            for total, i in zip(sums, present, strict=True):
                own[i] = total.read_value()
            reduced = self._local.reduce(self._allreduce, own, vars)
            for total in sums:
                total.assign(tf.zeros_like(total))
            self.counter.assign(0)
            divisor = self.backward_passes_per_step if self.average_aggregated_gradients else 1
            return tuple(divided(reduced[i], divisor) for i in present)

        is_complete = tf.equal(count, self.backward_passes_per_step)
        results = tf.cond(is_complete, reduce, lambda: tuple(s.read_value() for s in sums))
        placed: list[Any] = [None] * len(grads)
        for i, result in zip(present, results, strict=True):
            placed[i] = result
        return placed

    @adapter.as_written
    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Apply gradients if they have just been reduced, else count a step of the optimizer.

        Parameters
        ----------
        apply_grads_closure : callable
            Applies them.
        optimizer : object
            Its ``iterations``, if it has any, count the batches in between.
        *args, **kwargs
            No effect: kept for Horovod's signature.
        """
        del args, kwargs

        def apply() -> Any:
            apply_grads_closure()
            return tf.constant(0)

        def count() -> Any:
            iterations = getattr(optimizer, "iterations", None)
            if iterations is not None:
                iterations.assign_add(1)
            return tf.constant(0)

        tf.cond(tf.equal(self.counter, 0), apply, count)
