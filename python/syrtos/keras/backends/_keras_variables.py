"""What the backends share whose variables Keras itself keeps: all but TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from syrtos._gradients import plain_name

__all__ = ["as_written", "divided", "is_sparse", "key_of", "name_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def as_written(function: _Function) -> _Function:
    """Return the function: nothing would rewrite it."""
    return function


def key_of(variable: Any) -> int:
    """Return what tells a variable from all others that live."""
    return id(variable)


def name_of(variable: Any) -> str:
    """Return what messages call a variable."""
    path = getattr(variable, "path", None)
    return plain_name(path) if isinstance(path, str) else ""


def is_sparse(gradient: Any) -> bool:
    """Return False: Keras makes gradients of rows with TensorFlow only."""
    return False


def divided(gradient: Any, divisor: float) -> Any:
    """Return a gradient divided by a number."""
    return gradient if divisor == 1 else gradient / divisor
