"""Catches the exception that ends a script, so that the other ranks can be told."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["describe", "install"]

Tell = Callable[[str, int | None], None]


def describe(error: BaseException, where: TracebackType | None) -> str:
    """Return ``ZeroDivisionError: division by zero at train.py:12``.

    Parameters
    ----------
    error : BaseException
        The exception.
    where : traceback or None
        Its traceback; the innermost frame is named.
    """
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = traceback.extract_tb(where)
    if not frames:
        return text
    return f"{text} at {frames[-1].filename}:{frames[-1].lineno}"


def _quietly(tell: Tell, error: BaseException | None, where: Any, thread: int | None) -> None:
    """Tell, but never hide the user's own traceback behind a failure of ours."""
    if error is None or isinstance(error, SystemExit) or hasattr(sys, "ps1"):
        return  # at an interactive prompt the process goes on
    try:
        tell(describe(error, where), thread)
    except Exception as failure:
        print(f"syrtos: the other ranks could not be told: {failure}", file=sys.stderr)


def install(tell: Tell) -> None:
    """Chain onto ``sys.excepthook`` and ``threading.excepthook``.

    Parameters
    ----------
    tell : callable
        Called with the text and the identity of the thread (None for the main thread), before the
        hook that was there.
    """
    main_hook = sys.excepthook
    thread_hook = threading.excepthook

    def on_main(
        kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:
        _quietly(tell, error, where, None)
        main_hook(kind, error, where)

    def on_thread(arguments: threading.ExceptHookArgs) -> None:
        thread = arguments.thread.ident if arguments.thread is not None else None
        if thread is not None:
            _quietly(tell, arguments.exc_value, arguments.exc_traceback, thread)
        thread_hook(arguments)

    sys.excepthook = on_main
    threading.excepthook = on_thread
