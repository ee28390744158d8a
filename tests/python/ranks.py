"""Runs test functions on several ranks, and lets ranks fail or lag on purpose.

Rank functions may import this module too, so it imports nothing heavy.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

KILL = "SYRTOS_TEST_KILL_AT"
DELAY = "SYRTOS_TEST_DELAY_AT"


def run_ranks(
    function: Callable[..., Any],
    n: int,
    *args: Any,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> list[Any]:
    """Run a function on `n` ranks and return their results.

    After `timeout` seconds every rank's stacks are printed and all ranks are killed. The function's
    module travels by value, so the ranks need not import the test module.
    """
    import cloudpickle

    import syrtos

    module = sys.modules.get(function.__module__)
    if module is not None and function.__module__ != "__main__":
        cloudpickle.register_pickle_by_value(module)
    return syrtos.run(function, args, kwargs, np=n, env=env, timeout=timeout)


def rank() -> int:
    """Return this process's rank, without the engine."""
    return int(os.environ["SYRTOS_RANK"])


def kill_at(rank: int, step: int) -> dict[str, str]:
    """Return the environment in which `rank` kills itself when it comes to `step`."""
    return {KILL: f"{rank}:{step}"}


def delay_at(rank: int, step: int, seconds: float) -> dict[str, str]:
    """Return the environment in which `rank` sleeps when it comes to `step`."""
    return {DELAY: f"{rank}:{step}:{seconds}"}


def at_step(step: int) -> None:
    """Do what the environment asks of this rank at this step; to be called by rank functions."""
    here = f"{os.environ['SYRTOS_RANK']}:{step}"
    if os.environ.get(KILL) == here:
        sys.stdout.flush()
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    who, _, seconds = os.environ.get(DELAY, "").rpartition(":")
    if who == here:
        time.sleep(float(seconds))
