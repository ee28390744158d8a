"""Training: 200 gradients in one request, optimizers, gradient wrappers, batch statistics."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jax_checks import RANKS, both_ways, check, raises, same


def many_gradients(runs: int) -> None:
    """Reduce 200 gradients by one call in a program, each run with other delays and orders."""
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank, draw = hvd.rank(), random.Random(hvd.rank())
    names = [f"layer_{i}" for i in range(200)]
    params = {name: jnp.full((7, i % 5 + 1), float(i)) for i, name in enumerate(names)}

    def loss(params: Any, x: Any) -> Any:
        return x * sum((p * p).sum() for p in params.values())

    @jax.jit
    def step(params: Any, x: Any) -> Any:
        grads = hvd.allreduce(jax.grad(loss)(params, x), op=hvd.Sum)
        return {name: params[name] - 0.25 * g for name, g in grads.items()}

    for run in range(runs):
        draw.shuffle(names)  # other on each rank: gradients are paired by key
        time.sleep(draw.random() * 0.003)
        result = step({name: params[name] for name in names}, jnp.array(1.0 + rank + run))
        scale = 0.25 * 2 * sum(1.0 + r + run for r in range(RANKS))
        for i in range(200):
            got = np.asarray(result[f"layer_{i}"])
            assert (got == i - scale * i).all(), (run, i, got)


@check
def two_hundred_gradients_in_one_call() -> None:
    many_gradients(100)


def batches(step: int) -> list[tuple[Any, Any]]:
    """A batch for each rank, the same whoever asks."""
    draw = np.random.default_rng(step)
    return [(draw.normal(size=(8, 5)), draw.normal(size=(8, 2))) for _ in range(RANKS)]


def make_params(seed: int) -> dict[str, Any]:
    import jax.numpy as jnp

    draw = np.random.default_rng(seed)
    shapes = {"w1": (5, 16), "b1": (16,), "w2": (16, 2), "b2": (2,)}
    return {name: jnp.asarray(draw.normal(size=s) * 0.3) for name, s in shapes.items()}


def loss_of(params: Any, x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] + params["b2"] - y) ** 2)


def train(optimizer: Any, params: Any, batch_of: Any, steps: int = 50) -> Any:
    import jax
    import optax

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> tuple[Any, Any]:
        grads = jax.grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for number in range(steps):
        params, state = step(params, state, *batch_of(number))
    return params


@functools.cache
def trained_alone(make: Callable[[], Any], steps_per_batch: int) -> Any:
    """Train in this process on the joined batches of all ranks."""

    def joined(number: int) -> tuple[Any, Any]:
        numbers = range(number * steps_per_batch, (number + 1) * steps_per_batch)
        parts = [batch for n in numbers for batch in batches(n)]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    return train(make(), make_params(0), joined)


def check_trained(make: Callable[[], Any], passes: int = 1, **options: Any) -> None:
    """Train on this rank's batches: as alone on the joined ones, and byte-equal on all ranks."""
    import syrtos.jax as hvd

    rank = hvd.rank()
    params = hvd.broadcast_parameters(make_params(rank), root_rank=0)
    optimizer = hvd.DistributedOptimizer(make(), backward_passes_per_step=passes, **options)
    ours = train(optimizer, params, lambda n: batches(n)[rank], 50 * passes)
    alone = trained_alone(make, passes)
    for name, value in alone.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-5, rtol=1e-5, err_msg=name)
        assert not np.allclose(value, make_params(0)[name]), name
    bytes_of_ranks = hvd.allgather_object({k: np.asarray(v).tobytes() for k, v in ours.items()})
    assert bytes_of_ranks[0] == bytes_of_ranks[1]


def adam() -> Any:
    import optax

    return optax.adam(0.01)


def momentum() -> Any:
    import optax

    return optax.sgd(0.1, momentum=0.9)


def clipped() -> Any:
    import optax

    return optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(0.01))


@check
def optimizers_train_as_on_the_joined_batch() -> None:
    for make in (momentum, adam, clipped):
        check_trained(make)
    check_trained(adam, num_groups=3)
    check_trained(adam, groups=[["['w1']", "['b2']"], ["['b1']"]])
    check_trained(adam, gradient_predivide_factor=2.0)


@check
def several_passes_make_one_step() -> None:
    import jax
    import jax.numpy as jnp
    import optax

    import syrtos.jax as hvd

    check_trained(adam, passes=3, average_aggregated_gradients=True)
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=2)
    gradient = jnp.array([1.0 + hvd.rank()])
    for update in both_ways(optimizer.update):
        state = optimizer.init(gradient)
        for expected in (0.0, -3.0, 0.0, -3.0):  # the mean over ranks of the sum of two passes
            updates, state = update(gradient, state)
            same(updates, np.array([expected]))
    assert jax.tree_util.tree_structure(hvd.broadcast_optimizer_state(state, 1)) == (
        jax.tree_util.tree_structure(state)
    )


