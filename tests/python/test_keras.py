"""The Keras front end: all of `keras_checks` in one launch of two ranks."""

from __future__ import annotations

import functools

import keras_checks.matrix
import keras_checks.optimizers
import keras_checks.training  # noqa: F401
import pytest
from keras_checks import CHECKS, RANKS, run_checks
from ranks import run_ranks

pytestmark = [pytest.mark.keras, pytest.mark.timeout(420)]


def body() -> dict[str, str]:
    import keras_checks.matrix
    import keras_checks.optimizers
    import keras_checks.training  # noqa: F401

    return run_checks()


@functools.cache
def launch() -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=400)
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str) -> None:
    outcome = launch()
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())
