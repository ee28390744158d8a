"""Collectives in functions that XLA compiles: ``tf.function(jit_compile=True)``.

They are paired with those of other ranks by their order in the program, and their names are
compared: ranks that have traced collectives in different orders get an error that names both.

XLA keeps an order only between computations of which one uses what the other has made. So there is
a variable for each process set, of which each collective takes the value, and to which it writes it
back. TensorFlow hands variables on through branches, loops and functions that call each other, and
gives them to one program at a time.

XLA fixes all shapes before a program runs, so what depends on other ranks' numbers of rows cannot
be part of one: there all ranks have equally many.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from syrtos import process_sets
from syrtos._kinds import Kind, ReduceOp
from syrtos.errors import BackendUnavailableError, InvalidRequestError
from syrtos.tensorflow import _xla_calls

__all__ = ["Collective", "bits_of", "check", "even_rows", "group", "is_traced", "place_of", "run"]


def bits_of(scale: float) -> int:
    """Keep a double as an integer: attributes of operations may have 32 bits only."""
    return int(struct.unpack("<q", struct.pack("<d", scale))[0])


class _Tracing(threading.local):
    """Whether this thread traces the gradient of a program, which is a program too."""

    of_program = False


_tracing = _Tracing()


@contextlib.contextmanager
def _program() -> Iterator[None]:
    before, _tracing.of_program = _tracing.of_program, True
    try:
        yield
    finally:
        _tracing.of_program = before


def is_traced() -> bool:
    """Whether what is called now becomes part of a program that XLA compiles."""
    if tf.executing_eagerly():
        return False
    if _tracing.of_program:
        return True
    try:
        # Not public, and the only thing that tells while a function is being traced.
        from tensorflow.python.ops import control_flow_util
    except ImportError:
        return False  # then TensorFlow's own, longer error follows
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


@dataclass(frozen=True)
class Collective:
    """One collective over several tensors, without the tensors.

    Parameters
    ----------
    kind : Kind
        Which one.
    group : int
        Number of the process set.
    name : str
        "" without one.
    op, prescale, postscale
        Of reductions.
    root : int
        Global rank of a broadcast's sender.
    tensor_names : tuple of str
        For messages; as many as tensors, or none.
    rows : tuple of int
        Of an allgather: rows of each result, where they are known not to be equal shares.
    """

    kind: Kind
    group: int = 0
    name: str = ""
    op: ReduceOp = ReduceOp.Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    tensor_names: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def verb(self) -> str:
        """What messages call it: ``allreduce "loss"``."""
        verb = self.kind.name.lower()
        return f'{verb} "{self.name}"' if self.name else verb

    @property
    def keeps_shape(self) -> bool:
        """Whether results have the shapes of the tensors."""
        return self.kind in (Kind.ALLREDUCE, Kind.BROADCAST)


class _Node:
    """A collective of a program as the gradients of `syrtos.tensorflow.gradients` see an op."""

    def __init__(self, call: Collective, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._attributes = {
            "group": call.group,
            "op_name": call.name.encode(),
            "op": int(call.op),
            "prescale_bits": bits_of(call.prescale),
            "postscale_bits": bits_of(call.postscale),
            "root": call.root,
        }
        self.inputs = inputs
        self.outputs = outputs

    def get_attr(self, name: str) -> Any:
        return self._attributes[name]


# The values that collectives hand on, by process set; never set to anything but 0.
_orders: dict[int, Any] = {}


def _order_of(number: int) -> Any:
    """Return the variable that gives the collectives of a process set their order."""
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise BackendUnavailableError(
            "syrtos: collectives cannot be part of what XLA compiles in graphs of tf.compat.v1. "
            "Leave out jit_compile=True there, or call the tf.function eagerly."
        )
    if number not in _orders:
        with tf.init_scope(), tf.device("CPU:0"):
            _orders[number] = tf.Variable(0, trainable=False, dtype=tf.int32, name="syrtos_order")
    return _orders[number]


def place_of(number: int) -> tuple[int, int]:
    """Return how many ranks a process set has, and this rank's position."""
    registered = {0: process_sets.global_process_set, **process_sets._registered}
    members = registered[number]
    size, position = members.size() or 0, members.rank()
    return size, -1 if position is None else position


def _rows_of(call: Collective, tensor: Any) -> int:
    if tensor.shape.rank == 0:
        raise InvalidRequestError(
            f"{call.verb} works along the first dimension, but the tensor is a scalar of shape "
            "(). Reshape it to (1,) first."
        )
    return int(tensor.shape[0])


