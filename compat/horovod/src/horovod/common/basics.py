"""The object behind Horovod's basic functions, for code that reaches for ``mpi_ops._basics``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syrtos import _basics, process_sets
from syrtos.errors import InvalidRequestError

__all__ = ["HorovodBasics"]


class HorovodBasics:
    """Has ``init``, ``rank``, ``size`` and so on as methods, and Horovod's private ones.

    All objects of this class stand for the one engine of this process.

    Parameters
    ----------
    pkg_path, *args : optional
        No effect: Horovod finds its library by them.
    """

    HOROVOD_PROCESS_SET_ERROR_INIT = -1
    HOROVOD_PROCESS_SET_ERROR_DYNAMIC = -2
    HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET = -3
    HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET = -4
    HOROVOD_PROCESS_SET_ERROR_SHUTDOWN = -5
    HOROVOD_PROCESS_SET_ERROR_EXISTING_SET = -6

    def __init__(self, pkg_path: str | None = None, *args: str) -> None:
        del pkg_path, args

    def __getattr__(self, name: str) -> Any:
        """Return what `syrtos` has by this name."""
        if name in _basics.__all__:
            return getattr(_basics, name)
        raise AttributeError(f"HorovodBasics has no attribute {name!r}")

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Return the ranks of each registered process set."""
        return process_sets.registered()

    def _add_process_set_impl(self, ranks: Sequence[int]) -> int | None:
        """Register a process set; None if there is one of these ranks."""
        if sorted(ranks) in process_sets.registered().values():
            return None
        return process_sets.add_process_set(ranks).process_set_id

    def _remove_process_set_impl(self, process_set_id: int) -> int | None:
        """Remove a process set; None if there is none of this number."""
        for process_set in list(process_sets._registered.values()):
            if process_set.process_set_id == process_set_id:
                process_sets.remove_process_set(process_set)
                return process_set_id
        return None

    def _members(self, process_set_id: int) -> list[int]:
        sets = process_sets.registered()
        if process_set_id not in sets:
            raise InvalidRequestError(
                f"there is no process set of number {process_set_id}; there are {sorted(sets)}."
            )
        return sets[process_set_id]

    def _process_set_rank(self, process_set_id: int) -> int:
        """Return this process's position in a process set."""
        members = self._members(process_set_id)
        me = _basics.rank()
        if me not in members:
            raise InvalidRequestError(f"rank {me} is not in process set {process_set_id}.")
        return members.index(me)

    def _process_set_size(self, process_set_id: int) -> int:
        """Return the number of members of a process set."""
        return len(self._members(process_set_id))

    def _comm_process_set_id(self, comm: Any) -> int:
        """Raise: there are no MPI communicators."""
        raise InvalidRequestError("MPI communicators are not supported: use lists of ranks.")
