"""`DistributedOptimizer`: the user's own optimizer object, which from now on averages gradients.

Keras calls ``_clip_gradients`` once for each update, with the gradients that it is about to clip
and apply: unscaled, and the mean over the accumulated steps. A method of that name, planted on the
instance, reduces them first. So the mean of all ranks is clipped, weight decay and moving averages
follow, and accumulation costs one reduction for each update. The class of the object stays what it
was: a saved model is what plain Keras writes, and loads where Syrtos is not installed.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import keras

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.keras import _backend
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.optimizer import GradientReducer
from syrtos.tensorflow.reductions import allreduce

__all__ = ["DistributedOptimizer", "hook_of"]

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
    """

    def __init__(self, reducer: GradientReducer, scale_local: bool) -> None:
        self.reducer = reducer
        self.scale_local = scale_local
        self.local: set[int] = set()
        #: Whether a callback has made sure that the model's training function was traced with it.
        self.seen = False

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the gradients of all ranks; those of local variables stay this rank's own."""
        if not self.local:
            return self.reducer.reduce(grads, variables)
        if len(variables) != len(grads):
            raise InvalidRequestError(
                "register_local_var needs a gradient for each trainable variable; "
                "some got none. Make those not trainable."
            )
        own = [adapter.key_of(variable) in self.local for variable in variables]
        shared = [None if alone else grad for grad, alone in zip(grads, own, strict=True)]
        reduced = self.reducer.reduce(shared, variables)
        ranks = (self.reducer.process_set.size() or 1) if self.scale_local else 1
        for i, alone in enumerate(own):
            if alone and grads[i] is not None:
                reduced[i] = keras.ops.convert_to_tensor(grads[i]) / ranks
        return reduced

    def agree(self, finite: Any) -> Any:
        """Return whether the gradients of all ranks are finite."""
        flag = keras.ops.cast(finite, "int32")
        everywhere = allreduce(flag, op=ReduceOp.Min, process_set=self.reducer.process_set)
        return keras.ops.cast(everywhere, "bool")


