"""The list of checks, and how one launch runs all of them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from conformance.front_ends import FrontEnd, load

Check = Callable[[FrontEnd], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def raises(kind: type[BaseException], call: Callable[[], Any], *words: str) -> None:
    """Assert that a call raises an error of this kind whose text has all these words."""
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def run_checks(front_end: str) -> dict[str, str | None]:
    """Run on every rank: each check's traceback, or None if it passed."""
    # A rank that fails in the middle of a check must not stop the others for ever.
    os.environ["SYRTOS_STALL_SHUTDOWN_TIME_SECONDS"] = "20"
    front = load(front_end)
    front.hvd.init()
    outcome: dict[str, str | None] = {}
    for name, function in CHECKS.items():
        try:
            function(front)
            outcome[name] = None
        except Exception:
            outcome[name] = traceback.format_exc()
        front.hvd.barrier()
    front.hvd.shutdown()
    return outcome