@check
def optimizer_states_come_from_the_root() -> None:
    import jax
    import jax.numpy as jnp
    import optax

    import syrtos.jax as hvd

    optimizer = hvd.DistributedOptimizer(optax.adam(0.1))
    assert jax.tree_util.tree_structure(optimizer.init(jnp.ones(2))) == (
        jax.tree_util.tree_structure(optax.adam(0.1).init(jnp.ones(2)))
    )
    state = optax.adam(0.1).init(jnp.ones(2))
    for _ in range(hvd.rank() + 1):
        _, state = optax.adam(0.1).update(jnp.full(2, hvd.rank() + 1.0), state)
    adam = hvd.broadcast_optimizer_state(state, root_rank=1)[0]
    same(adam.count, np.array(2, np.int32))
    np.testing.assert_allclose(adam.mu, np.full(2, 2.0 * (1 - 0.9**2)), rtol=1e-12)


@check
def gradient_wrappers() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    x = {"a": jnp.array([1.0 + rank]), "b": jnp.array(2.0)}
    loss = lambda p, s: (s * (p["a"] ** 2).sum() + p["b"], p["b"])  # noqa: E731
    for way in both_ways(hvd.value_and_grad(loss, has_aux=True)):
        (value, aux), grads = way(x, 3.0)
        assert (float(value), float(aux)) == (3.0 * (1 + rank) ** 2 + 2, 2.0)
        same(grads["a"], np.array([(6.0 + 12.0) / 2]))
    for way in both_ways(hvd.value_and_grad(loss, has_aux=True, average_value=True, op=hvd.Sum)):
        (value, _), grads = way(x, 3.0)
        assert float(value) == (5.0 + 14.0) / 2
        same(grads["a"], np.array([18.0]))
        same(grads["b"], np.array(2.0))
    for way in both_ways(hvd.grad(lambda p, s: loss(p, s)[0], argnums=(0, 1))):
        of_x, of_s = way(x, 3.0)
        same(of_s, np.array((1.0 + 4.0) / 2))
        same(of_x["b"], np.array(1.0))
    grads, aux = hvd.grad(loss, has_aux=True)(x, 3.0)
    same(grads["b"], np.array(1.0))
    assert float(aux) == 2.0
    for way in both_ways(hvd.grad(lambda t: t["x"] ** 2, allow_int=True)):
        result = way({"x": jnp.array(3.0), "n": jnp.array(1)})
        same(result["x"], np.array(6.0))
        assert result["n"].dtype == jax.dtypes.float0
    raises(ValueError, lambda: hvd.DistributedOptimizer(None, op=hvd.Max), "Average, Sum or Adasum")
    raises(ValueError, lambda: hvd.grad(loss, num_groups=-1), "num_groups=-1")
    raises(ValueError, lambda: hvd.grad(loss, num_groups=1, groups=[["a"]]), "give one")
    raises(ValueError, lambda: hvd.grad(loss, groups=[["a"], ["a"]]), "listed twice")
    raises(ValueError, lambda: hvd.grad(loss, groups=["a"]), "lists of paths")
    raises(ValueError, lambda: hvd.grad(loss, op=hvd.Sum, gradient_predivide_factor=2.0), "Average")
    wrong = hvd.grad(lambda p: p["a"].sum(), groups=[["['c']"]])
    raises(ValueError, lambda: wrong(x), "no gradient at ['c']", "['a'], ['b']")


@check
def batch_statistics_are_those_of_the_joined_batch() -> None:
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    rank = hvd.rank()
    draw = np.random.default_rng(3)
    shares = [draw.normal(2.0, 3.0, size=(4, 3, 5)) for _ in range(RANKS)]
    weights = [draw.normal(size=(4, 3, 5)) for _ in range(RANKS)]

    def normalized(x: Any, mean: Any, variance: Any) -> Any:
        return (x - mean) / jnp.sqrt(variance + 1e-5)

    def loss(x: Any) -> Any:
        return (weights[rank] * normalized(x, *hvd.sync_batch_stats(x))).sum()

    def reference(x: Any) -> Any:
        flat = x.reshape(-1, 5)
        y = normalized(x, flat.mean(0), flat.var(0))
        return (np.concatenate(weights) * y).sum()

    joined = jnp.asarray(np.concatenate(shares))
    expected = jax.jit(jax.grad(reference))(joined)[4 * rank : 4 * rank + 4]
    for way in both_ways(jax.grad(loss)):
        np.testing.assert_allclose(way(jnp.asarray(shares[rank])), expected, atol=1e-10)
    for way in both_ways(hvd.sync_batch_stats):
        mean, variance = way(jnp.asarray(shares[rank], jnp.float32))
        assert mean.dtype == np.float32
        flat = np.concatenate(shares).reshape(-1, 5)
        np.testing.assert_allclose(mean, flat.mean(0), atol=1e-5)
        np.testing.assert_allclose(variance, flat.var(0), atol=1e-5)
    uneven = jnp.arange(3.0)[: 3 * rank]  # rank 0 has nothing
    mean, variance = hvd.sync_batch_stats(uneven[:, None])
    same(mean, np.array([1.0]))
    np.testing.assert_allclose(variance, [2 / 3], rtol=1e-12)
    assert hvd.sync_batch_stats(jnp.ones((2, 3, 4)), axis=(0, -1))[0].shape == (3,)
    raises(ValueError, lambda: hvd.sync_batch_stats(jnp.array(1.0)), "scalar")
