"""Groups of ranks that run collectives among themselves, with Horovod's names.

Adding and removing are collective: all ranks must call them, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from syrtos import _session
from syrtos._kinds import Kind
from syrtos.errors import InvalidRequestError, NotInitializedError

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]


class ProcessSet:
    """A set of ranks that can run collectives of its own.

    Parameters
    ----------
    ranks_or_comm : iterable of int
        Global ranks of the members, in any order.

    Attributes
    ----------
    process_set_id : int or None
        Its number once registered; 0 is the set of all ranks.
    ranks : list of int or None
        Global ranks in ascending order.
    mpi_comm : None
        Always None: kept for scripts that print it.

    Examples
    --------
    >>> import syrtos
    >>> print(syrtos.ProcessSet([2, 0]))
    ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: None = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        if isinstance(ranks_or_comm, str | bytes) or not isinstance(ranks_or_comm, Iterable):
            raise InvalidRequestError(
                f"ProcessSet({ranks_or_comm!r}): give the global ranks of its members, such as "
                "[0, 2]. MPI communicators are not supported."
            )
        ranks = [_rank_number(rank) for rank in ranks_or_comm]
        if len(set(ranks)) != len(ranks):
            raise InvalidRequestError(f"ProcessSet({ranks}): a rank is listed twice.")
        self.ranks = sorted(ranks)
        # Why it is no longer registered, for the error that a use of it raises.
        self._lost = "it has not been registered: pass it to init() or to add_process_set()"

    def size(self) -> int | None:
        """Return the number of members; None before registration."""
        if self.process_set_id is None:
            return None
        return len(self._members())

    def rank(self) -> int | None:
        """Return this process's position among the members (-1 if it is none)."""
        if self.process_set_id is None:
            return None
        me = _session.topology().rank
        members = self._members()
        return members.index(me) if me in members else -1

    def included(self) -> bool | None:
        """Return whether this process is a member; None before registration."""
        if self.process_set_id is None:
            return None
        return _session.topology().rank in self._members()

    def _members(self) -> list[int]:
        if self.process_set_id == 0:
            return list(range(_session.topology().size))
        _session.topology()
        return self.ranks or []

    def group(self) -> int:
        """Return the number by which the engine knows this set.

        Raises
        ------
        InvalidRequestError
            The set is not registered.
        """
        if self.process_set_id is None:
            raise InvalidRequestError(f"{self} cannot be used: {self._lost}.")
        if self.process_set_id != 0 and self.process_set_id not in _registered:
            raise InvalidRequestError(
                f"{self} cannot be used: there is no process set {self.process_set_id}; numbers "
                "come from init() and add_process_set()."
            )
        return self.process_set_id

    def _register(self, number: int) -> None:
        self.process_set_id = number
        _registered[number] = self

    def _forget(self, why: str) -> None:
        self.process_set_id = None
        self._lost = why

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
            f"mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__


def _rank_number(value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise InvalidRequestError(
            f"ProcessSet: {value!r} is no rank. Give whole numbers from 0 to size() - 1."
        ) from None
    return number


_registered: dict[int, ProcessSet] = {}

global_process_set = ProcessSet([])
global_process_set.process_set_id = 0
global_process_set.ranks = None


def registered() -> dict[int, list[int]]:
    """Return the ranks of each registered set by its number, first those of the global set.

    Raises
    ------
    NotInitializedError
        There is no engine.
    """
    world = list(range(_session.topology().size))
    return {0: world, **{number: list(s.ranks or ()) for number, s in _registered.items()}}


def describe_world() -> None:
    """Fill in the ranks of the global set; called by ``init``."""
    global_process_set.ranks = list(range(_session.topology().size))


def forget_all() -> None:
    """Invalidate all sets but the global one; called by ``shutdown``."""
    for process_set in list(_registered.values()):
        process_set._forget(
            "it belonged to an engine that has been shut down; after the next init(), register it "
            "again with add_process_set()"
        )
    _registered.clear()
    global_process_set.ranks = None


def _check_new(process_set: ProcessSet, size: int) -> None:
    ranks = process_set.ranks or []
    if process_set.process_set_id is not None:
        raise InvalidRequestError(f"{process_set} is registered already.")
    outside = [rank for rank in ranks if not 0 <= rank < size]
    if outside or not ranks:
        what = f"rank {outside[0]} does not exist" if outside else "it has no members"
        raise InvalidRequestError(f"{process_set}: {what}. Ranks go from 0 to {size - 1}.")
    if len(ranks) == size:
        raise InvalidRequestError(
            f"{process_set} holds all ranks, as global_process_set does: use that one."
        )
    for number, other in _registered.items():
        if other.ranks == ranks:
            raise InvalidRequestError(
                f"{process_set}: a process set of these ranks exists already, with id {number}."
            )


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set of ranks; all ranks must call this alike.

    Parameters
    ----------
    process_set : ProcessSet or sequence of int
        The set, or the global ranks of its members.

    Returns
    -------
    ProcessSet
        The same object, or a new one, with its id set. After `remove_process_set` the id may be
        used again for another set.

    Raises
    ------
    InvalidRequestError
        A set of the same ranks exists (also a ``ValueError``), or a rank is not in the world.
    MismatchError
        Other ranks asked for another set.
    NotInitializedError
        There is no engine.

    Examples
    --------
    >>> import syrtos
    >>> syrtos.init()
    >>> syrtos.add_process_set([1, 2])
    Traceback (most recent call last):
    ...
    syrtos.errors.InvalidRequestError: ProcessSet(process_set_id=None, ranks=[1, 2], \
mpi_comm=None): rank 1 does not exist. Ranks go from 0 to 0.
    """
    session = _session.current()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    _check_new(process_set, session.settings.size)
    completion = session.submit(Kind.ADD_GROUP, ranks=process_set.ranks or ())
    session.wait(completion)
    process_set._register(completion.value)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a set that is no longer needed; all ranks must call this alike.

    Parameters
    ----------
    process_set : ProcessSet
        A registered set.

    Returns
    -------
    bool
        False for the global set and for one that is not registered.

    Raises
    ------
    NotInitializedError
        There is no engine.
    """
    session = _session.current()
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"remove_process_set({process_set!r}): give a ProcessSet.")
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    completion = session.submit(Kind.REMOVE_GROUP, ranks=(number,))
    session.wait(completion)
    process_set._forget("it has been removed by remove_process_set()")
    _registered.pop(number, None)
    return True


def add_static(process_sets: Iterable[ProcessSet | Sequence[int]]) -> None:
    """Register the sets that were given to ``init``, in their order.

    Raises
    ------
    InvalidRequestError
        As `add_process_set`; the sets before the wrong one stay registered.
    """
    if not _session.is_started():
        raise NotInitializedError("init() first.")
    for process_set in process_sets:
        add_process_set(process_set)
