"""Training on two ranks with half batches equals training in one process with whole batches."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from keras_checks import CHECKS, RANKS, flat

STEPS, BATCH, FEATURES = 50, 32, 8

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"learning_rate": 0.02, "momentum": 0.9}),
    "adam": ("Adam", {"learning_rate": 0.01}),
    "adamw": ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.05}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipnorm": {"clipnorm": 0.3},
    "global_clipnorm": {"global_clipnorm": 0.3},
    "accumulation": {"gradient_accumulation_steps": 4},
    "ema": {"use_ema": True, "ema_momentum": 0.9},
}


def make_model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(16, activation="tanh")
    return keras.Sequential([keras.Input((FEATURES,)), hidden, keras.layers.Dense(1)])


def train(optimizer: str, option: str, distributed: bool) -> np.ndarray[Any, Any]:
    import keras

    import syrtos.keras as hvd

    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * BATCH, FEATURES)).astype("float32")
    y = (x @ rng.normal(size=(FEATURES, 1)) + rng.normal(size=(len(x), 1)) / 10).astype("float32")
    batch = BATCH
    name, arguments = OPTIMIZERS[optimizer]
    built = getattr(keras.optimizers, name)(**arguments, **OPTIONS[option])
    if distributed:
        batch //= RANKS
        x, y = (
            a.reshape(STEPS, RANKS, batch, -1)[:, hvd.rank()].reshape(STEPS * batch, -1)
            for a in (x, y)
        )
        built = hvd.DistributedOptimizer(built)
    model = make_model()
    model.compile(optimizer=built, loss="mse")
    model.fit(x, y, batch_size=batch, shuffle=False, epochs=1, verbose=0)
    return flat(model.weights)


@functools.cache
def trained() -> dict[tuple[str, str], tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]]:
    """For each case the weights of each rank, and those of one process."""
    import syrtos.keras as hvd

    cases = [(optimizer, option) for optimizer in OPTIMIZERS for option in OPTIONS]
    mine = {case: train(*case, distributed=True) for case in cases}
    # The ranks share the work of the references.
    alone = {case: train(*case, distributed=False) for case in cases[hvd.rank() :: RANKS]}
    of_ranks = hvd.allgather_object((mine, alone))
    references = {case: weights for _, part in of_ranks for case, weights in part.items()}
    return {case: ([part[case] for part, _ in of_ranks], references[case]) for case in cases}


def _check_case(optimizer: str, option: str) -> None:
    weights, reference = trained()[optimizer, option]
    assert weights[0].tobytes() == weights[1].tobytes()
    assert np.abs(weights[0] - reference).max() <= 1e-5
    assert np.abs(reference - flat(make_model().weights)).max() > 0.01  # it has learned


for _optimizer in OPTIMIZERS:
    for _option in OPTIONS:
        CHECKS[f"{_optimizer}_with_{_option}_equals_one_process"] = functools.partial(
            _check_case, _optimizer, _option
        )
