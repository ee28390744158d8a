"""Threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


def in_thread(
    target: Callable[..., object],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a function on a thread of its own.

    Parameters
    ----------
    target, args
        What to call.
    name : str, optional
        Of the thread.
    daemon : bool
        Whether the process may end before it.
    silent : bool
        Whether its exceptions are dropped.

    Returns
    -------
    threading.Thread
        The thread, running.

    Raises
    ------
    ValueError
        `args` is no tuple.
    """
    if not isinstance(args, tuple):
        raise ValueError(f"args={args!r} is no tuple: for one argument write (argument,)")

    def quietly(*values: Any) -> None:
        with contextlib.suppress(Exception):
            target(*values)

    body = quietly if silent else target
    thread = threading.Thread(target=body, args=args, name=name, daemon=daemon)
    thread.start()
    return thread
