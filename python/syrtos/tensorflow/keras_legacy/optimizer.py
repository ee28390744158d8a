"""`DistributedOptimizer` for Keras 2: the user's own optimizer object, which averages gradients.

Keras 2 lets optimizers say how gradients of several replicas become one: it calls
``aggregate_gradients`` in ``apply_gradients``, before it clips, and a ``LossScaleOptimizer`` calls
it before it looks for overflows, so that all replicas skip the same steps. A method of that name,
planted on the instance, reduces over the ranks. The class of the object stays what it was, so a
saved model is what plain Keras writes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, check_passes
from syrtos.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from syrtos.tensorflow.keras_legacy import _objects
from syrtos.tensorflow.keras_legacy._objects import keras
from syrtos.tensorflow.reducer import GradientReducer, LocalSources

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "hook_of"]

#: The attribute that marks a distributed optimizer and holds its `Hook`.
_MARK = "_syrtos"


class Hook:
    """What a distributed optimizer carries.

    Parameters
    ----------
    reducer : GradientReducer
        How gradients are reduced.
    scale_local : bool
        Divide the gradients of local variables by the number of ranks.
    passes : int
        Batches for each reduction.
    average : bool
        Take the mean over these batches, not the sum.
    """

    def __init__(
        self, reducer: GradientReducer, scale_local: bool, passes: int, average: bool
    ) -> None:
        self._reducer = reducer
        self._local = LocalSources(reducer.process_set, scale_local)
        #: Sums the gradients of several batches; None without ``backward_passes_per_step``.
        self.helper: Any = None
        if passes > 1:
            options = (passes, reducer.reduce, reducer.sparse_as_dense, average)
            if tf.compat.v1.executing_eagerly_outside_functions():
                self.helper = LocalGradientAggregationHelperEager(
                    *options, reducer.process_set, scale_local
                )
            else:
                self.helper = LocalGradientAggregationHelper(
                    *options,
                    0,
                    LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS,
                    reducer.process_set,
                    scale_local,
                )
        #: Whether a callback has made sure that the model's training function was traced with it.
        self.seen = False

    @property
    def accumulates(self) -> bool:
        """Whether several batches make one update."""
        return self.helper is not None

    def register_local_var(self, variable: Any) -> None:
        """Leave the gradient of this variable on its rank."""
        if self.helper is None:
            self._local.add(variable)
        else:
            self.helper.register_local_var(variable)

    def sums(self) -> list[Any]:
        """Return the counter and the sums of the batches since the last reduction."""
        if self.helper is None:
            return []
        sums = self.helper.locally_aggregated_grads  # by position in eager mode
        return [self.helper.counter, *(sums.values() if isinstance(sums, dict) else sums)]

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the gradients of all ranks.

        Between two reductions they are zeros: finite on all ranks, whatever the sums are so far, so
        that a ``LossScaleOptimizer`` comes to the same verdict everywhere.
        """
        if self.helper is None:
            return self._local.reduce(self._reducer.reduce, grads, variables)
        sums = self.helper.compute_gradients(grads, variables)
        if not tf.compat.v1.executing_eagerly_outside_functions():
            # Keras initialises the variables that it knows of, which these are not.
            session = tf.compat.v1.keras.backend.get_session()
            session.run([variable.initializer for variable in self.sums() if variable is not None])
        with tf.control_dependencies([total for total in sums if total is not None]):
            complete = tf.equal(self.helper.counter.read_value(), 0)
        return [
            None if total is None else tf.where(complete, total, tf.zeros_like(total))
            for total in sums
        ]

    def apply(self, function: Callable[[], Any], optimizer: Any, pairs: Sequence[Any]) -> Any:
        """Call what applies gradients, if these have just been reduced."""
        return self.helper.apply_gradients(function, optimizer, pairs)


def hook_of(optimizer: Any) -> Hook | None:
    """Return the hook of a distributed optimizer, also of one that scales its loss; else None."""
    hook: Hook | None = getattr(_objects.inner_of(optimizer), _MARK, None)
    return hook


def _aggregator(optimizer: Any) -> str:
    """Return the name of the method in which an optimizer combines gradients."""
    return "_aggregate_gradients" if _objects.is_legacy(optimizer) else "aggregate_gradients"


@adapter.as_written
def _aggregate(self: Any, grads_and_vars: Any) -> list[tuple[Any, Any]]:
    """Combine gradients as Keras does, then over the ranks."""
    pairs = list(getattr(type(self), _aggregator(self))(self, grads_and_vars))
    variables = [variable for _, variable in pairs]
    grads = getattr(self, _MARK).reduce([grad for grad, _ in pairs], variables)
    return list(zip(grads, variables, strict=True))


class _Reduced(list[tuple[Any, Any]]):
    """Pairs of gradient and variable that have been reduced already."""


