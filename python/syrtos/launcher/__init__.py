"""The launcher: starts the ranks of a job, passes their output on and leaves nothing behind.

In reading order: ``cli`` (what ``syrtosrun`` accepts) and ``run_function`` (``syrtos.run``) make a
``hosts`` table and an ``environment`` for each rank, and hand both to a ``job``. The job drives a
``starter`` (one file per way to start: ``local``) and feeds the ranks' bytes to ``output``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syrtos.launcher.run_function import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    """Load ``run`` when it is asked for: ``syrtosrun`` starts faster without it."""
    if name == "run":
        from syrtos.launcher.run_function import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
