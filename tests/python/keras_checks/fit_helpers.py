"""What the checks of `test_keras_fit.py` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_checks import small_model

FIT_CHECKS: dict[str, Callable[[], None]] = {}

Array = np.ndarray[Any, Any]


def fit_check(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function that every rank runs, with each backend."""
    FIT_CHECKS[function.__name__] = function
    return function


def data_of(rank: int, rows: int = 32) -> tuple[Array, Array]:
    rng = np.random.default_rng(100 + rank)
    x = rng.normal(size=(rows, 8)).astype("float32")
    return x, (x[:, :1] * (rank + 1) + np.sin(3 * x[:, 1:2])).astype("float32")


def compiled(optimizer: Any, seed: int = 1, model: Any = None, **options: Any) -> Any:
    """A model that reduces its gradients over the ranks."""
    import syrtos.keras as hvd

    model = small_model(seed) if model is None else model
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss="mse", **options)
    return model


def together() -> list[Any]:
    """The two callbacks of every script."""
    import syrtos.keras as hvd

    return [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]


def numbers(logs: Any) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}
