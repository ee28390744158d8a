"""The collectives as operators of torch, for graphs: ``torch.compile`` and ``torch.export``.

The public functions call them while a graph is traced, so users need not know of them. Each is
functional: it writes to no input and returns new tensors. Process sets travel as their numbers, and
a name of None leaves it to the engine to count calls, each time the graph runs. The operators are
marked as having effects, so that a compiler neither drops one whose result is unused (other ranks
would wait for it) nor changes their order.

Shapes in a graph are known before it runs. So allgather, and alltoall without splits, take it that
all ranks have equally many rows, and the call fails if not; with
``torch._dynamo.config.capture_dynamic_output_shape_ops`` any numbers will do.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syrtos import process_sets
from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet
from syrtos.torch import gradients
from syrtos.torch.gradients import Reduction, grad_name

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "reducescatter"]

_library = torch.library.Library("syrtos", "DEF")

# The rank's place in the set is an argument, though a kernel could ask for it: graphs are cached on
# disk by what they call, and their shapes depend on it.
_WORLD = "int process_set, int size, int position"
_HOW = f"int op, float prescale, float postscale, {_WORLD}, str? name"


def _mark_effect(name: str) -> None:
    """Tell compilers that the operator does more than compute its result."""
    try:
        kinds = importlib.import_module("torch._library.effects").EffectType
        _library._register_effectful_op(f"syrtos::{name}", kinds.ORDERED)
    except (ImportError, AttributeError):  # before torch 2.10 or so
        torch.fx.node.has_side_effect(getattr(torch.ops.syrtos, name).default)


def _operator(signature: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Define an operator; `fake` tells the shapes of its results."""
    name = signature.partition("(")[0]
    _library.define(signature, tags=(torch.Tag.nondeterministic_seeded,))
    # For every device: the adapter refuses, by name, those that it cannot reach.
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"syrtos::{name}", fake, lib=_library)
    _mark_effect(name)
    return getattr(torch.ops.syrtos, name).default


def _set_of(number: int, size: int, position: int) -> ProcessSet:
    """Return the process set of a graph, if it is still the one that the graph was made for."""
    registered = process_sets._registered
    process_set = process_sets.global_process_set if number == 0 else registered.get(number)
    if process_set is None or (process_set.size(), process_set.rank()) != (size, position):
        raise InvalidRequestError(
            f"this compiled graph was made for position {position} of {size} ranks in process set "
            f"{number}, which is not so any more. Compile it again, see torch.compiler.reset()."
        )
    return process_set


def _how(op: int, prescale: float, postscale: float, *rest: Any) -> Reduction:
    *world, name = rest
    return Reduction(ReduceOp(op), prescale, postscale, _set_of(*world), name)


def _like(tensor: Any, rows: Any = None) -> Any:
    """Return a contiguous tensor of the same dtype, with another number of rows if given."""
    shape = tensor.shape if rows is None else (rows, *tensor.shape[1:])
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)


