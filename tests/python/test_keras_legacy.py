"""The lane for Keras 2: all of `keras_legacy_checks` in one launch of two ranks."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest
from ranks import run_ranks

pytest.importorskip("tf_keras")

import keras_legacy_checks.graphs
import keras_legacy_checks.optimizers
import keras_legacy_checks.state
import keras_legacy_checks.together
import keras_legacy_checks.training  # noqa: F401
from keras_legacy_checks import CHECKS, RANKS, run_checks

pytestmark = [pytest.mark.keras, pytest.mark.timeout(900)]


def body() -> dict[str, str]:
    import keras_legacy_checks.graphs
    import keras_legacy_checks.optimizers
    import keras_legacy_checks.state
    import keras_legacy_checks.together
    import keras_legacy_checks.training  # noqa: F401

    return run_checks()


@functools.cache
def launch() -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=850, env={"TF_USE_LEGACY_KERAS": "1"})
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str) -> None:
    outcome = launch()
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


def test_a_missing_tf_keras_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['tf_keras'] = None; import syrtos.keras"],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert "TF_USE_LEGACY_KERAS asks for Keras 2" in done.stderr
    assert "Install the tf-keras of TensorFlow's minor version" in done.stderr
