"""Runs a training function again after a failure, from the last commit."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from syrtos import _basics
from syrtos.elastic.notifications import HostsUpdatedInterrupt, notification_manager
from syrtos.errors import HorovodInternalError, SyrtosError

__all__ = ["run", "run_fn"]

_log = logging.getLogger("syrtos")

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

#: So many failures in a row without a commit in between, and it is no accident any more.
PATIENCE = 10


def _is_recoverable(error: SyrtosError) -> bool:
    # The base class itself is raised by nobody but users, under Horovod's name for "start again".
    return error.recoverable or type(error) is HorovodInternalError


class _Failures:
    """Counts failures between two commits of a state."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._commits = self._count()
        self._failures = 0

    def _count(self) -> int:
        return getattr(self._state, "_commits", 0)

    def add(self, error: SyrtosError) -> None:
        """Count one, and raise it if that was once too often."""
        commits = self._count()
        self._failures = 1 if commits != self._commits else self._failures + 1
        self._commits = commits
        if self._failures >= PATIENCE:
            _log.error(
                "elastic run: given up, as it has failed %d times without a commit in between",
                self._failures,
            )
            raise error
        _log.warning("elastic run: starting again from the last commit, after %s", error)


def run_fn(
    func: Callable[Concatenate[S, P], R], reset: Callable[[], object]
) -> Callable[Concatenate[S, P], R]:
    """Return a function that runs `func` until it ends well.

    Before each start the state is synchronised. After a failure that another rank caused
    (``recoverable`` errors of `syrtos.errors`, or ``HorovodInternalError`` raised by you) the state
    is restored; after `HostsUpdatedInterrupt` it is kept. Then `reset` and ``state.on_reset()`` are
    called and `func` starts again. Any other exception goes to the caller.

    Parameters
    ----------
    func : callable
        Called as ``func(state, *args, **kwargs)``.
    reset : callable
        Makes the engine anew.

    Raises
    ------
    SyrtosError
        An error that no new start can mend, or ten failures in a row without a commit in between.
    """

    @functools.wraps(func)
    def wrapper(state: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        handle: Any = state
        notification_manager.init()
        notification_manager.register_listener(handle)
        failures = _Failures(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        handle.sync()
                    return func(state, *args, **kwargs)
                except SyrtosError as error:
                    if not _is_recoverable(error):
                        raise
                    failures.add(error)
                    handle.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                reset()
                handle.on_reset()
        finally:
            notification_manager.remove_listener(handle)

    return wrapper


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make `func` start again from the last commit when another rank fails.

    Parameters
    ----------
    func : callable
        Called as ``func(state, *args, **kwargs)``; its first argument is a `State`. ``init()`` has
        been called before it, and it must not call a collective before the state is synchronised,
        which is done for it.

    Returns
    -------
    callable
        To be called like `func`. See `run_fn` for what it raises.

    Notes
    -----
    The new engine has the settings that were given to ``init()``. Process sets do not come back by
    themselves: add them again in a reset callback.
    """
    return run_fn(func, _basics.restart)
