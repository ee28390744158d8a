"""What every rank checks of the TensorFlow front end; `test_tensorflow.py` runs it.

A check is a function that asserts, with the decorator `check`. All of them share one launch, since
importing TensorFlow takes seconds.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
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
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "20"
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    # Possible only as long as no import has started TensorFlow's runtime.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    failures = {}
    for name, function in CHECKS.items():
        try:
            function()
        except Exception:
            failures[name] = traceback.format_exc()
    hvd.shutdown()
    return failures


FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
ALL_TYPES = (*FLOATS, *INTEGERS, *COMPLEX, "bool")


def values_of(rank: int, dtype: str, rows: int = 3) -> np.ndarray[Any, Any]:
    """Small whole numbers: exact in every type and in any order of summation."""
    numbers = np.arange(rows * 4).reshape(rows, 4) % 5 + rank
    if dtype == "bool":
        return (numbers % 2).astype(bool)
    if dtype in COMPLEX:
        return (numbers + 1j * (rank + 1)).astype(dtype)
    return numbers.astype("float32" if dtype == "bfloat16" else dtype)


def tensor_of(rank: int, dtype: str, rows: int = 3) -> Any:
    import tensorflow as tf

    return tf.cast(values_of(rank, dtype, rows), dtype)


def assert_equal(tensor: Any, dtype: str, expected: np.ndarray[Any, Any]) -> None:
    assert tensor.dtype.name == dtype, (tensor.dtype, dtype)
    np.testing.assert_array_equal(tensor.numpy().astype(expected.dtype), expected, err_msg=dtype)


def both_ways(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The function as it is, and as a graph."""
    import tensorflow as tf

    yield function
    yield tf.function(function)
