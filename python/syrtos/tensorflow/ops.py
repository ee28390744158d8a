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

In functions that XLA compiles, collectives become part of the program instead (`_xla`); they are
paired by their order, and names are only compared.

Nodes of graphs have names like ``SyrtosAllreduce_grad_0``, and the word in front is also that of
their type; `use_prefix` changes it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import Kind, ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.tensorflow import _library, _xla
from syrtos.tensorflow._node_names import names_of
from syrtos.tensorflow._xla import Collective, bits_of

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
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


def scale_of(bits: int) -> float:
    """Return the double that an integer attribute holds."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


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
    size, rank = _xla.group(number) if _xla.is_traced() else _ops["group"](group=number)
    return size, rank


def barrier(group: int = 0) -> Any:
    """Add to a graph the wait until all ranks of a group have come to it.

    Parameters
    ----------
    group : int
        Number of the process set.

    Returns
    -------
    tf.Operation or None
        None inside XLA, where it needs not be run.
    """
    if _xla.is_traced():
        _xla.run(Collective(Kind.BARRIER, group), [])
        return None
    return _ops["barrier"](group=group, **names_of(_prefix, "barrier", None, False, None))


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
    if _xla.is_traced():
        return _xla.run(
            Collective(
                Kind.ALLREDUCE,
                group,
                name or "",
                ReduceOp(op),
                prescale,
                postscale,
                tensor_names=tuple(tensor_names),
            ),
            tensors,
        )
    return list(
        _ops["allreduce"](
            list(tensors),
            tensor_names=list(tensor_names),
            op=int(op),
            prescale_bits=bits_of(prescale),
            postscale_bits=bits_of(postscale),
            group=group,
            **names_of(_prefix, "allreduce", name, ignore_name_scope, tensors[0]),
        )
    )


def allgather(
    tensors: Sequence[Any],
    *,
    group: int = 0,
    name: str | None = None,
    ignore_name_scope: bool = False,
    tensor_names: Sequence[str] = (),
    rows: Sequence[int] = (),
) -> list[Any]:
    """Concatenate each tensor over the ranks along the first dimension, which may differ.

    Parameters
    ----------
    tensors : sequence of tf.Tensor, shape (any, ...)
        Not empty; the same types and further dimensions on every rank.
    group, name, ignore_name_scope, tensor_names
        As in `allreduce`.
    rows : sequence of int
        Inside XLA, the rows of each result if the ranks' own numbers of rows differ.

    Returns
    -------
    list of tf.Tensor
    """
    if _xla.is_traced():
        return _xla.run(
            Collective(
                Kind.ALLGATHER,
                group,
                name or "",
                tensor_names=tuple(tensor_names),
                rows=tuple(rows),
            ),
            tensors,
        )
    return list(
        _ops["allgather"](
            list(tensors),
            tensor_names=list(tensor_names),
            group=group,
            **names_of(_prefix, "allgather", name, ignore_name_scope, tensors[0]),
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
    if _xla.is_traced():
        return _xla.run(
            Collective(
                Kind.BROADCAST,
                group,
                name or "",
                root=root,
                tensor_names=tuple(tensor_names),
            ),
            tensors,
        )
    return list(
        _ops["broadcast"](
            list(tensors),
            tensor_names=list(tensor_names),
            root=root,
            group=group,
            **names_of(_prefix, "broadcast", name, ignore_name_scope, tensors[0]),
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
    if _xla.is_traced():
        return _alltoall_in_program(Collective(Kind.ALLTOALL, group, name or ""), tensor, splits)
    output, received = _ops["alltoall"](
        tensor,
        splits,
        group=group,
        **names_of(_prefix, "alltoall", name, ignore_name_scope, tensor),
    )
    return output, received


def _alltoall_in_program(call: Collective, tensor: Any, splits: Any) -> tuple[Any, Any]:
    size, rows = _xla.even_rows(call, tensor)
    if splits.shape[0] != 0:
        known = tf.get_static_value(splits)
        given = "unknown while tracing" if known is None else known.tolist()
        if given != [rows] * size:
            raise InvalidRequestError(
                f"{call.verb}: splits={given}, but inside tf.function(jit_compile=True) all are "
                f"equal, {rows} rows here. Leave splits out, or leave out jit_compile=True."
            )
    return _xla.run(call, [tensor])[0], tf.fill([size], tf.constant(rows, tf.int64))


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
    if _xla.is_traced():
        return _xla.run(
            Collective(
                Kind.REDUCESCATTER,
                group,
                name or "",
                ReduceOp(op),
                prescale,
                postscale,
                tensor_names=tuple(tensor_names),
            ),
            tensors,
        )
    return list(
        _ops["reducescatter"](
            list(tensors),
            tensor_names=list(tensor_names),
            op=int(op),
            prescale_bits=bits_of(prescale),
            postscale_bits=bits_of(postscale),
            group=group,
            **names_of(_prefix, "reducescatter", name, ignore_name_scope, tensors[0]),
        )
    )