def _like_all(tensors: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
    return [_like(tensor, count) for tensor, count in zip(tensors, rows, strict=True)]


def _new_rows() -> Any:
    """Return a number of rows that is known at run time only."""
    return torch.library.get_ctx().new_dynamic_size()


def _check_rows(outputs: Sequence[Any], expected: Sequence[int], what: str) -> None:
    for output, rows in zip(outputs, expected, strict=True):
        if output.shape[0] != rows:
            raise InvalidRequestError(
                f"{what} in a compiled graph got {output.shape[0]} rows where the graph was made "
                f"for {rows}, since ranks have different numbers of rows. Set torch._dynamo.config."
                "capture_dynamic_output_shape_ops = True before compiling, or call it outside."
            )


def _allreduce(tensors: list[Any], *how: Any) -> list[Any]:
    return gradients.allreduce(tensors, _how(*how))


def _allgather(tensors: list[Any], same_rows: bool, *where: Any) -> list[Any]:
    *world, name = where
    results = gradients.allgather(tensors, _set_of(*world), name)
    if same_rows:
        _check_rows(results, [tensor.shape[0] * world[1] for tensor in tensors], "allgather")
    return results


def _allgather_fake(tensors: list[Any], same_rows: bool, *where: Any) -> list[Any]:
    size = where[1]
    return [_like(t, t.shape[0] * size if same_rows else _new_rows()) for t in tensors]


def _own_rows(grads: list[Any], rows: list[int], *where: Any) -> list[Any]:
    *world, name = where
    own = gradients.own_rows(grads, rows, _set_of(*world), name)
    return [tensor.clone() for tensor in own]  # an operator's results have memory of their own


def _broadcast(tensor: Any, root: int, *where: Any) -> Any:
    *world, name = where
    return gradients.broadcast(tensor, root, _set_of(*world), name)


def _at_root(grad: Any, root: int, *where: Any) -> Any:
    *world, name = where
    return gradients.at_root(grad, root, _set_of(*world), name)


def _alltoall(tensor: Any, splits: Any, same_rows: bool, *where: Any) -> tuple[Any, Any]:
    *world, name = where
    numbers = None if splits is None else tuple(splits.tolist())
    output, received = gradients.alltoall(tensor, numbers, _set_of(*world), name)
    if same_rows:
        _check_rows([output], [tensor.shape[0]], "alltoall without splits")
    return output, received


def _alltoall_fake(tensor: Any, splits: Any, same_rows: bool, *where: Any) -> tuple[Any, Any]:
    received = torch.empty(where[1], dtype=torch.int64, device="cpu")
    return _like(tensor, tensor.shape[0] if same_rows else _new_rows()), received


def _send_back(grad: Any, received: Any, rows: int, *where: Any) -> Any:
    *world, name = where
    return gradients.alltoall(grad, tuple(received.tolist()), _set_of(*world), name)[0]


def _reducescatter(tensors: list[Any], *how: Any) -> list[Any]:
    return gradients.reducescatter(tensors, _how(*how))


def _reducescatter_fake(tensors: list[Any], *how: Any) -> list[Any]:
    size, position = how[4], how[5]
    return [_like(t, (t.shape[0] + size - 1 - position) // size) for t in tensors]


def _gathered_shares(grads: list[Any], rows: list[int], *how: Any) -> list[Any]:
    return gradients.gathered_shares(grads, _how(*how))


allreduce = _operator(
    f"allreduce(Tensor[] tensors, {_HOW}) -> Tensor[]",
    _allreduce,
    lambda tensors, *how: [_like(tensor) for tensor in tensors],
)
allgather = _operator(
    f"allgather(Tensor[] tensors, bool same_rows, {_WORLD}, str? name) -> Tensor[]",
    _allgather,
    _allgather_fake,
)
broadcast = _operator(
    f"broadcast(Tensor tensor, int root, {_WORLD}, str? name) -> Tensor",
    _broadcast,
    lambda tensor, root, *where: _like(tensor),
)
alltoall = _operator(
    f"alltoall(Tensor tensor, Tensor? splits, bool same_rows, {_WORLD}, str? name) "
    "-> (Tensor, Tensor)",
    _alltoall,
    _alltoall_fake,
)
reducescatter = _operator(
    f"reducescatter(Tensor[] tensors, {_HOW}) -> Tensor[]", _reducescatter, _reducescatter_fake
)

# Those that only gradients use.
_own_rows_op = _operator(
    f"own_rows(Tensor[] grads, SymInt[] rows, {_WORLD}, str? name) -> Tensor[]",
    _own_rows,
    lambda grads, rows, *where: _like_all(grads, rows),
)
_at_root_op = _operator(
    f"at_root(Tensor grad, int root, {_WORLD}, str? name) -> Tensor",
    _at_root,
    lambda grad, root, *where: _like(grad),
)
_send_back_op = _operator(
    f"send_back(Tensor grad, Tensor received, SymInt rows, {_WORLD}, str? name) -> Tensor",
    _send_back,
    lambda grad, received, rows, *where: _like(grad, rows),
)
_gathered_shares_op = _operator(
    f"gathered_shares(Tensor[] grads, SymInt[] rows, {_HOW}) -> Tensor[]",
    _gathered_shares,
    lambda grads, rows, *how: _like_all(grads, rows),
)


def _where_of_gradient(where: tuple[Any, ...]) -> tuple[Any, ...]:
    return *where[:-1], grad_name(where[-1])


def _how_of_gradient(how: tuple[Any, ...], verb: str) -> tuple[Any, ...]:
    back = _how(*how).backward(verb)
    return back.op, back.prescale, back.postscale, *_where_of_gradient(how[3:])


def _allreduce_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.how = inputs[1:]


def _allreduce_backward(ctx: Any, grads: list[Any]) -> tuple[Any, ...]:
    how = _how_of_gradient(ctx.how, "allreduce")
    return allreduce(grads, *how), *[None] * len(how)


def _allgather_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, _, *ctx.where = inputs
    ctx.rows = [tensor.shape[0] for tensor in tensors]


def _allgather_backward(ctx: Any, grads: list[Any]) -> tuple[Any, ...]:
    where = _where_of_gradient(ctx.where)
    return _own_rows_op(grads, ctx.rows, *where), None, *[None] * len(where)


def _broadcast_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ctx.root, *ctx.where = inputs


def _broadcast_backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
    where = _where_of_gradient(ctx.where)
    return _at_root_op(grad, ctx.root, *where), None, *[None] * len(where)


def _alltoall_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensor, _, _, *ctx.where = inputs
    ctx.rows = tensor.shape[0]
    ctx.save_for_backward(output[1])


def _alltoall_backward(ctx: Any, grad: Any, _: Any) -> tuple[Any, ...]:
    where = _where_of_gradient(ctx.where)
    back = _send_back_op(grad, ctx.saved_tensors[0], ctx.rows, *where)
    return back, None, None, *[None] * len(where)


def _reducescatter_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, *ctx.how = inputs
    ctx.rows = [tensor.shape[0] for tensor in tensors]


def _reducescatter_backward(ctx: Any, grads: list[Any]) -> tuple[Any, ...]:
    how = _how_of_gradient(ctx.how, "reducescatter")
    return _gathered_shares_op(grads, ctx.rows, *how), *[None] * len(how)


for _name, _setup, _backward in (
    ("allreduce", _allreduce_setup, _allreduce_backward),
    ("allgather", _allgather_setup, _allgather_backward),
    ("broadcast", _broadcast_setup, _broadcast_backward),
    ("alltoall", _alltoall_setup, _alltoall_backward),
    ("reducescatter", _reducescatter_setup, _reducescatter_backward),
):
    torch.library.register_autograd(
        f"syrtos::{_name}", _backward, setup_context=_setup, lib=_library
    )
