"""Compiled programs: control flow, transformations, gradients, and the order of collectives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jax_checks import RANKS, both_ways, check, raises, same


def gradients_of(function: Callable[[Any], Any], x: Any) -> list[Any]:
    """The gradient of the sum of function(x), at once and compiled."""
    import jax

    gradient = jax.grad(lambda x: function(x).sum())
    return [way(x) for way in both_ways(gradient)]


@check
def gradients_have_horovods_form() -> None:
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    x = jnp.array([1.0, 2.0])
    of_root = np.full(2, float(rank == 0))
    cases = [
        (lambda x: hvd.allreduce(x), x, np.ones(2)),
        (lambda x: hvd.allreduce(x, op=hvd.Sum), x, np.full(2, 2.0)),
        (lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), x, np.ones(2)),
        (hvd.allgather, x, np.ones(2)),
        (lambda x: hvd.broadcast(x, 0), x, of_root),
        (hvd.alltoall, x, np.ones(2)),
        (hvd.reducescatter, jnp.ones(5), np.ones(5)),
        (lambda x: hvd.reducescatter(x, op=hvd.Sum), jnp.ones(5), np.full(5, 2.0)),
        (lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16), x, np.ones(2)),
    ]
    for function, value, expected in cases:
        for gradient in gradients_of(function, value):
            same(gradient, expected)


@check
def gradients_weigh_what_each_rank_received() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    weights = (1.0 + rank) * jnp.arange(1.0, 5.0)  # the loss of each rank is weights @ result
    mean = 1.5 * np.arange(1.0, 5.0)
    mine = slice(2 * rank, 2 * rank + 2)
    gathered = lambda x: weights * hvd.allgather(x)  # noqa: E731
    for gradient in gradients_of(gathered, jnp.ones(2)):
        same(gradient, mean[mine])
    for gradient in gradients_of(lambda x: weights * hvd.alltoall(x), jnp.ones(4)):
        # Rows 2 r and 2 r + 1 went to rank r, which put them at this rank's place.
        expected = np.concatenate([(1.0 + r) * np.arange(1.0, 5.0)[mine] for r in range(RANKS)])
        same(gradient, expected)
    for gradient in gradients_of(lambda x: weights * hvd.broadcast(x, 1), jnp.ones(4)):
        same(gradient, mean if rank == 1 else np.zeros(4))
    # Uneven rows, which only work outside of programs.
    uneven = jax.grad(lambda x: (hvd.allgather(x) * jnp.arange(1.0, 4.0)).sum())
    same(uneven(jnp.ones(rank + 1)), np.array([1.0]) if rank == 0 else np.array([2.0, 3.0]))
    ragged = jax.grad(lambda x: (hvd.alltoall(x, splits=[1, 2])[0] * (rank + 1)).sum())
    same(ragged(jnp.ones(3)), np.array([1.0, 2.0, 2.0]))
    twice = jax.grad(lambda x: jax.grad(lambda y: hvd.allreduce(y**3, op=hvd.Sum))(x))
    for way in both_ways(twice):
        same(way(jnp.array(2.0)), np.array(2 * 6 * 2.0))


@check
def gradients_of_groups_leave_integers_alone() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    def loss(x: Any) -> Any:
        a, n, b = hvd.grouped_allreduce([x, jnp.array([4]), 2 * x.astype(jnp.float32)])
        return (a + n + b).sum()

    for way in both_ways(jax.grad(loss)):
        same(way(jnp.ones(3)), np.full(3, 3.0))
    for way in both_ways(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum())):
        raises(NotImplementedError, lambda way=way: way(jnp.ones(2)), "op=Max", "stop_gradient")
    constant = jax.grad(lambda x: (x * hvd.allreduce(jax.lax.stop_gradient(x), op=hvd.Max)).sum())
    for way in both_ways(constant):
        same(way(jnp.full(2, 1.0 + hvd.rank())), np.full(2, 2.0))


@check
def loops_and_branches() -> None:
    import jax
    import jax.numpy as jnp
    from jax import lax

    import syrtos.jax as hvd

    double = lambda x: hvd.allreduce(x, op=hvd.Sum)  # noqa: E731
    scan = lambda x: lax.scan(lambda c, _: (double(c), c), x, None, length=20)  # noqa: E731
    for way in both_ways(scan):
        last, seen = way(jnp.ones(2))
        same(last, np.full(2, 2.0**20))
        same(seen, np.repeat(2.0 ** np.arange(20), 2).reshape(20, 2))
    loop = lambda x: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, double(s[1])), (0, x))  # noqa: E731
    for way in both_ways(loop):
        same(way(jnp.ones(2))[1], np.full(2, 2.0**10))
    branch = lambda p, x: lax.cond(p, double, lambda x: x, x)  # noqa: E731
    for way in both_ways(branch):
        same(way(True, jnp.ones(2)), np.full(2, 2.0))
        same(way(False, jnp.ones(2)), np.ones(2))
    each = lambda x: lax.map(double, x)  # noqa: E731
    for way in both_ways(each):
        same(way(jnp.ones((3, 2))), np.full((3, 2), 2.0))
    steps = jax.grad(lambda x: lax.scan(lambda c, _: (double(c) ** 2, None), x, None, length=2)[0])
    for way in both_ways(steps):
        # y = (2 (2 x)^2)^2 on each rank; each allreduce doubles the gradient on its way back.
        same(way(jnp.array(1.0)), np.array(256.0))


@check
def vmap_is_one_request_for_the_whole_batch() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    shares = [np.arange(32.0).reshape(4, 4, 2) + 100 * r for r in range(RANKS)]
    mine = jnp.asarray(shares[rank])
    cases = [
        (lambda x: hvd.allreduce(x, op=hvd.Sum), lambda s: s[0] + s[1]),
        (lambda x: hvd.broadcast(x, 1), lambda s: s[1]),
        (hvd.allgather, lambda s: np.concatenate(s)),
        (hvd.alltoall, lambda s: np.concatenate([p[2 * rank : 2 * rank + 2] for p in s])),
        (
            lambda x: hvd.reducescatter(x, op=hvd.Sum),
            lambda s: (s[0] + s[1])[2 * rank : 2 * rank + 2],
        ),
    ]
    for function, reference in cases:
        for axis, out in ((0, 0), (2, 1)):
            members = [np.moveaxis(s, axis, 0) for s in shares]
            expected = np.stack(
                [reference([m[i] for m in members]) for i in range(len(members[0]))]
            )
            for way in both_ways(jax.vmap(function, axis, out)):
                same(way(mine), np.moveaxis(expected, 0, out))
    both = jax.vmap(lambda a, b: hvd.grouped_allreduce([a, b], op=hvd.Sum), (0, None))
    for way in both_ways(both):
        a, b = way(jnp.arange(3.0), jnp.array(1.0))
        same(a, 2 * np.arange(3.0))
        same(b, np.full(3, 2.0))
    raises(ValueError, lambda: jax.vmap(hvd.allgather)(jnp.ones(3)), "scalar")
    per_member = jax.vmap(jax.grad(lambda x: hvd.allreduce(x**2, op=hvd.Sum).sum()))
    for way in both_ways(per_member):
        same(way(jnp.ones((3, 2))), np.full((3, 2), 4.0))


@check
def checkpointed_functions_do_their_collectives_again() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    function = jax.checkpoint(lambda x: jnp.sin(hvd.allreduce(x**2, op=hvd.Sum)).sum())
    x = jnp.array([0.3, 0.7])
    for way in both_ways(jax.grad(function)):
        np.testing.assert_allclose(way(x), 2 * np.cos(2 * x**2) * 2 * x, rtol=1e-12)


@check
def unused_and_equal_calls_are_all_made() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    first = hvd.rank() == 0

    @jax.jit
    def step(x: Any) -> Any:
        a = hvd.allreduce(x, op=hvd.Sum)
        b = hvd.allreduce(x, op=hvd.Sum)
        hvd.allreduce(x[0], op=hvd.Sum)
        # The ranks do not use the same ones, yet each makes all three.
        return a if first else b + hvd.allreduce(x, op=hvd.Sum) * 0

    @jax.jit
    def other(x: Any) -> Any:
        a = hvd.allreduce(x, op=hvd.Sum)
        b = hvd.allreduce(x, op=hvd.Sum)
        hvd.allreduce(x[0], op=hvd.Sum)
        hvd.allreduce(x, op=hvd.Sum)
        return a + b

    same((other if first else step)(jnp.ones(2)), np.full(2, 4.0 if first else 2.0))


@check
def programs_and_calls_keep_the_order_of_the_text() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    weights = jnp.eye(600)

    @jax.jit
    def slow(x: Any) -> Any:
        for _ in range(10):
            x = x @ weights
        return hvd.allreduce(x[0], op=hvd.Sum)

    @jax.jit
    def quick(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum)

    for step in range(6):
        x, y, z = jnp.full((600, 600), 1.0 + step), jnp.full(600, 10.0 + step), jnp.full(600, 100.0)
        jax.block_until_ready((x, y, z))
        a = slow(x)
        if hvd.rank() == step % 2:
            time.sleep(0.3)  # long enough for the program to come to its collective
        b = hvd.allreduce(y, op=hvd.Sum)
        c = quick(z)
        d = hvd.allgather_object(step)
        assert d == [step] * RANKS
        same(c, np.full(600, 200.0))
        same(b, np.full(600, 2 * (10.0 + step)))
        same(a, np.full(600, 2 * (1.0 + step)))


@check
def opposite_orders_are_an_error_at_once() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    order = ["first", "second"] if hvd.rank() == 0 else ["second", "first"]

    @jax.jit
    def step(x: Any) -> Any:
        return [hvd.allreduce(x, name=name) for name in order]

    words = ('"first"', '"second"', "same order on every rank")
    raises(jax.errors.JaxRuntimeError, lambda: step(jnp.ones(3)), *words)
    same(jax.jit(hvd.allreduce)(jnp.ones(3)), np.ones(3))

    @jax.jit
    def kinds(x: Any) -> Any:
        if hvd.rank() == 0:
            return hvd.broadcast(hvd.allreduce(x), 0)
        return hvd.allreduce(hvd.broadcast(x, 0))

    raises(jax.errors.JaxRuntimeError, lambda: kinds(jnp.ones(3)), "calls allreduce", "broadcast")
    same(jax.jit(hvd.allreduce)(jnp.ones(3)), np.ones(3))


@check
def process_sets_in_programs() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    only = hvd.add_process_set([1])
    call = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=only))
    gather = jax.jit(lambda x: hvd.allgather(x, process_set=only))
    if hvd.rank() == 1:
        same(call(jnp.ones(2)), np.ones(2))
        same(gather(jnp.ones(2)), np.ones(2))
    else:
        raises(ValueError, lambda: call(jnp.ones(2)), "no member", "ranks=[1]")
    same(jax.jit(hvd.allreduce)(jnp.ones(3)), np.ones(3))
    assert hvd.remove_process_set(only)
    if hvd.rank() == 1:
        raises(jax.errors.JaxRuntimeError, lambda: gather(jnp.ones(2)), "process set")
    raises(ValueError, lambda: hvd.allreduce(jnp.ones(1), process_set=only), "removed")
