"""`DistributedOptimizer` and `wrap`: all of `torch_optimizer_checks`, in two launches."""

from __future__ import annotations

import functools
import importlib

import pytest
from ranks import run_ranks
from torch_optimizer_checks import CHECKS, ON_THREE_RANKS, RANKS, run_checks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

MODULES = (
    "adasum",
    "arguments",
    "compiling",
    "copies",
    "gradients",
    "matrix",
    "order",
    "patterns",
    "process_sets",
    "scaling",
    "wrapping",
)


def load() -> None:
    """Import the modules that hold the checks; also called on the ranks."""
    for module in MODULES:
        importlib.import_module(f"torch_optimizer_checks.{module}")


load()


def body(ranks: int) -> dict[str, str]:
    load()
    return run_checks(CHECKS if ranks == RANKS else ON_THREE_RANKS)


@functools.cache
def launch(ranks: int) -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, ranks, ranks, timeout=280)
    except Exception as error:  # every check reports it
        return error


def judge(check: str, ranks: int) -> None:
    outcome = launch(ranks)
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str) -> None:
    judge(check, RANKS)


@pytest.mark.parametrize("check", ON_THREE_RANKS)
def test_on_three_ranks(check: str) -> None:
    judge(check, 3)
