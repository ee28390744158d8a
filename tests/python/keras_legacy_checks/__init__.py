"""What every rank checks of the lane for Keras 2; `test_keras_legacy.py` runs it.

A check is a function that asserts, with the decorator `check`. All of them share one launch with
``TF_USE_LEGACY_KERAS=1``, since importing TensorFlow takes seconds.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

RANKS = 2
CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function that is run on every rank."""
    CHECKS[function.__name__] = function
    return function


def run_checks() -> dict[str, str]:
    """Run on every rank: the tracebacks of the checks that failed, by name."""
    # A rank that fails in the middle of a check must not stop the others for ever.
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "40"
    import tensorflow as tf

    import syrtos.keras as hvd

    # Possible only as long as no import has started TensorFlow's runtime.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    failures = {}
    for name, function in CHECKS.items():
        try:
            function()
        except Exception:
            failures[name] = traceback.format_exc()
        hvd.barrier()
    hvd.shutdown()
    return failures


def flat(variables: list[Any]) -> np.ndarray[Any, Any]:
    """All values of some variables as one vector."""
    values = [np.asarray(variable.numpy()).ravel() for variable in variables]
    return np.concatenate([value.astype("float64") for value in values])


def state_of(optimizer: Any) -> list[Any]:
    """The variables of an optimizer of either kind."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return list(inner.variables())


def assert_same_on_all_ranks(variables: list[Any]) -> None:
    """Bit by bit."""
    import syrtos.keras as hvd

    first, *others = hvd.allgather_object(flat(variables).tobytes())
    assert all(other == first for other in others)


def small_model(seed: int = 1, inputs: int = 8) -> Any:
    """Two hidden layers; the same weights for the same seed."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential(
        [
            tf.keras.Input((inputs,)),
            tf.keras.layers.Dense(16, activation="tanh"),
            tf.keras.layers.Dense(1),
        ]
    )


def data_of(rank: int, rows: int = 32) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """This rank's inputs and targets."""
    rng = np.random.default_rng(rank)
    x = rng.normal(size=(rows, 8)).astype("float32")
    return x, x[:, :1] * (rank + 1)
