"""The one live engine of this process.

Life: `start` makes it (``init``), `stop` ends it (``shutdown``, and at exit). In between `current`
hands it out. What surrounds an engine is here too: waiting that Ctrl-C can break, tensors of
handles that nobody waits for, forked children, and telling the other ranks why this one dies.

Threads: all functions may be called from any thread.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from syrtos import _last_words, config
from syrtos._creation import Creation
from syrtos._kinds import Kind, ReduceOp
from syrtos.adapter import dtype_number
from syrtos.errors import InvalidRequestError, NotInitializedError, SyrtosError

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["Session", "current", "is_started", "report_failure", "start", "stop", "topology"]

_log = logging.getLogger("syrtos")

#: A wait on Python's main thread wakes this often, so that signal handlers run (Ctrl-C).
_WAKE_SECONDS = 0.1
_LONG_SECONDS = 3600.0
#: The number of ``PeerLostError`` among the status codes.
_PEER_LOST = 4


class Failed:
    """The completion of a request that could not even be queued, since a peer is gone.

    What others do is told by the wait, whenever it happened; so a handle that nobody waits for is
    never an error.
    """

    def __init__(self, error: SyrtosError) -> None:
        self._error = error

    def done(self) -> bool:
        """Return True."""
        return True

    def raise_if_failed(self) -> None:
        """Raise the error."""
        raise self._error


class Session:
    """An engine with its settings and the memory it may still be writing to."""

    def __init__(self, engine: _core.Engine, settings: config.Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.homogeneous = True
        # Requests whose handles were dropped, with what they read and write. A dictionary, since
        # handles die at any moment, also while it is being swept: each step on it is atomic.
        self._abandoned: dict[int, tuple[_core.Completion, object]] = {}
        self._users: set[int] = set()
        # Names that were used since the last wait of any thread.
        self._recent: set[tuple[int, str]] = set()
        # A wait has told that a rank was lost or has left.
        self._saw_a_loss = False

    def submit(
        self,
        kind: Kind,
        parts: Sequence[_core.PartTuple] = (),
        *,
        name: str | None = None,
        group: int = 0,
        op: ReduceOp = ReduceOp.Sum,
        prescale: float = 1.0,
        postscale: float = 1.0,
        root: int = 0,
        ranks: Sequence[int] = (),
        average_active: bool = False,
    ) -> _core.Completion:
        """Queue one request; the caller keeps the memory of `parts` alive until it is done.

        Raises
        ------
        InvalidRequestError
            The caller's own fault; faults that involve other ranks are raised by the wait.
        """
        if self._abandoned:
            self._sweep()
        self._users.add(threading.get_ident())
        if name:
            self._refuse_reuse(kind, name, group)
        try:
            completion = self.engine.submit(
                kind,
                name or "",
                group,
                op,
                prescale,
                postscale,
                root,
                parts,
                ranks,
                average_active,
            )
        except SyrtosError as error:
            if not error.recoverable:
                raise
            return cast("_core.Completion", Failed(error))
        if name:
            self._recent.add((group, name))
        return completion

    def wait(self, completion: _core.Completion) -> None:
        """Wait until done and raise if it failed; Ctrl-C works on the main thread."""
        if not completion.done():
            on_main = threading.current_thread() is threading.main_thread()
            step = _WAKE_SECONDS if on_main else _LONG_SECONDS
            while not self.engine.wait(completion, step):
                pass
        self.saw_an_end()
        try:
            completion.raise_if_failed()
        except SyrtosError as error:
            self._saw_a_loss = self._saw_a_loss or error.recoverable
            raise

    def is_over(self) -> bool:
        """Whether the world of this engine is known to be incomplete for good."""
        if self._saw_a_loss:
            return True
        try:
            self.engine.raise_if_unhealthy()
        except SyrtosError:
            return True
        return False

    def saw_an_end(self) -> None:
        """Let names be used again, since the caller keeps an eye on what has ended."""
        self._recent.clear()

    def _refuse_reuse(self, kind: Kind, name: str, group: int) -> None:
        """Refuse a second request of a name before anything has been waited for.

        Whether the first has ended by then, so that the engine would allow it, is a matter of
        microseconds: the same script would be right today and wrong tomorrow.
        """
        if (group, name) in self._recent:
            raise InvalidRequestError(
                f'{kind.name.lower()} "{name}": a request with the same name has been made before '
                "on this rank, and nothing was waited for since. Wait for it first, or give each "
                "request a name of its own."
            )

    def keep_until_done(self, completion: _core.Completion, memory: object) -> None:
        """Keep the tensors of a request that nobody waits for any more."""
        self._abandoned[id(completion)] = (completion, memory)

    def _sweep(self) -> None:
        for key, (completion, _) in list(self._abandoned.items()):
            if completion.done():
                self._abandoned.pop(key, None)

    def used_by(self, thread: int | None) -> bool:
        """Whether the thread of this identity has submitted anything."""
        return thread in self._users

    def close(self) -> None:
        """End the engine; what is pending fails with ``ShutdownError``."""
        from syrtos import _core

        _core.set_current_engine(None)
        self.engine.close()
        self._abandoned.clear()


_lock = threading.RLock()
_current: Session | None = None
_epochs = 0  # attempts at an engine so far: equal on all ranks, since init and shutdown are
_ever = False
# In a forked child: the rank and process id of the parent, whose sessions must never be destroyed.
_fork: str | None = None
_leaked: list[object] = []


def is_started() -> bool:
    """Whether there is a live engine in this process."""
    return _current is not None and _fork is None


def _why_not() -> NotInitializedError:
    if _fork is not None:
        return NotInitializedError(
            f"Syrtos cannot be used in a forked child of {_fork}: its threads and connections do "
            "not survive a fork. Call init() and all collectives in the parent only, or start the "
            "child with multiprocessing.get_context('spawn')."
        )
    if _ever:
        return NotInitializedError(
            "Syrtos has been shut down in this process: call init() again before any collective."
        )
    return NotInitializedError("Syrtos has not been initialized: call syrtos.init() first.")


def current() -> Session:
    """Return the live session.

    Raises
    ------
    NotInitializedError
        Before ``init``, after ``shutdown`` and in a forked child.
    """
    session = _current
    if session is None or _fork is not None:
        raise _why_not()
    return session


def topology() -> config.Settings:
    """Return the settings of the live session, also in a forked child (a data loader, say).

    Raises
    ------
    NotInitializedError
        Before ``init`` and after ``shutdown``.
    """
    session = _current
    if session is None:
        raise _why_not()
    return session.settings


def _set_up_log(setup: config.Setup) -> None:
    from syrtos import _core

    _core.configure_log(setup.log_level, setup.settings.rank)
    names = (*(logging.DEBUG,) * 2, logging.INFO, logging.WARNING, logging.ERROR)
    level = names[setup.log_level] if setup.log_level < len(names) else logging.CRITICAL
    _log.setLevel(level)
    if level < logging.WARNING and not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        _log.addHandler(handler)


def start(arguments: dict[str, Any]) -> bool:
    """Make the engine unless there is one that works; True if it is new.

    An engine whose ranks were lost or have left is of no use any more, and is replaced.

    Parameters
    ----------
    arguments : dict
        Settings that win over the environment.
    """
    global _current, _epochs, _ever
    with _lock:
        if _fork is not None:
            raise _why_not()
        if _current is not None:
            if not _current.is_over():
                return False
            _close()
        setup = config.resolve(arguments)
        _set_up_log(setup)
        config.mention_ignored()
        setup = replace(setup, settings=replace(setup.settings, epoch=_epochs))
        # Counted per attempt: what a failed one left in the store must not meet the next.
        _epochs += 1
        session = Session(Creation(setup).run(), setup.settings)
        try:
            session.homogeneous = _agree_on_hosts(session)
        except BaseException:
            session.close()
            raise
        from syrtos import _core

        _core.set_current_engine(session.engine)
        _current = session
        if not _ever:
            _ever = True
            atexit.register(stop)
            _last_words.install(_tell_others)
        return True


def _agree_on_hosts(session: Session) -> bool:
    """Whether all hosts have equally many ranks; asks the others only where it is in doubt."""
    settings = session.settings
    if settings.local_size == settings.size:
        return True
    from array import array

    mine = array("q", [settings.local_size])
    part = ("", dtype_number("int64"), 8, (1,), mine.buffer_info()[0], 0, ())
    completion = session.submit(Kind.ALLGATHER, [part])
    session.wait(completion)
    result = completion.buffer(0)
    assert result is not None
    return len(set(memoryview(result).cast("q"))) == 1


def stop() -> None:
    """Close the engine if there is one."""
    with _lock:
        if _fork is None and _current is not None:
            _close()


def _close() -> None:
    """End the life of the live engine; `_lock` is held."""
    global _current
    session, _current = _current, None
    from syrtos import process_sets

    process_sets.forget_all()
    assert session is not None
    session.close()


def _tell_others(text: str, thread: int | None) -> None:
    """Pass on an uncaught exception, as the first cause that the other ranks will raise.

    Parameters
    ----------
    text : str
        The exception and where it was raised.
    thread : int or None
        Identity of the thread that died of it; None for the main thread, whose end is ours.
    """
    session = _current
    if session is None or _fork is not None:
        return
    if thread is not None and not session.used_by(thread):
        return
    settings = session.settings
    session.engine.abort(_PEER_LOST, f"rank {settings.rank} ({settings.host}): {text}")


def report_failure(error: BaseException) -> None:
    """Tell the other ranks of an exception that ends this one; for runners that catch it.

    Parameters
    ----------
    error : BaseException
        With its traceback.
    """
    _tell_others(_last_words.describe(error, error.__traceback__), None)


def _after_fork_in_child() -> None:
    global _lock, _fork
    _lock = threading.RLock()
    if _current is not None and _fork is None:
        settings = _current.settings
        _fork = f"rank {settings.rank} (process {os.getppid()} on {settings.host})"
        _leaked.append(_current)


os.register_at_fork(after_in_child=_after_fork_in_child)
