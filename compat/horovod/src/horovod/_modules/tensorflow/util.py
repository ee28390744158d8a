"""Helpers of `horovod.tensorflow`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod.common.util import _cache as _cache


def _executing_eagerly() -> bool:
    """Return whether ops run at once."""
    return bool(tf.executing_eagerly())


def _make_subgraph(f: Callable[..., Any]) -> Any:
    """Return the function as a graph."""
    return tf.function(f)


def vars_to_refs(vars: Any) -> Any:  # noqa: A002
    """Return a hashable reference to a variable of TensorFlow, or a tuple of them for a list."""
    return tuple(vars_to_refs(v) for v in vars) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return what `vars_to_refs` was given."""
    return [refs_to_vars(ref) for ref in refs] if isinstance(refs, tuple) else refs.deref()
