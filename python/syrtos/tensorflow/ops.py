"""The ops themselves: lists of tensors in, lists of tensors out, with their gradients.

Each function makes one op for all its tensors, whatever their types, and works in eager mode and
inside ``tf.function``. One op is one request to the core.

Names
-----
A request without a name is matched by call order: the n-th unnamed request of a rank meets the n-th
of every other rank. This is right in eager code, and also inside ``tf.function``: the ops are
stateful, so TensorFlow runs those of a function one after the other in the order of its text, and
functions run one after the other as the program calls them. No name is made up from a function or
node: it would differ between ranks as soon as one of them traces once more (a smaller last batch),
or clash between two functions of equal names.

Call order means nothing where several threads run collectives of one group at a time (``tf.data``
maps beside a training step, Python threads) or in graphs of ``tf.compat.v1``, which promise no
order. In the latter, names are made from the node; in the former, give names.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.errors import BackendUnavailableError
from syrtos.tensorflow import _library

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "group", "reducescatter"]

_lib = _library.load()


def _bits(scale: float) -> int:
    """Keep a double in an integer attribute; TensorFlow's float attributes have 32 bits."""
    return int(struct.unpack("<q", struct.pack("<d", scale))[0])


def scale_of(bits: int) -> float:
    """Return the double that an integer attribute holds."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def _in_xla(graph: Any) -> bool:
    try:
        # Not public, and the only thing that tells while a function is being traced.
        from tensorflow.python.ops import control_flow_util
    except ImportError:
        return False  # then TensorFlow's own, longer error follows
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def _request_name(what: str, name: str | None, ignore_name_scope: bool, like: Any) -> str:
    """Return the request's name, "" for an unnamed one; refuse graphs that XLA will compile."""
    if tf.executing_eagerly():
        return name or ""
    graph = tf.compat.v1.get_default_graph()
    if _in_xla(graph):
        raise BackendUnavailableError(
            f"syrtos {what}: XLA cannot compile this operation. Use jit_compile=False in "
            "tf.function(...) or model.compile(...)."
        )
    if name is None:
        if graph.building_function:
            return ""
        name = f"Syrtos{what.capitalize()}_{_plain(like.name)}"
    if ignore_name_scope:
        return name.rpartition("/")[2]
    return str(graph.unique_name(name, mark_as_used=False))


def group(number: int = 0) -> tuple[Any, Any]:
    """Return the number of ranks of a group and this rank's position, told when the op runs.

    Parameters
    ----------
    number : int
        Number of the process set.

    Returns
    -------
    size, rank : tf.Tensor of int32, shape ()
        The position is -1 on a rank that is no member.
    """
    size, rank = _lib.syrtos_group(group=number)
    return size, rank


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def allreduce(
    tensors: Sequence[Any],
    op: ReduceOp,
    *,
    prescale: float = 1.0,
    postscale: float = 1.0,
    group: int = 0,
    name: str | None = None,
    ignore_name_scope: bool = False,
    tensor_names: Sequence[str] = (),
) -> list[Any]:
    """Reduce each tensor over the ranks of a group.

    Parameters
    ----------
    tensors : sequence of tf.Tensor
        Not empty; the same types and shapes on every rank.
    op : ReduceOp
        How values become one.
    prescale, postscale : float
        Factors before and after, in double precision.
    group : int
        Number of the process set.
    name : str, optional
        Name of the request, see above.
    ignore_name_scope : bool
        In a graph, take the last component of the name only.
    tensor_names : sequence of str
        For messages; as many as tensors, or none.

    Returns
    -------
    list of tf.Tensor
    """
    return list(
        _lib.syrtos_allreduce(
            list(tensors),
            op_name=_request_name("allreduce", name, ignore_name_scope, tensors[0]),
            tensor_names=list(tensor_names),
            op=int(op),
            prescale_bits=_bits(prescale),
            postscale_bits=_bits(postscale),
            group=group,
        )
    )


def allgather(
    tensors: Sequence[Any],
    *,
    group: int = 0,
    name: str | None = None,
    ignore_name_scope: bool = False,
    tensor_names: Sequence[str] = (),
) -> list[Any]:
    """Concatenate each tensor over the ranks along the first dimension, which may differ.

    Parameters
    ----------
    tensors : sequence of tf.Tensor, shape (any, ...)
        Not empty; the same types and further dimensions on every rank.
    group, name, ignore_name_scope, tensor_names
        As in `allreduce`.

    Returns
    -------
    list of tf.Tensor
    """
    return list(
        _lib.syrtos_allgather(
            list(tensors),
            op_name=_request_name("allgather", name, ignore_name_scope, tensors[0]),
            tensor_names=list(tensor_names),
            group=group,
        )
    )


def broadcast(
    tensors: Sequence[Any],
    root: int,
    *,
    group: int = 0,
    name: str | None = None,
    ignore_name_scope: bool = False,
    tensor_names: Sequence[str] = (),
) -> list[Any]:
    """Return the root's values on every rank.

    Parameters
    ----------
    tensors : sequence of tf.Tensor
        Not empty; the same types and shapes on every rank.
    root : int
        A global rank, also in a process set.
    group, name, ignore_name_scope, tensor_names
        As in `allreduce`.

    Returns
    -------
    list of tf.Tensor
    """
    return list(
        _lib.syrtos_broadcast(
            list(tensors),
            op_name=_request_name("broadcast", name, ignore_name_scope, tensors[0]),
            tensor_names=list(tensor_names),
            root=root,
            group=group,
        )
    )


def alltoall(
    tensor: Any,
    splits: Any,
    *,
    group: int = 0,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> tuple[Any, Any]:
    """Send rows to each rank and receive rows from each.

    Parameters
    ----------
    tensor : tf.Tensor, shape (any, ...)
        The rows, those for the first rank first.
    splits : tf.Tensor of int64, shape (ranks,) or (0,)
        Rows for each rank; empty: the same number for each.
    group, name, ignore_name_scope
        As in `allreduce`.

    Returns
    -------
    output : tf.Tensor
        The received rows in rank order.
    received_splits : tf.Tensor of int64, shape (ranks,)
        How many came from each rank.
    """
    output, received = _lib.syrtos_alltoall(
        tensor,
        splits,
        op_name=_request_name("alltoall", name, ignore_name_scope, tensor),
        group=group,
    )
    return output, received


def reducescatter(
    tensors: Sequence[Any],
    op: ReduceOp,
    *,
    prescale: float = 1.0,
    postscale: float = 1.0,
    group: int = 0,
    name: str | None = None,
    ignore_name_scope: bool = False,
    tensor_names: Sequence[str] = (),
) -> list[Any]:
    """Reduce each tensor and leave each rank its share of the rows.

    Parameters
    ----------
    tensors : sequence of tf.Tensor, shape (rows, ...)
        Not empty; the same types and shapes on every rank. The first ``rows % ranks`` ranks get one
        row more than the others.
    op : ReduceOp
        Sum or Average.
    prescale, postscale, group, name, ignore_name_scope, tensor_names
        As in `allreduce`.

    Returns
    -------
    list of tf.Tensor
    """
    return list(
        _lib.syrtos_reducescatter(
            list(tensors),
            op_name=_request_name("reducescatter", name, ignore_name_scope, tensors[0]),
            tensor_names=list(tensor_names),
            op=int(op),
            prescale_bits=_bits(prescale),
            postscale_bits=_bits(postscale),
            group=group,
        )
    )
