"""allgather and broadcast: operations that hand on arrays as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syrtos import _ops
from syrtos._ops import Handle
from syrtos.numpy.adapter import ADAPTER
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allgather_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
]


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenate the rows of all ranks; every rank gets the result.

    Parameters
    ----------
    tensor : array_like, shape (n, ...)
        Any dtype of fixed size. The number of rows may differ between ranks, and be 0.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    numpy.ndarray, shape (sum of n, ...)
        A new array: the rows in the order of the ranks.

    Raises
    ------
    MismatchError
        Ranks disagree about dtype or trailing dimensions.
    InvalidRequestError
        The array has no rows (it is 0-d).

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.allgather(np.array([[1, 2]]))
    array([[1, 2]])
    """
    return _ops.allgather_async(ADAPTER, tensor, name, process_set).wait()


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start an `allgather`; the array must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.allgather_async(np.array([1, 2])))
    array([1, 2])
    """
    return _ops.allgather_async(ADAPTER, tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Concatenate several arrays, of any dtypes, as one request; else as `allgather`.

    Parameters
    ----------
    tensors : list or tuple of array_like
        Equally many on every rank.
    name, process_set
        As for `allgather`.

    Returns
    -------
    list of numpy.ndarray
        New arrays in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.grouped_allgather([np.array([1, 2]), np.array([True])])
    [array([1, 2]), array([ True])]
    """
    results: list[Any] = grouped_allgather_async(tensors, name, process_set).wait()
    return results


def grouped_allgather_async(
    tensors: Sequence[Any],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `grouped_allgather`; one handle for all of them.

    Returns
    -------
    Handle
        Its result is the list.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.grouped_allgather_async([np.array([1, 2])]))
    [array([1, 2])]
    """
    return _ops.allgather_async(ADAPTER, tensors, name, process_set, grouped=True)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the root's array to all ranks.

    Parameters
    ----------
    tensor : array_like
        Any dtype of fixed size; the same shape and dtype on every rank.
    root_rank : int
        Global rank of the sender, also within a process set.
    name : str, optional
        Pairs the calls of different ranks; without it, the order of the calls does.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    numpy.ndarray
        A new array with the root's values.

    Raises
    ------
    MismatchError
        Ranks disagree about shape, dtype or root.
    InvalidRequestError
        The root is no member.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.broadcast(np.array(["a", "bc"]), root_rank=0)
    array(['a', 'bc'], dtype='<U2')
    """
    return _ops.broadcast_async(ADAPTER, tensor, root_rank, name, process_set).wait()


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Overwrite the array with the root's values; arguments as `broadcast`.

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
    >>> x = np.zeros(3)
    >>> st.broadcast_(x, root_rank=0) is x
    True
    """
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `broadcast`; the array must not change until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.synchronize(st.broadcast_async(np.array([1, 2]), 0))
    array([1, 2])
    """
    return _ops.broadcast_async(ADAPTER, tensor, root_rank, name, process_set)


def broadcast_async_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start a `broadcast_`; the array must not be used until it is done.

    Returns
    -------
    Handle
        For `synchronize` and `poll`.

    Examples
    --------
    >>> import numpy as np
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> x = np.zeros(3)
    >>> st.synchronize(st.broadcast_async_(x, 0)) is x
    True
    """
    return _ops.broadcast_async(ADAPTER, tensor, root_rank, name, process_set, in_place=True)
