"""Gradients of all ranks: around an optimizer of optax, or around `jax.grad`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.jax._effects import is_staged
from syrtos.jax.reductions import allreduce
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = ["DistributedOptimizer", "grad", "value_and_grad"]


@dataclass(frozen=True)
class Reducer:
    """How the gradients of one step become those of all ranks.

    Parameters
    ----------
    compression : type
        What travels.
    op : ReduceOp
        Average, Sum or Adasum.
    gradient_predivide_factor : float
        Divide by it before the sum and by the rest of the number of ranks after it; needs Average.
    num_groups : int
        Split the gradients into this many requests; 0 is one request.
    groups : sequence of sequences of str, optional
        One request for each, and one for all other gradients. A gradient is called by its place in
        the tree, as `jax.tree_util.keystr` writes it: ``"['dense']['kernel']"``.
    process_set : ProcessSet
        Who takes part.
    """

    compression: Any = Compression.none
    op: ReduceOp | int = ReduceOp.Average
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Sequence[Sequence[str]] | None = None
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        if self.op not in (ReduceOp.Average, ReduceOp.Sum, ReduceOp.Adasum):
            raise InvalidRequestError(
                f"op={self.op!r}: gradients are reduced with Average, Sum or Adasum only."
            )
        if self.gradient_predivide_factor != 1.0 and self.op != ReduceOp.Average:
            raise InvalidRequestError("gradient_predivide_factor needs op=Average.")
        number = self.num_groups
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise InvalidRequestError(f"num_groups={number!r}: give a whole number, 0 or more.")
        if self.groups is None:
            return
        if number:
            raise InvalidRequestError(
                "num_groups and groups are two ways to say the same: give one."
            )
        if isinstance(self.groups, str) or any(isinstance(group, str) for group in self.groups):
            raise InvalidRequestError(f"groups={self.groups!r}: give a list of lists of paths.")
        paths = [path for group in self.groups for path in group]
        if len(set(paths)) != len(paths):
            raise InvalidRequestError("groups: a gradient is listed twice.")

    def _requests(self, paths: Sequence[str], positions: list[int]) -> list[list[int]]:
        """Split the positions of the gradients into requests, alike on all ranks."""
        if self.groups is None:
            count = max(min(self.num_groups, len(positions)), 1)
            bounds = [i * len(positions) // count for i in range(count + 1)]
            return [positions[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
        place = {path: i for i, group in enumerate(self.groups) for path in group}
        if unknown := sorted(set(place) - set(paths)):
            raise InvalidRequestError(
                f"groups: there is no gradient at {unknown[0]}; there are {', '.join(paths)}."
            )
        split: list[list[int]] = [[] for _ in range(len(self.groups) + 1)]
        for position in positions:
            split[place.get(paths[position], -1)].append(position)
        return split

    def reduce(self, grads: Any) -> Any:
        """Return the gradients of all ranks.

        Parameters
        ----------
        grads : pytree
            This rank's gradients, of the same structure on every rank.
        """
        places, structure = jax.tree_util.tree_flatten_with_path(grads)
        paths = [jax.tree_util.keystr(path) for path, _ in places]
        results = [leaf for _, leaf in places]
        real = [
            i for i, leaf in enumerate(results)
            if getattr(leaf, "dtype", None) != jax.dtypes.float0  # of integers: there is none
        ]  # fmt: skip
        divide = float(self.gradient_predivide_factor)
        for request in self._requests(paths, real):
            # None is no leaf, so this tree has the request's gradients only, at their places.
            chosen = set(request)
            tree = structure.unflatten(
                [leaf if i in chosen else None for i, leaf in enumerate(results)]
            )
            reduced = allreduce(
                tree,
                compression=self.compression,
                op=self.op,
                prescale_factor=1.0 / divide,
                postscale_factor=divide,
                process_set=self.process_set,
            )
            for i, value in zip(request, jax.tree_util.tree_leaves(reduced), strict=True):
                results[i] = value
        return structure.unflatten(results)


class AccumulationState(NamedTuple):
    """What a `DistributedOptimizer` remembers between passes, if there are several per step."""

    inner: Any
    count: Any
    gradients: Any


def _accumulate(optimizer: Any, reducer: Reducer, passes: int, average: bool) -> Any:
    """Return init and update functions that step on every `passes`-th call only."""

    def init(params: Any) -> AccumulationState:
        zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
        return AccumulationState(optimizer.init(params), jnp.zeros((), jnp.int32), zeros)

    def update(
        grads: Any, state: AccumulationState, params: Any = None, **extra: Any
    ) -> tuple[Any, AccumulationState]:
        total = jax.tree_util.tree_map(jnp.add, state.gradients, grads)
        empty = jax.tree_util.tree_map(jnp.zeros_like, total)

        def step() -> tuple[Any, AccumulationState]:
            sums = total
            if average:
                sums = jax.tree_util.tree_map(lambda value: value / passes, total)
            updates, inner = optimizer.update(reducer.reduce(sums), state.inner, params, **extra)
            return updates, AccumulationState(inner, jnp.zeros_like(state.count), empty)

        def wait() -> tuple[Any, AccumulationState]:
            shapes = jax.eval_shape(step)[0]
            updates = jax.tree_util.tree_map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
            return updates, AccumulationState(state.inner, state.count + 1, total)

        last = state.count + 1 >= passes
        if is_staged() or isinstance(last, jax.core.Tracer):
            result: tuple[Any, AccumulationState] = jax.lax.cond(last, step, wait)
            return result
        return step() if last else wait()

    return init, update


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp | int = ReduceOp.Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Sequence[Sequence[str]] | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Make an optimizer of optax reduce gradients over all ranks before it uses them.

    Parameters
    ----------
    optimizer : optax.GradientTransformation
        Any transformation or chain; what clips gradients in it sees those of all ranks.
    name : str, optional
        No effect: kept for Horovod's signature.
    compression, op, gradient_predivide_factor, num_groups, groups, process_set
        See `Reducer`.
    backward_passes_per_step : int
        Add up the gradients of so many calls of ``update`` on each rank; the last of them reduces
        and steps, the others return updates of zero.
    average_aggregated_gradients : bool
        Divide the sum of several passes by their number.

    Returns
    -------
    optax.GradientTransformationExtraArgs
        With one pass per step, its state is that of `optimizer`, so checkpoints do not know of
        Syrtos.

    Raises
    ------
    ImportError
        Without optax.
    InvalidRequestError
        An argument that makes no sense.

    Examples
    --------
    >>> import jax.numpy as jnp, optax
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> optimizer = hvd.DistributedOptimizer(optax.sgd(0.5))
    >>> state = optimizer.init(jnp.ones(2))
    >>> optimizer.update(jnp.array([1.0, 2.0]), state)[0].tolist()
    [-0.5, -1.0]
    """
    del name
    try:
        import optax
    except ImportError:
        raise ImportError(
            "DistributedOptimizer wraps optimizers of optax: pip install optax. Without it, use "
            "syrtos.jax.value_and_grad."
        ) from None
    reducer = Reducer(compression, op, gradient_predivide_factor, num_groups, groups, process_set)
    passes = backward_passes_per_step
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise InvalidRequestError(
            f"backward_passes_per_step={passes!r}: give a whole number, 1 or more."
        )
    inner = optax.with_extra_args_support(optimizer)
    if passes > 1:
        init, update = _accumulate(inner, reducer, passes, average_aggregated_gradients)
        return optax.GradientTransformationExtraArgs(init, update)

    def reduce_and_update(
        grads: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        result: tuple[Any, Any] = inner.update(reducer.reduce(grads), state, params, **extra)
        return result

    return optax.GradientTransformationExtraArgs(inner.init, reduce_and_update)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    average_value: bool = False,
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Sequence[Sequence[str]] | None = None,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Callable[..., Any]:
    """Return a function like `jax.value_and_grad`'s whose gradients are those of all ranks.

    Parameters
    ----------
    fun, argnums, has_aux, **options
        As for `jax.value_and_grad`.
    average_value : bool
        Also return the mean of the ranks' values, instead of this rank's; what `has_aux` returns
        stays this rank's own.
    compression, op, gradient_predivide_factor, num_groups, groups, process_set
        See `Reducer`.

    Returns
    -------
    callable
        For use inside `jax.jit` and outside.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> value, gradient = hvd.value_and_grad(lambda x: x * x)(jnp.array(3.0))
    >>> float(value), float(gradient)
    (9.0, 6.0)
    """
    reducer = Reducer(compression, op, gradient_predivide_factor, num_groups, groups, process_set)
    local = jax.value_and_grad(fun, argnums, has_aux, **options)

    def reduced(*arguments: Any, **keywords: Any) -> tuple[Any, Any]:
        value, grads = local(*arguments, **keywords)
        grads = reducer.reduce(grads)
        if not average_value:
            return value, grads
        number = allreduce(value[0] if has_aux else value, process_set=process_set)
        return (number, value[1]) if has_aux else number, grads

    return reduced


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    **options: Any,
) -> Callable[..., Any]:
    """Return a function like `jax.grad`'s whose gradients are those of all ranks.

    Parameters
    ----------
    fun, argnums, has_aux
        As for `jax.grad`.
    **options
        As for `value_and_grad`.

    Returns
    -------
    callable

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import syrtos.jax as hvd
    >>> hvd.init()
    >>> float(hvd.grad(lambda x: x * x)(jnp.array(3.0)))
    6.0
    """
    both = value_and_grad(fun, argnums, has_aux, **options)

    def reduced(*arguments: Any, **keywords: Any) -> Any:
        value, grads = both(*arguments, **keywords)
        return (grads, value[1]) if has_aux else grads

    return reduced