def hook_of(optimizer: Any) -> Hook | None:
    """Return the hook of an optimizer, or of the one inside a ``LossScaleOptimizer``; else None."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    hook = getattr(optimizer, _MARK, None)
    return hook if isinstance(hook, Hook) else None


def _reduce_then_clip(self: Any, grads: Sequence[Any]) -> Any:
    hook: Hook = getattr(self, _MARK)
    grads = list(grads)
    variables = list(getattr(self, "_trainable_variables", ()))
    # Keras has left out variables without gradient; then names and groups cannot be told.
    known = variables if len(variables) == len(grads) else []
    return type(self)._clip_gradients(self, hook.reduce(grads, known))


def _register_local_var(self: Any, variable: Any) -> None:
    """Leave the gradient of this variable as it is on each rank."""
    getattr(self, _MARK).local.add(adapter.key_of(variable))


def _copy_with_hook(self: Any, memo: dict[int, Any]) -> Any:
    """Copy as Keras does, by saving and loading, and make the copy distributed too."""
    make, arguments = self.__reduce__()[:2]
    twin = make(*arguments)
    memo[id(self)] = twin
    _plant(twin, copy.copy(getattr(self, _MARK)))
    return twin


def _plant(optimizer: Any, hook: Hook) -> None:
    """Make this optimizer object a distributed one."""
    methods: dict[str, Callable[..., Any]] = {
        "_clip_gradients": _reduce_then_clip,
        "register_local_var": _register_local_var,
    }
    if any("__reduce__" in vars(base) for base in type(optimizer).__mro__[:-1]):
        methods["__deepcopy__"] = _copy_with_hook
    # Past Keras' own __setattr__, which tracks what is assigned.
    object.__setattr__(optimizer, _MARK, hook)
    for name, function in methods.items():
        object.__setattr__(optimizer, name, types.MethodType(function, optimizer))


_finite_is_agreed = False


def _agree_on_finite() -> None:
    """Let every LossScaleOptimizer over a distributed optimizer skip a step on all ranks or none.

    ``compile`` may put such a wrapper around the user's optimizer later, so the class is patched,
    once; wrappers around other optimizers behave as before.
    """
    global _finite_is_agreed
    if _finite_is_agreed:
        return
    _finite_is_agreed = True
    wrapper = keras.optimizers.LossScaleOptimizer
    original = wrapper.check_finite

    def check_finite(self: Any, grads: Any) -> Any:
        finite = original(self, grads)
        hook = hook_of(self)
        return finite if hook is None else hook.agree(finite)

    wrapper.check_finite = check_finite


def _set_accumulation(optimizer: Any, passes: int) -> None:
    """Let Keras accumulate the gradients of `passes` batches."""
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise InvalidRequestError(f"backward_passes_per_step={passes!r}: give 1 or more.")
    present = optimizer.gradient_accumulation_steps
    if passes == 1 or present == passes:
        return
    if present is not None:
        raise InvalidRequestError(
            f"backward_passes_per_step={passes}, but the optimizer has "
            f"gradient_accumulation_steps={present}: give one of them."
        )
    if optimizer.built:
        raise InvalidRequestError(
            f"backward_passes_per_step={passes} needs an optimizer that is not built yet. Create "
            f"it with gradient_accumulation_steps={passes}."
        )
    optimizer.gradient_accumulation_steps = passes


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
    """Make an optimizer reduce the gradients over all ranks before it clips and applies them.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Any Keras 3 optimizer, built or not, also a ``LossScaleOptimizer``.
    name : str, optional
        No effect: kept for Horovod's signature.
    device_dense, device_sparse : str
        Where TensorFlow puts the operations.
    compression : type
        What travels: ``Compression.none``, ``.fp16`` or ``.bf16``.
    sparse_as_dense : bool
        No effect: gradients of embeddings always become dense, since Keras' clipping needs that.
    gradient_predivide_factor : float
        Divide by it before the sum, and by the rest of the number of ranks after it.
    op : ReduceOp
        Average or Sum.
    backward_passes_per_step : int
        Batches for each update: sets ``gradient_accumulation_steps``.
    average_aggregated_gradients : bool
        Take the mean over these batches; else, as Horovod does, their sum.
    num_groups, groups
        Split the gradients into several requests, see `GradientReducer`.
    process_set : ProcessSet
        The ranks that take part.
    scale_local_gradients : bool
        Divide gradients of variables that ``optimizer.register_local_var`` named by the number of
        ranks, so that they weigh as much as the averaged ones.

    Returns
    -------
    keras.optimizers.Optimizer
        The same object. Saving a model saves the plain optimizer; after loading, call this again on
        ``model.optimizer``.

    Raises
    ------
    InvalidRequestError
        Arguments that contradict each other; also a ``ValueError``.

    Examples
    --------
    >>> import keras
    >>> import syrtos.keras as hvd
    >>> hvd.init()
    >>> adam = keras.optimizers.Adam(0.001 * hvd.size())
    >>> hvd.DistributedOptimizer(adam) is adam
    True
    """
    del name, sparse_as_dense
    _backend.check(_backend.NAME)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"DistributedOptimizer takes a Keras 3 optimizer, not {type(optimizer).__name__}."
        )
    reducer = GradientReducer(
        op=ReduceOp(op),
        compression=compression,
        sparse_as_dense=True,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        device_dense=device_dense,
        device_sparse=device_sparse,
    )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if hook_of(inner) is not None:
        return optimizer
    _set_accumulation(inner, backward_passes_per_step)
    if backward_passes_per_step > 1 and not average_aggregated_gradients:
        # Keras hands over the mean of the batches.
        reducer = replace(reducer, factor=float(backward_passes_per_step))
    _agree_on_finite()
    _plant(inner, Hook(reducer, scale_local_gradients))
    return optimizer
