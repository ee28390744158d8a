"""Distributed optimizers around those of ``tf.compat.v1``, in graphs and in eager mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, check_passes
from syrtos.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from syrtos.tensorflow.reducer import GradientReducer, LocalSources
from syrtos.tensorflow.reductions import grouped_allreduce

__all__ = ["DistributedAdasumV1Optimizer", "DistributedV1Optimizer", "distribute"]


class _Around(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer that leaves its work to another one.

    Parameters
    ----------
    optimizer : tf.compat.v1.train.Optimizer
        The other one.
    name : str
        Of this one.
    use_locking : bool
        As for ``tf.compat.v1.train.Optimizer``.
    """

    def __init__(self, optimizer: Any, name: str, use_locking: bool) -> None:
        super().__init__(use_locking, name)
        self._optimizer = optimizer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As the other optimizer's."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As the other optimizer's."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """As the other optimizer's."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """As the other optimizer's."""
        return self._optimizer.variables(*args, **kwargs)


class DistributedV1Optimizer(_Around):
    """Reduces gradients over all ranks in ``compute_gradients``.

    Parameters
    ----------
    optimizer, name, use_locking
        As for ``tf.compat.v1.train.Optimizer``.
    reducer : GradientReducer
        How gradients are reduced.
    backward_passes_per_step : int
        Batches for each reduction and update.
    average_aggregated_gradients : bool
        Take the mean over these batches, not the sum.
    scale_local_gradients : bool
        Divide the gradients of local variables by the number of ranks.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        reducer: GradientReducer,
        backward_passes_per_step: int,
        average_aggregated_gradients: bool,
        scale_local_gradients: bool,
    ) -> None:
        super().__init__(optimizer, name, use_locking)
        self._reducer = reducer
        self._local = LocalSources(reducer.process_set, scale_local_gradients)
        self._agg_helper: Any = None
        if check_passes(backward_passes_per_step) == 1:
            return
        common: dict[str, Any] = {
            "backward_passes_per_step": backward_passes_per_step,
            "allreduce_func": self._allreduce_grads,
            "sparse_as_dense": reducer.sparse_as_dense,
            "average_aggregated_gradients": average_aggregated_gradients,
            "process_set": reducer.process_set,
            "scale_local_gradients": scale_local_gradients,
        }
        if tf.compat.v1.executing_eagerly_outside_functions():
            self._agg_helper = LocalGradientAggregationHelperEager(**common)
        else:
            self._agg_helper = LocalGradientAggregationHelper(**common, name=name)

    def _allreduce_grads(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        with tf.name_scope(f"{self.get_name()}_Allreduce"):
            return self._reducer.reduce(grads, variables)

    def register_local_var(self, var: Any) -> None:
        """Leave the gradient of this variable on its rank.

        Parameters
        ----------
        var : tf.Variable
            One of those that `optimizer` trains.
        """
        if self._agg_helper is not None:
            self._agg_helper.register_local_var(var)
        else:
            self._local.add(var)

    @adapter.as_written
    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the other optimizer's, with the gradients of all ranks.

        Returns
        -------
        list of (gradient, variable)
        """
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        grads = [grad for grad, _ in pairs]
        variables = [variable for _, variable in pairs]
        if self._agg_helper is not None:
            grads = self._agg_helper.compute_gradients(grads, variables)
        else:
            grads = self._local.reduce(self._allreduce_grads, grads, variables)
        return list(zip(grads, variables, strict=True))

    @adapter.as_written
    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """As the other optimizer's; between two updates it only counts the step.

        Parameters
        ----------
        grads_and_vars : sequence of (gradient, variable)
            From `compute_gradients`.
        global_step, name
            As for ``tf.compat.v1.train.Optimizer.apply_gradients``.
        """
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        if self._agg_helper is None:
            return apply()
        return self._agg_helper.apply_gradients(
            apply, self._optimizer, pairs, global_step=global_step, name=name
        )


class DistributedAdasumV1Optimizer(_Around):
    """Lets every rank make steps of its own, and combines what they have changed by Adasum.

    Parameters
    ----------
    optimizer, name, use_locking
        As for ``tf.compat.v1.train.Optimizer``.
    compression : type
        What travels.
    backward_passes_per_step : int
        Steps of each rank between two combinations.
    device_dense : str
        As in `allreduce`.
    process_set : ProcessSet
        The ranks that take part.

    Notes
    -----
    In graphs of ``tf.compat.v1``, the counter of steps and the values of the last combination are
    global variables, so that they are saved with the others.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        compression: Any,
        backward_passes_per_step: int,
        device_dense: str,
        process_set: ProcessSet,
    ) -> None:
        super().__init__(optimizer, name, use_locking)
        self._passes = check_passes(backward_passes_per_step)
        self._options = {
            "compression": compression,
            "device_dense": device_dense,
            "process_set": process_set,
        }
        self._step_count: Any = None
        self._starts: dict[int, Any] = {}

    def _make(self, initial: Any, name: str) -> Any:
        with tf.init_scope():
            return tf.compat.v1.Variable(initial, trainable=False, use_resource=True, name=name)

    def _start_of(self, variable: Any) -> Any:
        """Return the variable that holds the value after the last combination."""
        key = adapter.key_of(variable)
        if key not in self._starts:
            dtype = variable.dtype.base_dtype
            name = f"{self.get_name()}/delta_start"
            self._starts[key] = self._make(tf.zeros(variable.shape, dtype), name)
        return self._starts[key]

    def _combine(self, variables: Sequence[Any], starts: Sequence[Any], is_time: Any) -> list[Any]:
        """Return the operations that give variables their combined values, if it is time."""
        values = tuple(variable.read_value() for variable in variables)
        before = [start.read_value() for start in starts]

        def combined() -> tuple[Any, ...]:
            deltas = [value - old for value, old in zip(values, before, strict=True)]
            changes = grouped_allreduce(deltas, op=ReduceOp.Adasum, **self._options)
            return tuple(old + change for old, change in zip(before, changes, strict=True))

        # Assigned outside the branch, in which ref variables could not be changed.
        new = tf.cond(is_time, combined, lambda: tuple(tf.identity(value) for value in values))
        done = []
        for i, (variable, start) in enumerate(zip(variables, starts, strict=True)):
            done.append(variable.assign(new[i], read_value=False))
            kept = tf.where(is_time, new[i], before[i])
            done.append(start.assign(kept, read_value=False))
        return done

    @adapter.as_written
    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """As the other optimizer's; then combine the changes, if it is time.

        Parameters
        ----------
        grads_and_vars : sequence of (gradient, variable)
            This rank's own.
        global_step, name
            As for ``tf.compat.v1.train.Optimizer.apply_gradients``.
        """
        pairs = list(grads_and_vars)
        variables = [variable for grad, variable in pairs if grad is not None]
        if self._step_count is None:
            self._step_count = self._make(tf.zeros([], tf.int64), f"{self.get_name()}/step_count")
        starts = [self._start_of(variable) for variable in variables]
        is_first = tf.equal(self._step_count.read_value(), 0)
        # Not the initial values: a broadcast may have changed the variables since.
        begun = [
            start.assign(
                tf.where(is_first, tf.convert_to_tensor(variable), start.read_value()),
                read_value=False,
            )
            for variable, start in zip(variables, starts, strict=True)
        ]
        with tf.control_dependencies(_graph_only(begun)):
            update = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies(_graph_only([update])):
            count = self._step_count.assign_add(1)
        with tf.control_dependencies(_graph_only([count])):
            done = self._combine(variables, starts, tf.equal(count % self._passes, 0))
        return None if tf.executing_eagerly() else tf.group(*done)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the other optimizer, and its own."""
        own = [] if self._step_count is None else [self._step_count, *self._starts.values()]
        return [*self._optimizer.variables(*args, **kwargs), *own]


def _graph_only(things: Sequence[Any]) -> list[Any]:
    """Return what others can be made to wait for; nothing in eager mode, where all is done."""
    return [] if tf.executing_eagerly() else [thing for thing in things if thing is not None]


def distribute(
    optimizer: Any,
    *,
    name: str | None,
    use_locking: bool,
    backward_passes_per_step: int,
    average_aggregated_gradients: bool,
    scale_local_gradients: bool,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Any:
    """Make the distributed optimizer around one of ``tf.compat.v1``.

    Parameters
    ----------
    optimizer, name, use_locking
        As for ``tf.compat.v1.train.Optimizer``.
    backward_passes_per_step, average_aggregated_gradients, scale_local_gradients
        As for `DistributedV1Optimizer`.
    process_set : ProcessSet
        The ranks that take part.
    **options
        For `GradientReducer`.

    Returns
    -------
    DistributedV1Optimizer or DistributedAdasumV1Optimizer
    """
    kind = type(optimizer).__name__
    if options["op"] != ReduceOp.Adasum:
        return DistributedV1Optimizer(
            optimizer,
            name or f"Distributed{kind}",
            use_locking,
            GradientReducer(process_set=process_set, **options),
            backward_passes_per_step,
            average_aggregated_gradients,
            scale_local_gradients,
        )
    if average_aggregated_gradients or options["gradient_predivide_factor"] != 1.0:
        raise InvalidRequestError(
            "op=Adasum combines what the ranks have changed, so average_aggregated_gradients and "
            "gradient_predivide_factor have no meaning with it: leave them out."
        )
    return DistributedAdasumV1Optimizer(
        optimizer,
        name or f"DistributedDelta{kind}",
        use_locking,
        options["compression"],
        backward_passes_per_step,
        options["device_dense"],
        process_set,
    )
