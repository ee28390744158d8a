"""What every rank checks of the JAX front end; `test_jax.py` runs it.

A check is a function that asserts, with the decorator `check`. All of them share one launch, since
importing JAX takes seconds. Expected values come from NumPy, a formula, or JAX in one process.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
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


def raises(kind: type[BaseException], call: Callable[[], Any], *words: str) -> None:
    """Assert that a call raises an error of this kind whose text has all these words."""
    import jax

    with pytest.raises(kind) as caught:
        jax.block_until_ready(call())
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def both_ways(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The function as it is, and compiled."""
    import jax

    yield function
    yield jax.jit(function)


def same(result: Any, expected: Any) -> None:
    """Equal in dtype, shape and every element."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)


def run_checks() -> dict[str, str]:
    """Run on every rank: the tracebacks of the checks that failed, by name."""
    # A rank that fails in the middle of a check must not stop the others for ever.
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "20"
    import jax

    import syrtos.jax as hvd

    jax.config.update("jax_enable_x64", True)
    hvd.init()
    failures = {}
    for name in sorted(CHECKS, key=LAST.__contains__):
        try:
            CHECKS[name]()
        except Exception:
            failures[name] = traceback.format_exc()
        hvd.barrier()
    hvd.shutdown()
    return failures
