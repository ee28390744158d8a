"""The TensorFlow front end: all of `tensorflow_checks` in one launch of two ranks."""

from __future__ import annotations

import functools

import pytest
import tensorflow_checks.adasum
import tensorflow_checks.batch_norm
import tensorflow_checks.errors
import tensorflow_checks.graphs
import tensorflow_checks.sessions
import tensorflow_checks.tapes
import tensorflow_checks.v1_optimizers
import tensorflow_checks.values  # noqa: F401
from ranks import run_ranks
from tensorflow_checks import CHECKS, RANKS, run_checks

pytestmark = pytest.mark.tensorflow


def body() -> dict[str, str]:
    import tensorflow_checks.adasum
    import tensorflow_checks.batch_norm
    import tensorflow_checks.graphs
    import tensorflow_checks.sessions
    import tensorflow_checks.tapes
    import tensorflow_checks.v1_optimizers  # isort: skip
    import tensorflow_checks.errors  # noqa: F401  # isort: skip (it ends the engine)

    return run_checks()


@functools.cache
def launch() -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=280)
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str) -> None:
    outcome = launch()
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())