def even_rows(call: Collective, tensor: Any) -> tuple[int, int]:
    """Return how many ranks a tensor's rows are split over, and how many rows each gets.

    Raises
    ------
    InvalidRequestError
        The rows cannot be split evenly, or are not known while the function is traced.
    """
    check(call, [tensor])
    rows, (size, _) = _rows_of(call, tensor), place_of(call.group)
    if rows % size:
        raise InvalidRequestError(
            f"{call.verb}: {rows} rows cannot be split evenly over {size} ranks. Inside "
            "tf.function(jit_compile=True) all splits are equal; use other splits without "
            "jit_compile."
        )
    return size, rows // size


def _output(call: Collective, tensor: Any, rows: int | None) -> Any:
    """Return type and shape of a result."""
    if call.keeps_shape or call.kind == Kind.ALLTOALL:
        return tf.TensorSpec(tensor.shape, tensor.dtype)
    given, (size, position) = _rows_of(call, tensor), place_of(call.group)
    if call.kind == Kind.REDUCESCATTER:
        rows = given // size + (position < given % size)
    elif rows is None:
        rows = given * size
    return tf.TensorSpec([rows, *tensor.shape[1:]], tensor.dtype)


def check(call: Collective, tensors: Sequence[Any]) -> None:
    """Refuse what cannot be part of a program.

    Raises
    ------
    InvalidRequestError
        A shape is not known, or this rank is no member; the text says which.
    """
    for position, tensor in enumerate(tensors):
        if not tensor.shape.is_fully_defined():
            name = call.tensor_names[position] if call.tensor_names else ""
            which = f'"{name}"' if name else f"tensor {position}"
            raise InvalidRequestError(
                f"{call.verb}: {which} has the shape {tensor.shape}, which is not known while the "
                "function is traced, but XLA must know the shapes of all collectives. Give the "
                "function shapes (input_signature, batches of one size), use tf.ensure_shape, or "
                "leave out jit_compile=True."
            )
    if call.group and place_of(call.group)[1] < 0:
        members = process_sets._registered[call.group]
        raise InvalidRequestError(
            f"{call.verb}: this rank is no member of {members}. Call it on the members only."
        )


def _attributes(call: Collective, count: int) -> dict[str, int | str]:
    """Return what the handler is told; in this order, see `_xla_calls.collective`."""
    names = call.tensor_names
    if not any(names):
        names = (call.name,) * count if call.name else ()
    # Whether the program depends on who the ranks are.
    fixed = call.group != 0 or not (call.keeps_shape or call.kind == Kind.BARRIER)
    size, position = place_of(call.group) if fixed else (0, 0)
    return {
        "kind": int(call.kind),
        "group": call.group,
        "op": int(call.op),
        "prescale_bits": bits_of(call.prescale),
        "postscale_bits": bits_of(call.postscale),
        "root": call.root,
        "size": size,
        "position": position,
        "name": call.name,
        "part_names": _xla_calls.SEPARATOR.join(names),
    }


def run(call: Collective, tensors: Sequence[Any]) -> list[Any]:
    """Add a collective to the program that is being traced; differentiable like the plain op.

    Parameters
    ----------
    call : Collective
        What to do.
    tensors : sequence of tf.Tensor
        One request for all.

    Returns
    -------
    list of tf.Tensor

    Raises
    ------
    InvalidRequestError
        XLA cannot compile it, since a shape is not known; the text says which.
    BackendUnavailableError
        This TensorFlow cannot do it at all.
    """
    check(call, tensors)
    rows = call.rows or (None,) * len(tensors)
    outputs = [_output(call, tensor, n) for tensor, n in zip(tensors, rows, strict=True)]
    attributes = _attributes(call, len(tensors))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def collective(order: Any, *tensors: Any) -> Any:
        order, results = _xla_calls.collective(order, tensors, outputs, attributes)

        def gradient(_: Any, *grads: Any) -> list[Any]:
            return [None, *_gradient(call, tensors, results, grads)]

        return [order, *results], gradient

    variable = _order_of(call.group)
    results: list[Any]
    order, *results = collective(variable.read_value(), *tensors)
    variable.assign(order, read_value=False)
    return results


def _gradient(
    call: Collective, tensors: Sequence[Any], results: Sequence[Any], grads: Sequence[Any]
) -> list[Any]:
    from syrtos.tensorflow import gradients  # it needs the module that needs this one

    with _program():
        if call.kind == Kind.ALLTOALL:  # whose op has the splits as its second output
            results, grads = [*results, tf.zeros([0], tf.int64)], [*grads, None]
        found = gradients.gradient_of(call.kind, _Node(call, tensors, results), *grads)
    found = found if isinstance(found, list | tuple) else [found]
    return list(found[: len(tensors)])


def group(number: int) -> tuple[Any, Any]:
    """Return the number of ranks of a group and this rank's position, told when the program runs.

    Parameters
    ----------
    number : int
        Number of the process set.

    Returns
    -------
    size, rank : tf.Tensor of int32, shape ()
    """
    return _xla_calls.group(number)
