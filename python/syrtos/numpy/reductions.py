"""allreduce, alone and grouped, in place and not, synchronous and not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos._ops import Handle
from syrtos.compression import Compression
from syrtos.numpy.adapter import ADAPTER
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
]


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
    """Reduce an array over all ranks; every rank gets the result.

    Parameters
    ----------
    tensor : array_like
        Any shape, the same on every rank; bool, integer, floating (bfloat16 too) or complex.
    average : bool, optional
        Deprecated: use `op`.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    compression : type
        ``Compression.none``, ``.fp16`` or ``.bf16``: the dtype on the wire.
    op : ReduceOp, optional
        Average (the default), Sum, Adasum, Min, Max or Product. Averages of integers are
        truncated toward zero.
    prescale_factor, postscale_factor : float
        Multiply each input and the result.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    numpy.ndarray
        A new array of the same shape and dtype, bit-identical on every rank.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype, op or factors; raised on all of them.
    TypeError
        A dtype that cannot be sent.

    Notes
    -----
    May be called from any thread. Unnamed calls of several threads have no common order between
    ranks: name them.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.allreduce(np.array([1.0, 2.0]), op=st.Sum)
    array([1., 2.])
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensor,
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        compression=compression,
    ).wait()


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce an array over all ranks, in place; arguments as `allreduce`.

    Returns
    -------
    numpy.ndarray
        `tensor` itself.

    Raises
    ------
    InvalidRequestError
        The array is read-only.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> x = np.array([1, 2])
    >>> st.allreduce_(x, op=st.Sum) is x
    True
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensor,
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        in_place=True,
    ).wait()


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `allreduce`; the array must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.allreduce_async(np.array([3, 4]), op=st.Sum))
    array([3, 4])
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensor,
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
    )


def allreduce_async_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `allreduce_`; the array must not be used until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> x = np.array([3, 4])
    >>> st.synchronize(st.allreduce_async_(x, op=st.Max)) is x
    True
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensor,
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        in_place=True,
    )


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
    """Reduce several arrays, of any dtypes, as one request; else as `allreduce`.

    Parameters
    ----------
    tensors : list or tuple of array_like
        Equally many, and of equal shapes, on every rank.
    average, name, compression, op, prescale_factor, postscale_factor, process_set
        As for `allreduce`.

    Returns
    -------
    list of numpy.ndarray
        New arrays in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.grouped_allreduce([np.array([1, 2]), np.array([0.5])])
    [array([1, 2]), array([0.5])]
    """
    results: list[Any] = _ops.allreduce_async(
        ADAPTER,
        tensors,
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        grouped=True,
        compression=compression,
    ).wait()
    return results


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduce several arrays in place as one request; else as `grouped_allreduce`.

    Returns
    -------
    list of numpy.ndarray
        The arrays themselves.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> x, y = np.array([1, 2]), np.array([0.5])
    >>> st.grouped_allreduce_([x, y])[1] is y
    True
    """
    results: list[Any] = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()
    return results


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allreduce`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.grouped_allreduce_async([np.array([1]), np.array([2])]))
    [array([1]), array([2])]
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensors,
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        grouped=True,
    )


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allreduce_`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list of the arrays themselves.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> x = np.array([1])
    >>> st.synchronize(st.grouped_allreduce_async_([x]))[0] is x
    True
    """
    return _ops.allreduce_async(
        ADAPTER,
        tensors,
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        grouped=True,
        in_place=True,
    )
