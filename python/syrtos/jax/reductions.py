"""allreduce and reducescatter, of arrays and of trees of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syrtos import _ops
from syrtos._kinds import Kind, ReduceOp
from syrtos._requests import group_of
from syrtos.compression import Compression
from syrtos.jax.adapter import Squeezed, Tree
from syrtos.jax.gradients import run
from syrtos.jax.primitive import Call
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = ["allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]


def part_names(tree: Tree, name: str | None) -> tuple[str, ...]:
    """Return what messages call the arrays of a tree; nothing for an array alone."""
    if tree.paths in ([""], []):
        return ()
    return tuple((name or "") + path for path in tree.paths)


def check_list(tensors: Any, verb: str) -> None:
    """Raise TypeError unless this is a list or tuple."""
    if not isinstance(tensors, list | tuple):
        raise TypeError(
            f"grouped_{verb} takes a list or tuple of tensors, not {type(tensors).__name__}."
        )


def _reduce(
    kind: Kind,
    tree: Any,
    average: bool | None,
    name: str | None,
    compression: Any,
    op: ReduceOp | int | None,
    scales: tuple[float, float],
    process_set: ProcessSet,
) -> Any:
    chosen = _ops.reduce_op(average, op)
    group_of(process_set)
    what = kind.name.lower()
    parts = Tree(tree, f'{what} "{name}"' if name else what)
    squeezed = [Squeezed(array, compression) for array in parts.arrays]
    prescale, postscale = map(float, scales)
    call = Call(
        kind, process_set, name or "", chosen, prescale, postscale,
        part_names=part_names(parts, name),
    )  # fmt: skip
    results = run([item.sent for item in squeezed], call)
    return parts.build([item.open(r) for item, r in zip(squeezed, results, strict=True)])


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce an array, or all arrays of a tree, over all ranks.

    Parameters
    ----------
    tensor : array or pytree of arrays
        Of the same structure, shapes and dtypes on every rank: bool, integer, floating (bfloat16
        too) or complex. The arrays of a tree are one request.
    average : bool, optional
        Deprecated: use `op`.
    name : str, optional
        Outside of programs it pairs the calls of different ranks; without it their order does.
        Inside `jax.jit` the order always does, and ranks whose names differ get an error.
    compression : type
        ``Compression.none``, ``.fp16`` or ``.bf16``: the dtype on the wire.
    op : ReduceOp, optional
        Average (the default), Sum, Min, Max or Product. Averages of integers are truncated toward
        zero.
    prescale_factor, postscale_factor : float
        Multiply each input and the result.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    jax.Array or pytree
        New arrays of the same shapes and dtypes, bit-identical on every rank. Differentiable for
        Average and Sum.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype, op or factors; raised on all of them. In a program it is
        JAX's ``JaxRuntimeError``, with the same text.
    TypeError
        No array.

    Notes
    -----
    A list is a tree: for a vector give ``jnp.array([1.0, 2.0])``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.allreduce({"w": jnp.array([1.0, 2.0])}, op=hvd.Sum)["w"].tolist()
    [1.0, 2.0]
    """
    scales = (prescale_factor, postscale_factor)
    return _reduce(Kind.ALLREDUCE, tensor, average, name, compression, op, scales, process_set)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduce several arrays or trees as one request; else as `allreduce`.

    Parameters
    ----------
    tensors : list or tuple
        Equally many on every rank.
    average, name, compression, op, prescale_factor, postscale_factor, process_set
        As for `allreduce`.

    Returns
    -------
    list

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> [x.tolist() for x in hvd.grouped_allreduce([jnp.array([1, 2]), jnp.array([0.5])])]
    [[1, 2], [0.5]]
    """
    check_list(tensors, "allreduce")
    scales = (prescale_factor, postscale_factor)
    results: list[Any] = _reduce(
        Kind.ALLREDUCE, list(tensors), average, name, compression, op, scales, process_set
    )
    return results


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce an array, or those of a tree, over all ranks; each rank gets its share of the rows.

    Parameters
    ----------
    tensor : array or pytree of arrays, each of shape (n, ...)
        The same on every rank.
    name, compression, op, process_set, prescale_factor, postscale_factor
        As for `allreduce`.

    Returns
    -------
    jax.Array or pytree, shape (n // size or one more, ...)
        New arrays. The first ``n % size`` ranks get one row more. Differentiable for Average and
        Sum.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(jnp.array([[1, 2], [3, 4]]), op=hvd.Sum).tolist()
    [[1, 2], [3, 4]]
    """
    scales = (prescale_factor, postscale_factor)
    return _reduce(Kind.REDUCESCATTER, tensor, None, name, compression, op, scales, process_set)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduce several arrays or trees and deal out the rows of each; else as `reducescatter`.

    Parameters
    ----------
    tensors : list or tuple
        Equally many on every rank.
    name, compression, op, process_set, prescale_factor, postscale_factor
        As for `allreduce`.

    Returns
    -------
    list
    """
    check_list(tensors, "reducescatter")
    scales = (prescale_factor, postscale_factor)
    results: list[Any] = _reduce(
        Kind.REDUCESCATTER, list(tensors), None, name, compression, op, scales, process_set
    )
    return results
