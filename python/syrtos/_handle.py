"""The handle of an asynchronous call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syrtos import _core
    from syrtos._session import Session

__all__ = ["Handle", "poll", "synchronize"]

_NOT_YET = object()


class Handle:
    """A collective under way; keeps its tensors alive.

    A handle may be dropped: the operation goes on, and its memory stays until it has ended.

    Parameters
    ----------
    session : Session
        The engine's session.
    completion : Completion
        What the engine promised.
    memory : object
        Whatever must stay alive until it is done.
    finish : callable
        Makes the user's result of the finished completion.
    """

    __slots__ = ("__weakref__", "_completion", "_finish", "_memory", "_result", "_session")

    def __init__(
        self,
        session: Session,
        completion: _core.Completion,
        memory: object,
        finish: Callable[[_core.Completion], Any],
    ) -> None:
        self._session = session
        self._completion = completion
        self._memory = memory
        self._finish = finish
        self._result: Any = _NOT_YET

    def done(self) -> bool:
        """Whether `wait` would return (or raise) at once."""
        done = self._completion.done()
        if done:
            self._session.saw_an_end()
        return done

    def wait(self) -> Any:
        """Wait for the end and return the result; the same one when called again.

        Raises
        ------
        SyrtosError
            Why the operation failed, by the classes of `syrtos.errors`.
        """
        if self._result is _NOT_YET:
            self._session.wait(self._completion)
            self._result = self._finish(self._completion)
            self._memory = None
        return self._result

    def __del__(self) -> None:
        completion = getattr(self, "_completion", None)
        if completion is not None and not completion.done():
            self._session.keep_until_done(completion, self._memory)


def _check(handle: Any, function: str) -> Handle:
    if not isinstance(handle, Handle):
        raise TypeError(
            f"{function}({handle!r}): give the handle that an ..._async function returned."
        )
    return handle


def poll(handle: Handle) -> bool:
    """Return whether an asynchronous operation has ended.

    Parameters
    ----------
    handle : Handle
        What an ``..._async`` function returned.
    """
    return _check(handle, "poll").done()


def synchronize(handle: Handle) -> Any:
    """Wait for an asynchronous operation and return its result.

    Parameters
    ----------
    handle : Handle
        What an ``..._async`` function returned.

    Raises
    ------
    SyrtosError
        Why the operation failed.
    """
    return _check(handle, "synchronize").wait()
