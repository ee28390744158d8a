"""Collectives on values, and loading of models, with Horovod's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.keras._backend import current
from syrtos.keras.optimizer import DistributedOptimizer
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
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
    value : array, tensor, variable or number
        The same type and shape on every rank. Of ``tf.IndexedSlices`` the rows are gathered.
    name : str, optional
        Equal on all ranks; without one, calls are matched by their order.
    average : bool, optional
        Deprecated, use `op`.
    prescale_factor, postscale_factor : float
        Factors before and after the reduction.
    op : ReduceOp, optional
        Average (the default), Sum, Adasum, Min, Max or Product.
    compression : type
        What travels, see `Compression`.

    Returns
    -------
    tensor
        Of Keras' backend. It carries no gradient; `syrtos.tensorflow`, `syrtos.torch` and
        `syrtos.jax` have differentiable ones.

    Raises
    ------
    HorovodInternalError
        As the backend raises it: ranks that disagree, or that are lost.

    Examples
    --------
    >>> import syrtos.keras as hvd
    >>> hvd.init()
    >>> float(hvd.allreduce(3.0, op=hvd.Sum))
    3.0
    """
    sparse = current.is_sparse(value)
    return current.grouped_allreduce(
        [value if sparse else current.to_tensor(value)],
        op=_ops.reduce_op(average, op),
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )[0]


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenate the ranks' values along the first dimension.

    Parameters
    ----------
    value : array or tensor, shape (any, ...)
        The first dimension may differ.
    name : str, optional
        As in `allreduce`.

    Returns
    -------
    tensor
    """
    return current.allgather(value, name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value on every rank.

    Parameters
    ----------
    value : array, tensor or number
        The same type and shape on every rank.
    root_rank : int
        The rank whose value counts.
    name : str, optional
        As in `allreduce`.

    Returns
    -------
    tensor
    """
    return current.broadcast(value, root_rank, name)


def reducescatter(
    value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.Average
) -> Any:
    """Reduce a value over all ranks and leave each its share of the rows.

    Parameters
    ----------
    value : array or tensor, shape (rows, ...)
        The same type and shape on every rank.
    name : str, optional
        As in `allreduce`.
    op : ReduceOp
        Average or Sum.

    Returns
    -------
    tensor
    """
    return current.reducescatter(value, name, op)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give variables the root's values, as one request.

    Parameters
    ----------
    variables : list of variable
        ``[*model.weights, *model.optimizer.variables]``, say: the same shapes and types, in the
        same order, on every rank.
    root_rank : int
        The rank whose values count.
    process_set : ProcessSet
        The ranks that take part.

    Notes
    -----
    For a loop of your own; in ``fit`` use `BroadcastGlobalVariablesCallback`. On JAX, while values
    live outside of the variables, as in a stateless loop, broadcast those.

    Examples
    --------
    >>> import keras
    >>> import syrtos.keras as hvd
    >>> hvd.init()
    >>> hvd.broadcast_variables([keras.Variable(1.0)], root_rank=0)
    """
    current.broadcast_variables(list(variables), root_rank, process_set)


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
        f"broadcast_variables([*model.weights, *model.optimizer.variables], {root_rank})."
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
