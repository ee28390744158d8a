"""What every rank checks of collectives in programs that TensorFlow's XLA compiles.

`test_tensorflow_xla.py` runs it, once for each of XLA's two interfaces. All checks of a launch
share it, since importing TensorFlow takes seconds. Expected values come from NumPy or a formula.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

RANKS = 2
CHECKS: dict[str, Callable[[], None]] = {}
LAST: set[str] = set()


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function that is run on every rank."""
    assert function.__name__ not in CHECKS, function.__name__
    CHECKS[function.__name__] = function
    return function


def last_check(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function that ends the engine, to be run after all others."""
    LAST.add(function.__name__)
    return check(function)


def compiled(function: Callable[..., Any]) -> Any:
    """The function as a program of XLA."""
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


def same(result: Any, expected: Any) -> None:
    """Equal in shape and every element."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    np.testing.assert_array_equal(result.astype(expected.dtype), expected)


def raises(kind: Any, call: Callable[[], Any], *words: str) -> None:
    """Assert that a call raises an error of this kind whose text has all these words."""
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def is_typed() -> bool:
    """Whether calls go through XLA's typed interface, whose errors have classes."""
    import tensorflow as tf

    from syrtos.tensorflow import _xla_library

    return _xla_library.is_typed(tf.__version__)


def error_class(typed: str) -> Any:
    """The class of an error: that of the typed interface, or the only one of the other."""
    import tensorflow as tf

    return getattr(tf.errors, typed if is_typed() else "InternalError")


def start(threads: int, untyped: bool) -> None:
    """Start the engine, with TensorFlow's pools of this size and one of XLA's interfaces."""
    # A rank that fails in the middle of a check must not stop the others for ever.
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "20"
    import tensorflow as tf

    import syrtos.tensorflow as hvd
    from syrtos.tensorflow import _xla_library

    # Possible only as long as no import has started TensorFlow's runtime.
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if untyped:  # as in releases that have no typed interface
        _xla_library.is_typed = lambda version: False
    hvd.init()


def run_checks(threads: int, untyped: bool) -> dict[str, str]:
    """Run on every rank: the tracebacks of the checks that failed, by name."""
    start(threads, untyped)
    import syrtos.tensorflow as hvd

    failures = {}
    for name in sorted(CHECKS, key=LAST.__contains__):
        try:
            CHECKS[name]()
        except Exception:
            failures[name] = traceback.format_exc()
        if name not in LAST:
            hvd.barrier()
    hvd.shutdown()
    return failures
