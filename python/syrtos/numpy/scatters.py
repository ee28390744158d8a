"""reducescatter and alltoall: operations that deal out rows."""

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
    "alltoall",
    "alltoall_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
]


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce an array over all ranks; each rank gets its share of the rows.

    Parameters
    ----------
    tensor : array_like, shape (n, ...)
        The same shape on every rank.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    compression : type
        ``Compression.none``, ``.fp16`` or ``.bf16``.
    op : ReduceOp
        Average, Sum, Min, Max or Product.
    process_set : ProcessSet
        The ranks that take part.
    prescale_factor, postscale_factor : float
        Multiply each input and the result.

    Returns
    -------
    numpy.ndarray, shape (n // size or one more, ...)
        A new array. The first ``n % size`` ranks get one row more.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype, op or factors.
    InvalidRequestError
        The array has no rows to deal out (it is 0-d).

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.reducescatter(np.array([[1, 2], [3, 4]]), op=st.Sum)
    array([[1, 2],
           [3, 4]])
    """
    return _ops.reducescatter_async(
        ADAPTER,
        tensor,
        name,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        compression=compression,
    ).wait()


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start a `reducescatter`; the array must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.reducescatter_async(np.array([5, 6]), op=st.Sum))
    array([5, 6])
    """
    return _ops.reducescatter_async(
        ADAPTER, tensor, name, op, process_set, prescale_factor, postscale_factor
    )


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduce several arrays and deal out the rows of each; else as `reducescatter`.

    Parameters
    ----------
    tensors : list or tuple of array_like
        Equally many, and of equal shapes, on every rank.
    name, compression, op, process_set, prescale_factor, postscale_factor
        As for `reducescatter`.

    Returns
    -------
    list of numpy.ndarray
        New arrays in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.grouped_reducescatter([np.array([5, 6]), np.array([0.5])])
    [array([5, 6]), array([0.5])]
    """
    results: list[Any] = _ops.reducescatter_async(
        ADAPTER,
        tensors,
        name,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        grouped=True,
        compression=compression,
    ).wait()
    return results


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start a `grouped_reducescatter`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.grouped_reducescatter_async([np.array([5, 6])]))
    [array([5, 6])]
    """
    return _ops.reducescatter_async(
        ADAPTER,
        tensors,
        name,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        grouped=True,
    )


def alltoall(
    tensor: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send some rows to each rank and collect what the others send here.

    Parameters
    ----------
    tensor : array_like, shape (n, ...)
        Any dtype of fixed size; trailing dimensions equal on every rank.
    splits : sequence of int, optional
        How many rows go to each member of the set, in order; their sum is n. Equal shares if not
        given; n must then be divisible by the number of members.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    output : numpy.ndarray
        A new array: the rows received, in the order of the ranks.
    received_splits : numpy.ndarray of int64
        How many came from each; only if `splits` is given.

    Raises
    ------
    InvalidRequestError
        `splits` does not fit.
    MismatchError
        Ranks disagree about dtype or trailing dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.alltoall(np.array([7, 8]), splits=[2])
    (array([7, 8]), array([2]))
    """
    return _ops.alltoall_async(ADAPTER, tensor, splits, name, process_set).wait()


def alltoall_async(
    tensor: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start an `alltoall`; the array must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.alltoall_async(np.array([7, 8])))
    array([7, 8])
    """
    return _ops.alltoall_async(ADAPTER, tensor, splits, name, process_set)
