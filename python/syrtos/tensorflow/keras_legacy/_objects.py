"""What the rest of this folder needs to know of Keras 2: its package and its optimizers.

Keras 2 has two kinds of optimizers, ``tf_keras.optimizers`` and ``tf_keras.optimizers.legacy``.
They differ in how their variables are made and listed; everything that differs stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import tf_keras as keras  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError as error:
    raise ImportError(
        "TF_USE_LEGACY_KERAS asks for Keras 2, but the package tf-keras cannot be imported "
        f"({error}). Install the tf-keras of TensorFlow's minor version, or unset the variable to "
        "use Keras 3."
    ) from error

__all__ = [
    "build",
    "has_schedule",
    "inner_of",
    "is_built",
    "is_legacy",
    "is_optimizer",
    "keras",
    "state_of",
    "variables_of",
]


def is_legacy(optimizer: Any) -> bool:
    """Whether this is one of ``tf_keras.optimizers.legacy``."""
    return isinstance(optimizer, keras.optimizers.legacy.Optimizer)


def is_optimizer(thing: Any) -> bool:
    """Whether this is an optimizer of Keras 2, of either kind."""
    return is_legacy(thing) or isinstance(thing, keras.optimizers.Optimizer)


def inner_of(optimizer: Any) -> Any:
    """Return the optimizer inside a ``LossScaleOptimizer``; any other as it is."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def variables_of(optimizer: Any) -> list[Any]:
    """Return the variables that an optimizer has so far, without those of a loss scale."""
    variables = inner_of(optimizer).variables
    return list(variables() if callable(variables) else variables)


def state_of(optimizer: Any) -> list[Any]:
    """Return all that an optimizer remembers: its variables, and those of a dynamic loss scale."""
    scale: Any = getattr(optimizer, "_loss_scale", None)
    own = [scale.current_loss_scale, scale.counter] if hasattr(scale, "counter") else []
    return [*variables_of(optimizer), *own]


def is_built(optimizer: Any) -> bool:
    """Whether the variables that hang on the model's weights exist."""
    inner = inner_of(optimizer)
    return len(variables_of(inner)) > 1 if is_legacy(inner) else bool(getattr(inner, "_built", 0))


def build(optimizer: Any, weights: Sequence[Any]) -> None:
    """Make the variables that an optimizer needs for these weights."""
    inner = inner_of(optimizer)
    if is_legacy(inner):
        inner._create_all_weights(list(weights))
    else:
        inner.build(list(weights))


def has_schedule(optimizer: Any) -> bool:
    """Whether the learning rate comes from a ``LearningRateSchedule``."""
    return isinstance(inner_of(optimizer).get_config().get("learning_rate"), dict)
