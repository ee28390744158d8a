"""`DistributedOptimizer` of the Keras front end: one launch of two ranks for each backend.

CI trains a tenth of the combinations of optimizers and options, ``./dev soak`` (SYRTOS_SOAK=1) all.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import keras_checks.optimizer_files
import keras_checks.optimizer_models
import keras_checks.optimizer_steps  # noqa: F401
import pytest
from keras_checks import OPTIMIZER_CHECKS, RANKS, skip_without
from keras_checks.optimizer_matrix import cases_of
from ranks import run_ranks

import syrtos

pytestmark = [pytest.mark.keras, pytest.mark.slow, pytest.mark.timeout(900)]

FULL = os.environ.get("SYRTOS_SOAK") == "1"
SEED = int(os.environ.get("SYRTOS_SOAK_SEED", "0"))
BACKENDS = ("tensorflow", "torch", "jax")


def cases(backend: str) -> list[str]:
    return cases_of(backend, None if FULL else SEED)


def body(trained: list[str]) -> dict[str, str]:
    import keras_checks.optimizer_files
    import keras_checks.optimizer_models
    import keras_checks.optimizer_steps  # noqa: F401
    from keras_checks import attempt, begin
    from keras_checks.optimizer_matrix import run_matrix

    begin()
    failures = attempt(OPTIMIZER_CHECKS) | run_matrix(trained)

    import syrtos.keras as hvd

    hvd.shutdown()
    return failures


@functools.cache
def launch(backend: str) -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, cases(backend), timeout=850, env={"KERAS_BACKEND": backend})
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize(
    ("backend", "check"),
    [(backend, one) for backend in BACKENDS for one in [*OPTIMIZER_CHECKS, *cases(backend)]],
)
def test_on_two_ranks(backend: str, check: str) -> None:
    skip_without(backend)
    outcome = launch(backend)
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_framework_but_the_backend_is_imported(backend: str) -> None:
    skip_without(backend)
    script = """
import sys, keras
frameworks = {"tensorflow", "torch", "jax"}
before = frameworks & set(sys.modules)
import syrtos.keras
print(sorted(frameworks & set(sys.modules) - before), syrtos.keras.DistributedOptimizer.__module__)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stdout.split("\n")[0] == "[] syrtos.keras.optimizer"


def test_another_backend_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import syrtos.keras"],
        env={**os.environ, "KERAS_BACKEND": "numpy"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert "works with the Keras backends tensorflow, torch and jax; this process uses numpy" in (
        done.stderr
    )


def functions_of(tree: ast.AST) -> dict[str, list[str]]:
    """The names of the arguments of each function, without `self`."""
    return {
        node.name: [
            one.arg for one in [*node.args.args, *node.args.kwonlyargs] if one.arg != "self"
        ]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_backends_keep_to_one_contract(backend: str) -> None:
    folder = Path(syrtos.__file__).parent / "keras" / "backends"
    contract = functions_of(ast.parse((folder / "__init__.py").read_text()))
    tree = ast.parse((folder / f"{backend}.py").read_text())
    (names,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert set(names) == {*contract, "COMPILES_COLLECTIVES"}
    for name, arguments in functions_of(tree).items():
        assert name.startswith("_") or arguments == contract[name], name
