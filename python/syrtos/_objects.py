"""Python objects between ranks: cloudpickle, sizes of 64 bits, no copy of the received bytes.

Only use it among processes that trust each other: unpickling runs code, as everywhere.
"""

from __future__ import annotations

import ctypes
import pickle
from array import array
from typing import TYPE_CHECKING, Any

from syrtos import _session
from syrtos._handle import Handle
from syrtos._kinds import Kind
from syrtos._requests import group_of
from syrtos.adapter import dtype_number
from syrtos.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["allgather_object", "broadcast_object"]


def _dumps(value: Any) -> bytes:
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def _bytes_part(size: int, pointer: int, output: int) -> _core.PartTuple:
    return ("data", dtype_number("uint8"), 1, (size,), pointer, output, ())


def _count_part(count: array[int], output: int) -> _core.PartTuple:
    return ("size", dtype_number("int64"), 8, (1,), count.buffer_info()[0], output, ())


def _buffer(completion: _core.Completion, part: int) -> memoryview:
    buffer = completion.buffer(part)
    return memoryview(b"") if buffer is None else memoryview(buffer)


def _sub(name: str | None, what: str) -> str | None:
    return f"{name}.{what}" if name else None


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the root's object to all ranks.

    Parameters
    ----------
    obj : Any
        The object; used on the root only.
    root_rank : int
        Global rank of the sender.
    name : str, optional
        As for any collective: equal on all ranks.
    process_set : ProcessSet
        Who takes part.

    Returns
    -------
    Any
        On the root `obj` itself, elsewhere an equal object.

    Raises
    ------
    MismatchError
        Ranks name different roots.

    Examples
    --------
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.broadcast_object({"epoch": 3}, root_rank=0)
    {'epoch': 3}
    """
    session = _session.current()
    group = group_of(process_set)
    is_root = session.settings.rank == root_rank
    data = _dumps(obj) if is_root else b""
    count = array("q", [len(data)])
    sizing = session.submit(
        Kind.BROADCAST,
        [_count_part(count, count.buffer_info()[0])],
        name=_sub(name, "size"),
        group=group,
        root=root_rank,
    )
    Handle(session, sizing, count, lambda _: None).wait()
    # The input is read on the root only; there the broadcast is in place, elsewhere it allocates.
    address = _address(data) if is_root else 0
    sending = session.submit(
        Kind.BROADCAST,
        [_bytes_part(count[0], address, address)],
        name=_sub(name, "data"),
        group=group,
        root=root_rank,
    )
    received = Handle(session, sending, data, lambda done: done.buffer(0)).wait()
    return obj if is_root else pickle.loads(received)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Collect one object of each rank.

    Parameters
    ----------
    obj : Any
        This rank's object.
    name : str, optional
        As for any collective: equal on all ranks.
    process_set : ProcessSet
        Who takes part.

    Returns
    -------
    list
        The objects in the order of the ranks.

    Examples
    --------
    >>> import syrtos.numpy as st
    >>> st.init()
    >>> st.allgather_object(("rank", st.rank()))
    [('rank', 0)]
    """
    session = _session.current()
    data = _dumps(obj)
    count = array("q", [len(data)])
    parts = [_count_part(count, 0), _bytes_part(len(data), _address(data), 0)]
    completion = session.submit(Kind.ALLGATHER, parts, name=name, group=group_of(process_set))
    return Handle(session, completion, (count, data), _split).wait()  # type: ignore[no-any-return]


def _split(completion: _core.Completion) -> list[Any]:
    """Unpickle each rank's stretch of the gathered bytes."""
    rest = _buffer(completion, 1)
    objects, start = [], 0
    for size in _buffer(completion, 0).cast("q").tolist():
        objects.append(pickle.loads(rest[start : start + size]))
        start += size
    return objects
