"""What every rank checks of the PyTorch front end; `test_torch.py` runs it.

A check is a function that asserts, with the decorator `check`. All of them share one launch, since
importing torch takes seconds. Expected values come from NumPy, a formula, or torch in one process.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest

RANKS = 2
CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Add a function that is run on every rank."""
    assert function.__name__ not in CHECKS, function.__name__
    CHECKS[function.__name__] = function
    return function


def raises(kind: type[BaseException], call: Callable[[], Any], *words: str) -> None:
    """Assert that a call raises an error of this kind whose text has all these words."""
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def run_checks() -> dict[str, str]:
    """Run on every rank: the tracebacks of the checks that failed, by name."""
    # A rank that fails in the middle of a check must not stop the others for ever.
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "20"
    import torch

    import syrtos.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    failures = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        try:
            function()
        except Exception:
            failures[name] = traceback.format_exc()
        hvd.barrier()
    hvd.shutdown()
    return failures
