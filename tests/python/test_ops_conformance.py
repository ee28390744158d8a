"""Runs the checks of `conformance` on every front end; one launch for each number of ranks."""

from __future__ import annotations

import functools

import conformance.agreements
import conformance.movements
import conformance.reductions  # noqa: F401
import pytest
from conformance import CHECKS, run_checks
from conformance.front_ends import LOADERS
from ranks import run_ranks

# A framework takes seconds to import: two ranks of it are enough.
CASES = [
    pytest.param(name, ranks, id=f"{name}-{ranks}", marks=marks)
    for name in LOADERS
    for marks in ([] if name == "numpy" else [getattr(pytest.mark, name)],)
    for ranks in ((1, 2, 3) if name == "numpy" else (2,))
]


def body(front_end: str) -> dict[str, str | None]:
    import conformance.agreements
    import conformance.movements
    import conformance.reductions  # noqa: F401

    return run_checks(front_end)


@functools.cache
def launch(front_end: str, ranks: int) -> list[dict[str, str | None]] | Exception:
    try:
        return run_ranks(body, ranks, front_end, timeout=180.0)
    except Exception as error:  # every check of this launch reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("front_end", "ranks"), CASES)
def test_conformance(check: str, front_end: str, ranks: int) -> None:
    outcome = launch(front_end, ranks)
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if result[check]}
    assert not failures, "\n".join(f"rank {rank}: {text}" for rank, text in failures.items())
