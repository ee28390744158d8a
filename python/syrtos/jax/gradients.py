"""What `jax.grad` knows of the collectives.

The rules are Horovod's, as in the other front ends:

- allreduce: the gradient is reduced by the same op, with the same factors. Min, Max and Product
  have none.
- allgather: the mean of the ranks' gradients, of which each rank takes the rows that it sent.
- broadcast: the mean of the ranks' gradients on the root, zero elsewhere.
- alltoall: each row's gradient goes back to the rank that sent the row.
- reducescatter: the shares' gradients are gathered; for Sum, times the number of ranks.

A rule is made of collectives that are differentiable themselves, so second derivatives work, in
reverse mode (`jax.jvp` and what is made of it do not pass a collective).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from syrtos import _session
from syrtos._kinds import Kind, ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.jax._effects import is_staged
from syrtos.jax.primitive import Call, bind, start

__all__ = ["ragged_alltoall", "run"]


def run(arrays: Sequence[Any], call: Call) -> list[Any]:
    """Carry out a collective; differentiable.

    Parameters
    ----------
    arrays : sequence of jax.Array or tracer
        One request for all.
    call : Call
        What to do.

    Returns
    -------
    list
        As many arrays.
    """
    if not arrays:
        return []
    if not any(isinstance(array, jax.core.Tracer) for array in arrays) and not is_staged():
        return bind(arrays, call)
    return list(_collective(call, list(arrays)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _collective(call: Call, arrays: list[Any]) -> list[Any]:
    return bind(arrays, call)


def _forward(call: Call, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
    # Arrays without elements carry the numbers of rows: shapes stay known in a program.
    rows = [jnp.zeros((array.shape[0] if array.ndim else 0, 0)) for array in arrays]
    return _collective(call, arrays), rows  # not bind: for derivatives of this derivative


def _backward(call: Call, rows: list[Any], grads: list[Any]) -> tuple[list[Any]]:
    real = [i for i, grad in enumerate(grads) if grad.dtype != jax.dtypes.float0]
    result: list[Any] = [None] * len(grads)  # integers have no gradient
    if real:
        rule = _RULES[call.kind]
        names = tuple(f"{name}.grad" for name in call.part_names)
        back = replace(
            call,
            name=f"{call.name}.grad" if call.name else "",
            part_names=tuple(names[i] for i in real) if names else (),
            rows=(),
        )
        values = rule(back, [rows[i].shape[0] for i in real], [grads[i] for i in real])
        for i, value in zip(real, values, strict=True):
            result[i] = value
    return (result,)


_collective.defvjp(_forward, _backward)


def _check_op(call: Call) -> None:
    if call.op not in (ReduceOp.Average, ReduceOp.Sum):
        raise NotImplementedError(
            f"{call.verb} with op={call.op.name}: there is no such gradient; only Average and Sum "
            "have one. Use jax.lax.stop_gradient on the argument if the result shall be a constant."
        )


def _of_allreduce(call: Call, rows: list[int], grads: list[Any]) -> list[Any]:
    _check_op(call)
    return run(grads, call)


def _mean(call: Call, grads: list[Any]) -> list[Any]:
    mean = Call(
        Kind.ALLREDUCE,
        call.process_set,
        call.name,
        ReduceOp.Average,
        part_names=call.part_names,
        fixed=True,
    )
    return run(grads, mean)


def _of_allgather(call: Call, rows: list[int], grads: list[Any]) -> list[Any]:
    if is_staged():
        for grad, count in zip(grads, rows, strict=True):
            if grad.shape[0] != count * call.size:
                raise InvalidRequestError(
                    f"{call.verb}: ranks had different numbers of rows, so its gradient cannot be "
                    "compiled. Take it outside of jax.jit, or make the rows equal."
                )
        starts = [count * call.position for count in rows]
    else:
        counts = Call(Kind.ALLGATHER, call.process_set, f"{call.name}.rows" if call.name else "")
        (table,) = start([jnp.asarray([rows])], counts).wait()
        starts = np.asarray(table)[: call.position].sum(0).tolist()
    means = _mean(call, grads)
    return [
        jax.lax.slice_in_dim(mean, begin, begin + count)
        for mean, begin, count in zip(means, starts, rows, strict=True)
    ]


def _of_broadcast(call: Call, rows: list[int], grads: list[Any]) -> list[Any]:
    means = _mean(call, grads)
    if _session.topology().rank == call.root:
        return means
    return [jnp.zeros_like(mean) for mean in means]


def _of_alltoall(call: Call, rows: list[int], grads: list[Any]) -> list[Any]:
    return run(grads, call)


def _of_reducescatter(call: Call, rows: list[int], grads: list[Any]) -> list[Any]:
    _check_op(call)
    factor = call.prescale * call.postscale
    if call.op == ReduceOp.Sum:
        factor *= call.size
    gather = Call(
        Kind.ALLGATHER,
        call.process_set,
        call.name,
        part_names=call.part_names,
        rows=tuple(rows),
    )
    whole = run(grads, gather)
    return [value * factor for value in whole] if factor != 1.0 else whole


_RULES = {
    Kind.ALLREDUCE: _of_allreduce,
    Kind.ALLGATHER: _of_allgather,
    Kind.BROADCAST: _of_broadcast,
    Kind.ALLTOALL: _of_alltoall,
    Kind.REDUCESCATTER: _of_reducescatter,
}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def ragged_alltoall(call: Call, splits: tuple[int, ...], array: Any) -> tuple[Any, Any]:
    """Exchange rows in shares of any size, outside of programs; differentiable.

    Parameters
    ----------
    call : Call
        An alltoall.
    splits : tuple of int
        Rows for each rank.
    array : jax.Array
        The rows.

    Returns
    -------
    output, received : jax.Array
        The rows received, and how many came from each rank.
    """
    if isinstance(array, jax.core.Tracer) or is_staged():
        raise InvalidRequestError(
            f"{call.verb}: splits cannot be given inside jax.jit or jax.vmap, where shapes are "
            "fixed before the program runs. Leave them out for equal shares, or call it outside."
        )
    output, received = start([array], call, splits=splits).wait()
    return output, received


def _ragged_forward(call: Call, splits: tuple[int, ...], array: Any) -> tuple[Any, Any]:
    output, received = ragged_alltoall(call, splits, array)
    return (output, received), received


def _ragged_backward(
    call: Call, splits: tuple[int, ...], received: Any, grads: tuple[Any, Any]
) -> tuple[Any]:
    back = replace(call, name=f"{call.name}.grad" if call.name else "")
    return (ragged_alltoall(back, tuple(np.asarray(received).tolist()), grads[0])[0],)


ragged_alltoall.defvjp(_ragged_forward, _ragged_backward)
