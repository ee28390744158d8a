"""What every rank checks of `syrtos.keras`; `test_keras_*.py` run it.

A check is a function that asserts, with a decorator such as `optimizer_check`. Those of one file of
tests share one launch for each backend, since importing TensorFlow takes seconds.
"""

from __future__ import annotations

import importlib.util
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

RANKS = 2
#: Those of `test_keras_optimizer.py`.
OPTIMIZER_CHECKS: dict[str, Callable[[], None]] = {}


def optimizer_check(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function about optimizers that is run on every rank."""
    OPTIMIZER_CHECKS[function.__name__] = function
    return function


def skip_without(backend: str) -> None:
    """Skip a test whose backend of Keras is not installed."""
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")


def begin() -> None:
    """Start Syrtos on this rank, with few threads: the ranks share the machine."""
    # A rank that fails in the middle of a check must not stop the others for ever.
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "40"
    import keras

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        # Possible only as long as no import has started TensorFlow's runtime.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    elif backend == "torch":
        import torch

        torch.set_num_threads(1)
    import syrtos.keras as hvd

    hvd.init()


def attempt(checks: dict[str, Callable[[], None]]) -> dict[str, str]:
    """Run on every rank: the tracebacks of the checks that failed, by name."""
    import syrtos.keras as hvd

    failures = {}
    for name, function in checks.items():
        try:
            function()
        except Exception:
            failures[name] = traceback.format_exc()
        hvd.barrier()
    return failures


def flat(variables: list[Any]) -> np.ndarray[Any, Any]:
    """All values of some variables as one vector."""
    import keras

    values = [np.asarray(keras.ops.convert_to_numpy(v)).ravel() for v in variables]
    return np.concatenate([v.astype("float64") for v in values])


def assert_same_on_all_ranks(variables: list[Any]) -> None:
    """Bit by bit."""
    import syrtos.keras as hvd

    first, *others = hvd.allgather_object(flat(variables).tobytes())
    assert all(other == first for other in others)


def small_model(seed: int = 1, inputs: int = 8) -> Any:
    """Two hidden layers; the same weights for the same seed."""
    import keras

    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
