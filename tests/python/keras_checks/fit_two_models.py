"""Two models in one program, each with its own compiled step."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_checks import RANKS, assert_same_on_all_ranks, flat
from keras_checks.fit_helpers import fit_check


def make(which: int) -> Any:
    """A model with three variables, or one with two of other shapes."""
    import keras

    keras.utils.set_random_seed(which)
    layers = [[keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1, use_bias=False)]]
    layers += [[keras.layers.Dense(2)]]
    return keras.Sequential([keras.Input((3 + which,)), *layers[which]])


def batch(index: int, which: int, rank: int, rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(100 * index + rank)
    x = rng.normal(size=(rows, 3 + which)).astype("float32")
    return x, (x[:, : 1 + which] * 2).astype("float32")


@fit_check
def two_models_with_steps_of_their_own_do_not_disturb_each_other() -> None:
    import keras

    import syrtos.keras as hvd

    models, alone = ([make(which) for which in range(2)] for _ in range(2))
    for ours, reference in zip(models, alone, strict=True):
        ours.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)), "mse")
        reference.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    # In turn; then the first with other batches, which is traced again; then it alone, twice.
    plan = [(i % 2, 4) for i in range(20)] + [(0, 6), (0, 4), (0, 4), (1, 4)]
    for index, (which, rows) in enumerate(plan):
        batches = [batch(index, which, rank, rows) for rank in range(RANKS)]
        models[which].train_on_batch(*batches[hvd.rank()])
        joined = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
        alone[which].train_on_batch(*joined)
    for ours, reference in zip(models, alone, strict=True):
        np.testing.assert_allclose(flat(ours.weights), flat(reference.weights), atol=1e-5)
        assert_same_on_all_ranks(ours.weights)
