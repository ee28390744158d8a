"""The methods that make an optimizer object a distributed one.

They are set on the instance, so its class, and with it what Keras saves, stays what it was:

- ``_clip_gradients``: Keras calls it once for each update with the gradients that it is about to
  clip and apply: unscaled, and the mean over the accumulated batches. They are reduced first.
- ``_overwrite_variables_directly_with_gradients``: some variables, such as the scales of float8,
  take their "gradient" as their new value. All ranks take the largest one, which is what Keras does
  with those of several batches.
- ``_backend_apply_gradients`` and ``apply``: to know the place from which Keras clips, and that it
  does at all.
- ``build`` of a ``MultiOptimizer``, which applies nothing itself: its parts become distributed.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence
from typing import Any

import keras

from syrtos.errors import InvalidRequestError
from syrtos.keras._backend import current
from syrtos.keras.reducer import GradientReducer

__all__ = ["Hook", "agree_on_finite", "distribute", "hook_of"]

#: The attribute that marks a distributed optimizer and holds its `Hook`.
_MARK = "_syrtos"
_OVERWRITE = "_overwrite_variables_directly_with_gradients"


class Hook:
    """What a distributed optimizer carries.

    Parameters
    ----------
    reducer : GradientReducer
        How gradients are reduced.
    scale_local : bool
        Divide the gradients of local variables by the number of ranks.
    local_layers : sequence of keras.layers.Layer
        Their variables are local.
    """

    def __init__(
        self, reducer: GradientReducer, scale_local: bool, local_layers: Sequence[Any] = ()
    ) -> None:
        self.reducer = reducer
        self.scale_local = scale_local
        self.local_layers = list(local_layers)
        self._local: dict[int, Any] = {}  # keeps them alive, as the keys are their ids
        #: Whether a callback has made sure that the model's training function was traced with it.
        self.seen = False
        #: What the gradients of the call in progress belong to; empty if unknown.
        self.variables: list[Any] = []
        #: Whether Keras has accumulated the gradients that it wants to clip.
        self.accumulated = False
        #: Whether Keras has come here while it applied gradients.
        self.reached = False

    def add_local(self, variable: Any) -> None:
        """Leave the gradient of this variable as it is on each rank."""
        self._local[current.key_of(variable)] = variable

    def is_local(self, variable: Any) -> bool:
        """Whether the gradient of this variable stays on its rank."""
        key = current.key_of(variable)
        return key in self._local or any(
            key == current.key_of(own) for layer in self.local_layers for own in layer.weights
        )

    def reduce(self, grads: Sequence[Any]) -> list[Any]:
        """Return the gradients of all ranks; those of local variables stay this rank's own."""
        variables = self.variables if len(self.variables) == len(grads) else []
        if not self._local and not self.local_layers:
            return self.reducer.reduce(grads, variables)
        if len(variables) != len(grads):
            raise InvalidRequestError(
                "Local variables need a release of Keras that tells which gradients belong to "
                f"which variables; {keras.__version__} does not. Use Keras 3.6 or newer."
            )
        own = [self.is_local(variable) for variable in variables]
        shared = [None if alone else grad for grad, alone in zip(grads, own, strict=True)]
        reduced = self.reducer.reduce(shared, variables)
        ranks = (self.reducer.process_set.size() or 1) if self.scale_local else 1
        return [
            current.divided(grad, ranks) if alone else result
            for grad, result, alone in zip(grads, reduced, own, strict=True)
        ]


