"""Collectives on values, and loading of models, with Horovod's names."""

from __future__ import annotations

from typing import Any

import keras

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.keras.optimizer import DistributedOptimizer
from syrtos.tensorflow import functions, reductions

__all__ = [
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "load_model",
    "reducescatter",
]


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
    tensor
    """
    return reductions.allreduce(
        value,
        average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )


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
    tensor
    """
    return functions.allgather(value, name)


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
    tensor
    """
    return functions.broadcast(value, root_rank, name)


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
    tensor
    """
    return reductions.reducescatter(value, op=op, name=name)


def broadcast_global_variables(root_rank: int) -> None:
    """Raise an error: Keras 3 has no collection of all variables.

    Parameters
    ----------
    root_rank : int
        No effect.

    Raises
    ------
    RuntimeError
        Always; the text says what to use.
    """
    raise RuntimeError(
        f"broadcast_global_variables({root_rank}): Keras 3 keeps no list of all variables. Give "
        f"BroadcastGlobalVariablesCallback({root_rank}) to fit(), or call "
        f"syrtos.tensorflow.broadcast_variables(model.weights + model.optimizer.variables, "
        f"{root_rank})."
    )


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a saved model and make its optimizer a distributed one.

    Parameters
    ----------
    filepath : path
        A ``.keras`` file.
    custom_optimizers : list of type, optional
        Further optimizer classes that the file may name.
    custom_objects : dict, optional
        As in ``keras.saving.load_model``.
    compression : type
        See `DistributedOptimizer`.
    legacy_opts : bool
        No effect: kept for Horovod's signature.

    Returns
    -------
    keras.Model
    """
    del legacy_opts
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.saving.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
