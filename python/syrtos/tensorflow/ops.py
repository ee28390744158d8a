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
order. In the latter, names are made from the node, as Horovod does; in the former, give names.

Nodes of graphs have names like ``SyrtosAllreduce_grad_0``, and the word in front is also that of
their type; `use_prefix` changes it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.errors import BackendUnavailableError
from syrtos.tensorflow import _library

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "group",
    "prefix",
    "reducescatter",
    "use_prefix",
]


def _wrappers(prefix: str) -> dict[str, Callable[..., Any]]:
    library = _library.load(_library.PATHS[prefix], prefix)
    return {op.lower(): getattr(library, f"{prefix}_{op}".lower()) for op in _library.OPS}


_prefix = "Syrtos"
_ops = _wrappers(_prefix)


def prefix() -> str:
    """Return the word with which types and names of new nodes begin."""
    return _prefix


def use_prefix(prefix: str) -> None:
    """Choose the word with which types and names of nodes begin from now on.

    Parameters
    ----------
    prefix : str
        "Syrtos" or "Horovod"; the latter for scripts that look for such nodes. What the ops do
        stays the same. In graphs of ``tf.compat.v1`` all ranks need the same one.

    Raises
    ------
    ImportError
        The library with these ops cannot be loaded, for example since Horovod's own is there.
    """
    global _prefix, _ops
    _ops = _wrappers(prefix)
    _prefix = prefix
    from syrtos.tensorflow import gradients  # it needs this module

    gradients.register(prefix)


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


# What TensorFlow allows, and what its function graphs end with: a number that counts all of them.
_NOT_IN_NODE_NAMES = re.compile(r"[^A-Za-z0-9_.\\/-]|^[^A-Za-z0-9.]")
_FUNCTION_COUNTER = re.compile(r"_\d+$")


def _automatic_name(graph: Any, node: str) -> str:
    """Return the request name of a node whose op got none: see above."""
    if not graph.building_function:
        return node
    if tf.compat.v1.executing_eagerly_outside_functions():
        return ""
    # A branch or loop body within a graph of tf.compat.v1.
    while graph is not None and graph.building_function:
        node = f"{_FUNCTION_COUNTER.sub('', graph.name)}/{node}"
        graph = graph.outer_graph
    return node


def _names(what: str, name: str | None, ignore_name_scope: bool, like: Any) -> dict[str, str]:
    """Return the names of the request ("" for an unnamed one) and of the node.

    Refuses graphs that XLA will compile.
    """
    if tf.executing_eagerly():
        return {"op_name": name or ""}
    graph = tf.compat.v1.get_default_graph()
    if _in_xla(graph):
        raise BackendUnavailableError(
            f"syrtos {what}: XLA cannot compile this operation. Use jit_compile=False in "
            "tf.function(...) or model.compile(...)."
        )
    # An eager tensor that a function has caught has no name.
    base = name or f"{_prefix}{what.capitalize()}_{_plain(getattr(like, 'name', 'constant'))}"
    unique = str(graph.unique_name(base, mark_as_used=False))
    request = unique if name else _automatic_name(graph, unique)
    if ignore_name_scope:
        request = (name or request).rpartition("/")[2]
    return {"op_name": request, "name": _NOT_IN_NODE_NAMES.sub("_", base)}


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
    size, rank = _ops["group"](group=number)
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
        _ops["allreduce"](
            list(tensors),
            tensor_names=list(tensor_names),
            op=int(op),
            prescale_bits=_bits(prescale),
            postscale_bits=_bits(postscale),
            group=group,
            **_names("allreduce", name, ignore_name_scope, tensors[0]),
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
        _ops["allgather"](
            list(tensors),
            tensor_names=list(tensor_names),
            group=group,
            **_names("allgather", name, ignore_name_scope, tensors[0]),
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
        _ops["broadcast"](
            list(tensors),
            tensor_names=list(tensor_names),
            root=root,
            group=group,
            **_names("broadcast", name, ignore_name_scope, tensors[0]),
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
    output, received = _ops["alltoall"](
        tensor, splits, group=group, **_names("alltoall", name, ignore_name_scope, tensor)
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
        _ops["reducescatter"](
            list(tensors),
            tensor_names=list(tensor_names),
            op=int(op),
            prescale_bits=_bits(prescale),
            postscale_bits=_bits(postscale),
            group=group,
            **_names("reducescatter", name, ignore_name_scope, tensors[0]),
        )
    )
