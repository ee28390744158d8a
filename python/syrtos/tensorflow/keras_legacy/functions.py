"""Collectives on values, and loading of models, for Keras 2, with Horovod's names."""

from __future__ import annotations

import operator
from typing import Any

import tensorflow as tf

from syrtos import _session
from syrtos._kinds import ReduceOp
from syrtos._objects import allgather_object
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.tensorflow import functions, reductions
from syrtos.tensorflow.keras_legacy._objects import keras
from syrtos.tensorflow.keras_legacy.optimizer import DistributedOptimizer

__all__ = [
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "load_model",
    "min_steps",
    "reducescatter",
    "verbose",
]


def _evaluated(result: Any) -> Any:
    """Return a tensor as it is, and in graphs of ``tf.compat.v1`` its value."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        return result
    return tf.compat.v1.keras.backend.get_session().run(result)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduce a value over all ranks.

    Parameters
    ----------
    value : array, tensor or number
        The same type and shape on every rank.
    name, average, prescale_factor, postscale_factor, op, compression
        See `syrtos.tensorflow.allreduce`.

    Returns
    -------
    tensor, or in graphs of ``tf.compat.v1`` array
    """
    result = reductions.allreduce(
        value,
        average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )
    return _evaluated(result)


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenate the ranks' values along the first dimension.

    Parameters
    ----------
    value : array or tensor, shape (any, ...)
        The first dimension may differ.
    name : str, optional
        See `syrtos.tensorflow.allreduce`.

    Returns
    -------
    tensor, or in graphs of ``tf.compat.v1`` array
    """
    return _evaluated(functions.allgather(value, name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value on every rank.

    Parameters
    ----------
    value : array, tensor or number
        The same type and shape on every rank.
    root_rank : int
        The rank whose value counts.
    name : str, optional
        See `syrtos.tensorflow.allreduce`.

    Returns
    -------
    tensor, or in graphs of ``tf.compat.v1`` array
    """
    return _evaluated(functions.broadcast(value, root_rank, name))


def reducescatter(
    value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.Average
) -> Any:
    """Reduce a value over all ranks and leave each its share of the rows.

    Parameters
    ----------
    value : array or tensor, shape (rows, ...)
        The same type and shape on every rank.
    name : str, optional
        See `syrtos.tensorflow.allreduce`.
    op : ReduceOp
        Average or Sum.

    Returns
    -------
    tensor, or in graphs of ``tf.compat.v1`` array
    """
    return _evaluated(reductions.reducescatter(value, op=op, name=name))


def broadcast_global_variables(root_rank: int) -> None:
    """Give all variables of the default graph of ``tf.compat.v1`` the root's values.

    Parameters
    ----------
    root_rank : int
        A global rank.

    Raises
    ------
    RuntimeError
        In eager mode, where there are no global variables; the text says what to use.
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        raise RuntimeError(
            f"broadcast_global_variables({root_rank}): in eager mode there is no list of all "
            f"variables. Give BroadcastGlobalVariablesCallback({root_rank}) to fit(), or call "
            f"syrtos.tensorflow.broadcast_variables(model.variables, {root_rank})."
        )
    tf.compat.v1.keras.backend.get_session().run(functions.broadcast_global_variables(root_rank))


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a saved model of Keras 2 and make its optimizer a distributed one.

    Parameters
    ----------
    filepath : path
        A ``.keras`` or ``.h5`` file, or a folder of a SavedModel.
    custom_optimizers : list of type, optional
        Further optimizer classes that the file may name.
    custom_objects : dict, optional
        As in ``tf_keras.models.load_model``.
    compression : type
        See `DistributedOptimizer`.
    legacy_opts : bool
        No effect: kept for Horovod's signature. The file tells which kind its optimizer is of.

    Returns
    -------
    tf_keras.Model
    """
    del legacy_opts
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model


def min_steps(steps: int) -> int:
    """Return the smallest of the ranks' numbers of steps, for ``steps_per_epoch``.

    With it all ranks make equally many steps; what a rank has beyond that is left for the next
    epoch or left out, as Keras does. Without it, ranks with fewer batches wait for the others.

    Parameters
    ----------
    steps : int
        The batches that this rank has in an epoch. All ranks must call this.

    Returns
    -------
    int

    Raises
    ------
    InvalidRequestError
        A rank has less than one; raised on all ranks.
    """
    of_ranks = allgather_object(operator.index(steps))
    for rank, count in enumerate(of_ranks):
        if count < 1:
            raise InvalidRequestError(
                f"min_steps: rank {rank} has {count} batches in an epoch; every rank needs one."
            )
    return int(min(of_ranks))


def verbose(wanted: Any = "auto") -> Any:
    """Return how much ``fit`` and ``evaluate`` shall print: on rank 0 what is wanted, else nothing.

    Parameters
    ----------
    wanted : str or int
        "auto", 0, 1 or 2, as for ``fit``.

    Returns
    -------
    str or int

    Examples
    --------
    >>> import syrtos.keras as hvd
    >>> hvd.init()
    >>> hvd.verbose(2)
    2
    """
    return wanted if _session.topology().rank == 0 else 0