def hook_of(optimizer: Any) -> Hook | None:
    """Return the hook of an optimizer, or of the one inside a ``LossScaleOptimizer``; else None."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    hook = getattr(optimizer, _MARK, None)
    return hook if isinstance(hook, Hook) else None


@current.as_written
def _reduce_then_clip(self: Any, grads: Sequence[Any]) -> Any:
    hook: Hook = getattr(self, _MARK)
    hook.reached = True
    reduced = (
        current.when_updating(self, hook.reduce, list(grads))
        if hook.accumulated
        else hook.reduce(list(grads))
    )
    return type(self)._clip_gradients(self, reduced)


def _largest_so_far(optimizer: Any, gradient: Any, variable: Any) -> Any:
    """Return the largest value of the accumulated batches."""
    kept = optimizer._accumulated_gradients[optimizer._get_variable_index(variable)]
    return keras.ops.maximum(gradient, kept)


@current.as_written
def _take_the_largest(self: Any, grads: Sequence[Any], variables: Sequence[Any]) -> Any:
    hook: Hook = getattr(self, _MARK)
    hook.reached = True
    grads, variables = list(grads), list(variables)
    places = [
        i
        for i, variable in enumerate(variables)
        if getattr(variable, "overwrite_with_gradient", False) and not hook.is_local(variable)
    ]
    if places:
        chosen = [variables[i] for i in places]
        values = [grads[i] for i in places]
        steps = self.gradient_accumulation_steps
        if steps:
            # Keras takes the largest of the batches with the last one; so do the ranks then.
            def reduce() -> list[Any]:
                of_batches = map(_largest_so_far, [self] * len(places), values, chosen)
                return hook.reducer.largest(list(of_batches), chosen)

            done = getattr(self, "_iterations", self.iterations)  # older releases have one only
            last = keras.ops.equal((done + 1) % steps, 0)
            values = keras.ops.cond(last, reduce, lambda: values)
        else:
            values = hook.reducer.largest(values, chosen)
        for i, value in zip(places, values, strict=True):
            grads[i] = value
    left = getattr(type(self), _OVERWRITE)(self, grads, variables)
    hook.variables = list(left[1])
    return left


@current.as_written
def _note_accumulation(self: Any, grads: Any, trainable_variables: Any) -> Any:
    hook: Hook = getattr(self, _MARK)
    hook.accumulated = True
    try:
        return type(self)._backend_apply_gradients(self, grads, trainable_variables)
    finally:
        hook.accumulated = False


@current.as_written
def _apply_checked(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    hook: Hook = getattr(self, _MARK)
    hook.reached = False
    grads = list(grads)
    result = type(self).apply(self, grads, trainable_variables)
    if grads and not hook.reached:
        raise InvalidRequestError(
            f"{type(self).__name__}.apply used its gradients without Keras' own apply(), so they "
            "were not reduced: call super().apply() in it, or reduce them yourself with "
            "syrtos.keras.allreduce and leave DistributedOptimizer out."
        )
    return result


@current.as_written
def _build_parts(self: Any, variables: Any) -> Any:
    result = type(self).build(self, variables)
    _distribute_parts(self)
    return result


def _register_local_var(self: Any, variable: Any) -> None:
    """Leave the gradient of this variable as it is on each rank."""
    getattr(self, _MARK).add_local(variable)


def _copy_with_hook(self: Any, memo: dict[int, Any]) -> Any:
    """Copy as Keras does, by saving and loading, and make the copy distributed too."""
    make, arguments = self.__reduce__()[:2]
    twin = make(*arguments)
    memo[id(self)] = twin
    distribute(twin, copy.copy(hook_of(self)))
    return twin


def _is_multi(optimizer: Any) -> bool:
    kind = getattr(keras.optimizers, "MultiOptimizer", None)
    return kind is not None and isinstance(optimizer, kind)


def _distribute_parts(optimizer: Any) -> None:
    hook: Hook = getattr(optimizer, _MARK)
    for part in optimizer.optimizers:
        if hook_of(part) is None:
            _plant(part, copy.copy(hook))


def _set(optimizer: Any, name: str, value: Any) -> None:
    # Past Keras' own __setattr__, which tracks what is assigned.
    object.__setattr__(optimizer, name, value)


def _plant(optimizer: Any, hook: Hook) -> None:
    """Make one optimizer object a distributed one."""
    methods: dict[str, Callable[..., Any]] = {
        "_clip_gradients": _reduce_then_clip,
        "_backend_apply_gradients": _note_accumulation,
        "apply": _apply_checked,
        _OVERWRITE: _take_the_largest,
    }
    if _is_multi(optimizer):
        methods = {"build": _build_parts}
    _set(optimizer, _MARK, hook)
    for name, function in methods.items():
        if hasattr(type(optimizer), name):  # older releases lack some
            _set(optimizer, name, types.MethodType(function, optimizer))
    _set(optimizer, "register_local_var", types.MethodType(_register_local_var, optimizer))
    if _is_multi(optimizer):
        _distribute_parts(optimizer)


def distribute(optimizer: Any, hook: Hook | None) -> None:
    """Make an optimizer, or the one inside a ``LossScaleOptimizer``, a distributed one.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Not distributed yet.
    hook : Hook
        What it carries from now on.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    assert hook is not None
    _plant(inner, hook)
    for one in {id(o): o for o in (inner, optimizer)}.values():
        if any("__reduce__" in vars(base) for base in type(one).__mro__[:-1]):
            _set(one, "__deepcopy__", types.MethodType(_copy_with_hook, one))


_finite_is_agreed = False


def agree_on_finite() -> None:
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
        return finite if hook is None else hook.reducer.agree(finite)

    wrapper.check_finite = current.as_written(check_finite)
