"""Two models in one program, each with its own compiled step."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_checks import RANKS, check


@check
def two_models_with_steps_of_their_own_do_not_disturb_each_other() -> None:
    import jax
    import jax.numpy as jnp
    import optax

    import syrtos.jax as hvd

    rate = 0.1
    # Three parameters, and two of other shapes; "w" is in both.
    models: list[dict[str, Any]] = [
        {"w": jnp.full((2, 3), 0.5), "b": jnp.full((3,), 0.5), "scale": jnp.array(0.5)},
        {"w": jnp.full((5,), 0.5), "v": jnp.full((1, 2), 0.5)},
    ]
    alone = list(models)

    def loss_of(params: dict[str, Any], x: Any) -> Any:
        return sum(jnp.mean((value * jnp.mean(x) - 1.0) ** 2) for value in params.values())

    def make_step() -> Any:
        optimizer = hvd.DistributedOptimizer(optax.sgd(rate))

        @jax.jit
        def step(params: Any, x: Any) -> Any:
            updates, _ = optimizer.update(jax.grad(loss_of)(params, x), optimizer.init(params))
            return optax.apply_updates(params, updates)

        return step

    steps = [make_step(), make_step()]
    # In turn; then the first with other batches, on one rank first, which is traced again; then it
    # alone, twice.
    sizes = [(4, 4)] * 40 + [(4, 5), (7, 5), (4, 4), (4, 4)]
    for index, rows in enumerate(sizes):
        which = index % 2 if index < 40 else 0
        batches = [np.full(count, 0.1 * index + rank) for rank, count in enumerate(rows)]
        models[which] = steps[which](models[which], batches[hvd.rank()])
        grads = [jax.grad(loss_of)(alone[which], batches[rank]) for rank in range(RANKS)]
        alone[which] = jax.tree.map(
            lambda value, *of_ranks: value - rate * sum(of_ranks) / RANKS, alone[which], *grads
        )
    for ours, reference in zip(models, alone, strict=True):
        for name, value in reference.items():
            np.testing.assert_allclose(ours[name], value, atol=1e-5, err_msg=name)
