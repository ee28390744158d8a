"""``elastic`` of `syrtos.keras` under Horovod's names: one launch of two ranks for each backend."""

from __future__ import annotations

import functools

import pytest
from keras_checks import RANKS, skip_without
from keras_checks.elastic_states import CHECKS
from ranks import run_ranks

BACKENDS = ("tensorflow", "torch", "jax")
pytestmark = [pytest.mark.keras, pytest.mark.timeout(420)]


def body() -> dict[str, str]:
    import keras
    from keras_checks import attempt, begin
    from keras_checks.elastic_states import CHECKS

    import horovod.keras as hvd  # first: it sets what `init` reads

    begin()
    if keras.backend.backend() == "tensorflow":
        import horovod.tensorflow.keras.elastic

        assert horovod.tensorflow.keras.elastic is hvd.elastic
    failures = attempt(CHECKS)
    hvd.shutdown()
    return failures


@functools.cache
def launch(backend: str) -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=400, env={"KERAS_BACKEND": backend})
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(backend: str, check: str) -> None:
    skip_without(backend)
    outcome = launch(backend)
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())
