"""A collective as JAX knows it: one primitive for all kinds, over any number of arrays.

At once it runs through `syrtos._ops`, without copying its inputs. In a program it becomes one call
of the handler in ``_jax.so``, which takes all arrays of the call and returns a future, so that no
thread of XLA waits for other ranks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from syrtos import _ops
from syrtos._kinds import Kind, ReduceOp
from syrtos.errors import BackendUnavailableError, InvalidRequestError
from syrtos.jax import _library
from syrtos.jax._effects import EFFECT, is_staged, token_aval, wait_for_programs
from syrtos.jax.adapter import ADAPTER, to_array, to_jax
from syrtos.process_sets import ProcessSet

__all__ = ["Call", "bind", "start"]

#: Between the names of arrays in one attribute.
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Call:
    """One collective over several arrays, without the arrays.

    Parameters
    ----------
    kind : Kind
        Which one.
    process_set : ProcessSet
        Who takes part.
    name : str
        "" without one. In a program it is compared between the ranks but does not pair calls.
    op, prescale, postscale
        Of reductions.
    root : int
        Global rank of a broadcast's sender.
    part_names : tuple of str
        Of the arrays, for messages; or empty.
    fixed : bool
        The program around it depends on the ranks even if its shapes do not.
    rows : tuple of int
        Of an allgather in a program: rows of each result, where they are known not to be equal
        shares.
    """

    kind: Kind
    process_set: ProcessSet
    name: str = ""
    op: ReduceOp = ReduceOp.Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    part_names: tuple[str, ...] = ()
    fixed: bool = False
    rows: tuple[int, ...] = ()

    @property
    def verb(self) -> str:
        """What messages call it: ``allreduce "loss"``."""
        verb = self.kind.name.lower()
        return f'{verb} "{self.name}"' if self.name else verb

    @property
    def size(self) -> int:
        """Number of ranks that take part."""
        return self.process_set.size() or 0

    @property
    def position(self) -> int:
        """The place of this rank among them."""
        position = self.process_set.rank()
        return -1 if position is None else position


def _rows_here(rows: int, call: Call) -> int:
    """Return how many rows of a result this rank has."""
    size = call.size
    if call.kind == Kind.ALLGATHER:
        return rows * size
    if call.kind == Kind.REDUCESCATTER:
        return rows // size + (call.position < rows % size)
    if call.kind == Kind.ALLTOALL and rows % size:
        raise InvalidRequestError(
            f"{call.verb}: {rows} rows cannot be split evenly over {size} ranks. Inside jax.jit "
            "all splits are equal; use other splits outside of jit."
        )
    return rows


def _check_dtype(array: Any, call: Call) -> None:
    if array.dtype.name in ("int2", "uint2", "int4", "uint4", "float4_e2m1fn", "int1", "uint1"):
        raise InvalidRequestError(
            f"{call.verb}: {array.dtype} has elements of less than a byte, which cannot be sent "
            "from inside jax.jit. Cast to int8 first."
        )


def _result(array: Any, call: Call, rows: int | None = None) -> Any:
    _check_dtype(array, call)
    shape = array.shape
    if call.kind not in (Kind.ALLREDUCE, Kind.BROADCAST):
        if not shape:
            raise InvalidRequestError(
                f"{call.verb} works along the first dimension, but the array is a scalar of shape "
                "(). Reshape it to (1,) first."
            )
        shape = (_rows_here(shape[0], call) if rows is None else rows, *shape[1:])
    return jax.core.ShapedArray(shape, array.dtype)


def _shapes(*arrays: Any, call: Call) -> tuple[list[Any], set[Any]]:
    if call.position < 0:
        raise InvalidRequestError(
            f"{call.verb}: this rank is no member of {call.process_set}. Call it on the members "
            "only."
        )
    rows = call.rows or (None,) * len(arrays)
    return [_result(a, call, n) for a, n in zip(arrays, rows, strict=True)], {EFFECT}


def start(arrays: Sequence[Any], call: Call, *, splits: Any = None) -> _ops.Handle:
    """Start a collective at once; arrays are concrete.

    Parameters
    ----------
    arrays : sequence of jax.Array
        One request for all; not empty.
    call : Call
        What to do.
    splits : sequence of int, optional
        Of an alltoall of one array: then the result is a pair.

    Returns
    -------
    Handle
        Its result is a list, with `splits` an array and the received splits.
    """
    wait_for_programs()
    arrays = [to_array(array, call.verb) for array in arrays]
    inner = _start(arrays, call, splits)

    def finish(_: Any) -> Any:
        result = inner.wait()
        if call.kind != Kind.ALLTOALL:
            return to_jax(result, arrays)
        if splits is None:
            return to_jax([result], arrays)
        return to_jax([result[0]], arrays)[0], result[1]

    return _ops.Handle(inner._session, inner._completion, inner, finish)


def _start(arrays: list[Any], call: Call, splits: Any) -> _ops.Handle:
    name, group = call.name or None, call.process_set
    if call.kind == Kind.ALLREDUCE:
        scales = (call.prescale, call.postscale)
        return _ops.allreduce_async(
            ADAPTER,
            arrays,
            None,
            name,
            call.op,
            *scales,
            group,
            grouped=True,
            part_names=call.part_names,
        )
    if call.kind == Kind.REDUCESCATTER:
        scales = (call.prescale, call.postscale)
        return _ops.reducescatter_async(
            ADAPTER, arrays, name, call.op, group, *scales, grouped=True
        )
    if call.kind == Kind.ALLGATHER:
        return _ops.allgather_async(ADAPTER, arrays, name, group, grouped=True)
    if call.kind == Kind.BROADCAST:
        return _ops.broadcast_async(
            ADAPTER, arrays, call.root, name, group, grouped=True, part_names=call.part_names
        )
    return _ops.alltoall_async(ADAPTER, arrays[0], splits, name, group)


def _at_once(*arrays: Any, call: Call) -> list[Any]:
    return list(start(arrays, call).wait())


def bind(arrays: Sequence[Any], call: Call) -> list[Any]:
    """Carry out a collective, at once or as part of the program that is being traced.

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
    if call.kind == Kind.ALLTOALL and len(arrays) > 1 and not is_staged():
        return [bind([array], call)[0] for array in arrays]
    return list(_collective.bind(*arrays, call=call))


