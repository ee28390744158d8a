"""Ranks and sizes as tensors, for graphs that outlive an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from syrtos import _basics
from syrtos.errors import BackendUnavailableError
from syrtos.tensorflow import _xla, adapter, ops

__all__ = ["local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"]


@adapter.as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks of a process set, told whenever a graph runs.

    Parameters
    ----------
    process_set_id : int
        0 for all ranks.
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return tf.identity(ops.group(process_set_id)[0], name=name)


@adapter.as_written
def rank_op(name: str | None = None) -> Any:
    """Return this process's rank, told whenever a graph runs.

    Parameters
    ----------
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return tf.identity(ops.group()[1], name=name)


@adapter.as_written
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 if this rank belongs to a process set, else 0, told whenever a graph runs.

    Parameters
    ----------
    process_set_id : int
        0 for all ranks.
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return tf.cast(ops.group(process_set_id)[1] >= 0, tf.int32, name=name)


def _asked_in_python(function: Any, name: str | None) -> Any:
    if _xla.is_traced():
        what = function.__name__
        raise BackendUnavailableError(
            f"syrtos {what}_op: XLA cannot ask Python while a program runs. Use "
            f"hvd.{what}(), which is told once, while the function is traced."
        )
    # The engine's C table does not know hosts, so the op that runs asks Python of this process.
    value = tf.numpy_function(lambda: np.int32(function()), [], tf.int32, stateful=True)
    return tf.ensure_shape(value, [], name=name)


@adapter.as_written
def local_rank_op(name: str | None = None) -> Any:
    """Return this process's number on its host, told whenever a graph runs.

    Parameters
    ----------
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return _asked_in_python(_basics.local_rank, name)


@adapter.as_written
def local_size_op(name: str | None = None) -> Any:
    """Return the number of processes on this host, told whenever a graph runs.

    Parameters
    ----------
    name : str, optional
        Of the tensor.

    Returns
    -------
    tf.Tensor of int32, shape ()
    """
    return _asked_in_python(_basics.local_size, name)
