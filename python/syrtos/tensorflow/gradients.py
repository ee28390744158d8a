"""Gradients of the ops, in Horovod's form.

With a loss on each rank, the gradient of an average is the average of the gradients, that of a sum
is their sum. What a rank sent to all (allgather, broadcast) gets back the average of the gradients
that the ranks have for it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from syrtos._kinds import Kind, ReduceOp
from syrtos.tensorflow import _xla, ops

__all__ = ["gradient_of", "register"]


def _present(grads: tuple[Any, ...]) -> tuple[list[int], list[Any]]:
    """Return the positions and values of what has a gradient, dense."""
    positions = [i for i, grad in enumerate(grads) if grad is not None]
    return positions, [tf.convert_to_tensor(grads[i]) for i in positions]


def _spread(count: int, positions: list[int], values: list[Any]) -> Any:
    """Put values at their positions, None elsewhere, in the form that TensorFlow wants."""
    result: list[Any] = [None] * count
    for position, value in zip(positions, values, strict=True):
        result[position] = value
    return result[0] if count == 1 else result


def _request(op: Any) -> dict[str, Any]:
    name = op.get_attr("op_name").decode()
    return {"group": op.get_attr("group"), "name": f"{name}/grad" if name else None}


def _differentiable(op: Any) -> ReduceOp:
    reduce_op = ReduceOp(op.get_attr("op"))
    if reduce_op not in (ReduceOp.Average, ReduceOp.Sum):
        raise NotImplementedError(
            f"syrtos: there is no gradient of a collective with op={reduce_op.name}; "
            "use Average or Sum, or tf.stop_gradient."
        )
    return reduce_op


def _allreduce_gradient(op: Any, *grads: Any) -> Any:
    reduce_op = _differentiable(op)
    positions, values = _present(grads)
    if values:
        values = ops.allreduce(
            values,
            reduce_op,
            prescale=ops.scale_of(op.get_attr("prescale_bits")),
            postscale=ops.scale_of(op.get_attr("postscale_bits")),
            **_request(op),
        )
    return _spread(len(grads), positions, values)


def _first_rows(rows: Any, request: dict[str, Any]) -> Any:
    """Return where this rank's rows begin in the gathered tensors."""
    if _xla.is_traced():  # where all ranks have equally many, and programs are made for a rank
        return _xla.place_of(request["group"])[1] * rows
    _, rank = ops.group(request["group"])
    # The rows may differ from run to run, so it is asked anew.
    if request["name"]:
        request = {**request, "name": request["name"] + "_rows"}
    rows_of_ranks = ops.allgather([rows[tf.newaxis]], **request)[0]
    return tf.reduce_sum(rows_of_ranks[:rank], axis=0)


def _allgather_gradient(op: Any, *grads: Any) -> Any:
    positions, values = _present(grads)
    if not values:
        return _spread(len(grads), positions, values)
    request = _request(op)
    values = ops.allreduce(values, ReduceOp.Average, **request)
    shapes = [tf.shape(op.inputs[i], out_type=tf.int64) for i in positions]
    starts = _first_rows(tf.stack([shape[0] for shape in shapes]), request)
    own = []
    for k, (position, value) in enumerate(zip(positions, values, strict=True)):
        begin = tf.concat([starts[k : k + 1], tf.zeros_like(shapes[k][1:])], 0)
        piece = tf.slice(value, begin, shapes[k])
        own.append(tf.ensure_shape(piece, op.inputs[position].shape))
    return _spread(len(grads), positions, own)


def _broadcast_gradient(op: Any, *grads: Any) -> Any:
    positions, values = _present(grads)
    if not values:
        return _spread(len(grads), positions, values)
    values = ops.allreduce(values, ReduceOp.Average, **_request(op))
    _, rank = ops.group()
    is_root = tf.equal(rank, op.get_attr("root"))
    values = [tf.where(is_root, value, tf.zeros_like(value)) for value in values]
    return _spread(len(grads), positions, values)


def _alltoall_gradient(op: Any, grad: Any, _received_splits: Any) -> Any:
    if grad is None:
        return None, None
    back, _ = ops.alltoall(tf.convert_to_tensor(grad), op.outputs[1], **_request(op))
    return tf.ensure_shape(back, op.inputs[0].shape), None


def _reducescatter_gradient(op: Any, *grads: Any) -> Any:
    reduce_op = _differentiable(op)
    positions, values = _present(grads)
    if not values:
        return _spread(len(grads), positions, values)
    request = _request(op)
    scale = ops.scale_of(op.get_attr("prescale_bits")) * ops.scale_of(op.get_attr("postscale_bits"))
    rows = [op.inputs[position].shape[0] for position in positions] if _xla.is_traced() else []
    whole = ops.allgather(values, rows=rows, **request)
    size, _ = ops.group(request["group"])
    full = []
    for position, value in zip(positions, whole, strict=True):
        factor = tf.cast(scale, value.dtype)
        if reduce_op == ReduceOp.Sum:
            factor *= tf.cast(size, value.dtype)
        full.append(tf.ensure_shape(value * factor, op.inputs[position].shape))
    return _spread(len(grads), positions, full)


_GRADIENTS = {
    Kind.ALLREDUCE: _allreduce_gradient,
    Kind.ALLGATHER: _allgather_gradient,
    Kind.BROADCAST: _broadcast_gradient,
    Kind.ALLTOALL: _alltoall_gradient,
    Kind.REDUCESCATTER: _reducescatter_gradient,
}
_registered: set[str] = set()


def register(prefix: str) -> None:
    """Tell TensorFlow the gradients of the ops whose types begin with `prefix`; once for each."""
    if prefix in _registered:
        return
    for kind, function in _GRADIENTS.items():
        tf.RegisterGradient(prefix + kind.name.capitalize())(function)
    _registered.add(prefix)


def gradient_of(kind: Kind, op: Any, *grads: Any) -> Any:
    """Return the gradients of a collective's tensors; None where there is none.

    Parameters
    ----------
    kind : Kind
        Which collective.
    op : object
        Has ``get_attr``, ``inputs`` and ``outputs`` like the op of that kind.
    *grads : tf.Tensor or None
        Those of its outputs.
    """
    return _GRADIENTS[kind](op, *grads)


register(ops.prefix())