@adapter.as_written
def _compute_gradients(
    self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
) -> _Reduced:
    """Compute gradients and reduce them, for scripts that call this method of Horovod's."""
    del grad_loss
    pairs = type(self).compute_gradients(self, loss, var_list, tape)
    return _Reduced(getattr(self, _aggregator(self))(pairs))


@adapter.as_written
def _apply(
    self: Any,
    grads_and_vars: Any,
    name: str | None = None,
    experimental_aggregate_gradients: bool = True,
    skip_gradients_aggregation: bool = False,
) -> Any:
    """Apply gradients as Keras does, but only those that have been reduced."""
    aggregate = experimental_aggregate_gradients and not skip_gradients_aggregation
    aggregate = aggregate and not isinstance(grads_and_vars, _Reduced)
    hook: Hook = getattr(self, _MARK)
    apply = type(self).apply_gradients
    if not hook.accumulates:
        return apply(self, grads_and_vars, name=name, experimental_aggregate_gradients=aggregate)
    pairs = list(grads_and_vars)
    if aggregate:
        pairs = getattr(self, _aggregator(self))(pairs)
    done = hook.apply(
        lambda: apply(self, pairs, name=name, experimental_aggregate_gradients=False), self, pairs
    )
    # A legacy LossScaleOptimizer puts this into a branch beside one that returns an operation.
    return tf.no_op() if done is None else done


def _register_local_var(self: Any, variable: Any) -> None:
    """Leave the gradient of this variable as it is on each rank."""
    getattr(self, _MARK).register_local_var(variable)


def _plant(optimizer: Any, hook: Hook) -> None:
    """Make this optimizer object a distributed one."""
    methods: dict[str, Callable[..., Any]] = {
        _aggregator(optimizer): _aggregate,
        "apply_gradients": _apply,
        "register_local_var": _register_local_var,
    }
    if not _objects.is_legacy(optimizer):  # those have it, and `minimize` calls it
        methods["_compute_gradients"] = _compute_gradients
    # Past Keras' own __setattr__, which tracks what is assigned.
    object.__setattr__(optimizer, _MARK, hook)
    object.__setattr__(optimizer, "_agg_helper", hook.helper)
    for name, function in methods.items():
        object.__setattr__(optimizer, name, types.MethodType(function, optimizer))


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = ReduceOp.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer of Keras 2 reduce the gradients over all ranks before it clips them.

    Parameters
    ----------
    optimizer : tf_keras.optimizers.Optimizer or tf_keras.optimizers.legacy.Optimizer
        Built or not, also a ``LossScaleOptimizer`` around one.
    backward_passes_per_step : int
        Batches for each update. ``optimizer.iterations`` counts batches, as in Horovod. Of the
        batches of an update, one gradient that is not finite skips the update.
    average_aggregated_gradients : bool
        Take the mean over these batches, not the sum.
    name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, \
op, num_groups, groups, process_set, scale_local_gradients
        See `syrtos.tensorflow.DistributedOptimizer`; ``op`` is Average or Sum.

    Returns
    -------
    optimizer
        The same object. Saving a model saves the plain optimizer; after loading, call this again on
        ``model.optimizer``.

    Raises
    ------
    InvalidRequestError
        Arguments that contradict each other; also a ``ValueError``.
    TypeError
        This is no optimizer of Keras 2.
    """
    del name
    if not _objects.is_optimizer(optimizer):
        raise TypeError(
            "TF_USE_LEGACY_KERAS is set, so DistributedOptimizer takes an optimizer of tf_keras "
            f"(Keras 2), not {type(optimizer).__module__}.{type(optimizer).__qualname__}."
        )
    passes = check_passes(backward_passes_per_step)
    reducer = GradientReducer(
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
    if hook_of(optimizer) is None:
        hook = Hook(reducer, scale_local_gradients, passes, average_aggregated_gradients)
        _plant(_objects.inner_of(optimizer), hook)
    return optimizer


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = ReduceOp.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer reduce the gradients of all layers but some.

    Parameters
    ----------
    local_layers : layer or sequence of layers, optional
        Built ones, whose gradients stay this rank's own.
    optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, \
gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients, groups, \
process_set, scale_local_gradients
        See `DistributedOptimizer`.

    Returns
    -------
    optimizer
        The same object.

    Raises
    ------
    InvalidRequestError
        ``local_layers`` holds something else, or a layer without weights yet; otherwise as
        `DistributedOptimizer`.
    """
    layers = [local_layers] if isinstance(local_layers, keras.layers.Layer) else local_layers or ()
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise InvalidRequestError(
                f"local_layers: {type(layer).__name__} is no layer of tf_keras (Keras 2)."
            )
        if not layer.built:
            raise InvalidRequestError(
                f'local_layers: "{layer.name}" is not built, so it has no weights yet. Build the '
                "model first."
            )
    distributed = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    hook = hook_of(distributed)
    assert hook is not None
    for layer in layers:
        for variable in layer.trainable_weights:
            hook.register_local_var(variable)
    return distributed
