"""``fit`` with the callbacks of `syrtos.keras`: one launch of two ranks for each backend."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import keras_checks.fit_data
import keras_checks.fit_decisions
import keras_checks.fit_metrics
import keras_checks.fit_rates
import keras_checks.fit_together
import keras_checks.fit_two_models  # noqa: F401
import pytest
from keras_checks import RANKS, skip_without
from keras_checks.fit_helpers import FIT_CHECKS
from ranks import run_ranks

from syrtos.errors import ShutdownError

BACKENDS = ("tensorflow", "torch", "jax")
pytestmark = [pytest.mark.keras, pytest.mark.timeout(900)]


def body() -> dict[str, str]:
    import keras_checks.fit_data
    import keras_checks.fit_decisions
    import keras_checks.fit_metrics
    import keras_checks.fit_rates
    import keras_checks.fit_together
    import keras_checks.fit_two_models  # noqa: F401
    from keras_checks import attempt, begin
    from keras_checks.fit_helpers import FIT_CHECKS

    begin()
    failures = attempt(FIT_CHECKS)

    import syrtos.keras as hvd

    hvd.shutdown()
    return failures


@functools.cache
def launch(backend: str) -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=850, env={"KERAS_BACKEND": backend})
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("check", FIT_CHECKS)
def test_on_two_ranks(backend: str, check: str) -> None:
    skip_without(backend)
    outcome = launch(backend)
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


def alone_stops() -> None:
    """Rank 0 stops; the other, which has no callback that would tell it, goes on."""
    from keras_checks import begin
    from keras_checks.fit_helpers import compiled, data_of

    begin()
    import keras

    import syrtos.keras as hvd

    stop = keras.callbacks.EarlyStopping(monitor="loss", min_delta=100.0, patience=0)
    callbacks = [stop] if hvd.rank() == 0 else []
    model = compiled(keras.optimizers.SGD(0.01))
    model.fit(*data_of(0), epochs=5, verbose=0, callbacks=callbacks)
    hvd.shutdown()


def test_a_stop_on_one_rank_is_an_error_without_the_callbacks() -> None:
    skip_without("torch")
    with pytest.raises(ShutdownError, match="rank 0 .*has shut down"):
        run_ranks(alone_stops, RANKS, timeout=120, env={"KERAS_BACKEND": "torch"})


EXAMPLES = """
import doctest, importlib, sys
import syrtos.keras

for name in sys.argv[1:]:
    result = doctest.testmod(importlib.import_module(f"syrtos.keras.{name}"))
    assert result.attempted > 0 and result.failed == 0, (name, result)
"""


def test_the_examples_in_the_docstrings_work() -> None:
    skip_without("torch")
    names = ["fit_arguments", "functions", "hooks", "optimizer", "sharding"]
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES, *names],
        env={**os.environ, "KERAS_BACKEND": "torch"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