def _bits(scale: float) -> Any:
    """Keep a double as an integer: attributes of programs may have 32 bits only."""
    return np.int64(int.from_bytes(struct.pack("<d", scale), "little", signed=True))


def _lower(context: Any, *operands: Any, call: Call) -> list[Any]:
    keeps_shape = call.kind in (Kind.ALLREDUCE, Kind.BROADCAST)
    group = call.process_set.group()
    fixed = call.fixed or not keeps_shape or group != 0
    names = call.part_names
    if not any(names):
        names = (call.name,) * len(operands) if call.name else ()
    # A result may take the memory of its input; XLA copies inputs that are still needed.
    aliases = {i: i for i in range(1, len(operands) + 1)} if keeps_shape else None
    lower = jax.ffi.ffi_lowering(
        _library.TARGET, has_side_effect=True, operand_output_aliases=aliases
    )
    results: list[Any]
    token, *results = lower(
        context.replace(
            avals_in=[token_aval, *context.avals_in], avals_out=[token_aval, *context.avals_out]
        ),
        context.tokens_in.get(EFFECT),
        *operands,
        kind=np.int64(call.kind),
        group=np.int64(group),
        op=np.int64(call.op),
        prescale_bits=_bits(call.prescale),
        postscale_bits=_bits(call.postscale),
        root=np.int64(call.root),
        size=np.int64(call.size if fixed else 0),
        position=np.int64(call.position if fixed else 0),
        name=call.name,
        part_names=_SEPARATOR.join(names),
    )
    context.set_tokens_out(context.tokens_in.update_tokens(mlir.TokenSet({EFFECT: token})))
    return results


def _refuse_platform(context: Any, *operands: Any, call: Call) -> Sequence[Any]:
    platforms = ", ".join(context.module_context.platforms)
    raise BackendUnavailableError(
        f"{call.verb}: this build of Syrtos runs inside programs for the CPU only, and this one is "
        f"for {platforms}. Use jax.jit(..., device=jax.devices('cpu')[0]), set JAX_PLATFORMS=cpu, "
        "or call it outside of jit."
    )


def _batch(
    arrays: Sequence[Any], dims: Sequence[Any], *, call: Call
) -> tuple[list[Any], list[Any]]:
    """Do for a whole batch, as one request, what `vmap` asks for each of its members.

    What works along the first dimension of a member must find that dimension first, so the batch
    becomes the second one.
    """
    place = 0 if call.kind in (Kind.ALLREDUCE, Kind.BROADCAST) else 1
    moved: list[Any] = []
    places: list[Any] = []
    for array, dim in zip(arrays, dims, strict=True):
        if dim is None:  # this one is the same for all members
            moved.append(array)
            places.append(dim)
            continue
        if array.ndim <= place:
            _result(jax.core.ShapedArray((), array.dtype), call)  # raises: a scalar has no rows
        moved.append(jax.numpy.moveaxis(array, dim, place))
        places.append(place)
    return bind(moved, call), places


_collective = Primitive("syrtos_collective")
_collective.multiple_results = True
_collective.def_impl(_at_once)
_collective.def_effectful_abstract_eval(_shapes)
batching.primitive_batchers[_collective] = _batch
mlir.register_lowering(_collective, _refuse_platform)
mlir.register_lowering(_collective, _lower, platform="cpu")
