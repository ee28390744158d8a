"""The names that `syrtos` and all its front ends share: life cycle, ranks, reduce ops, sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from syrtos import _session, process_sets
from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

Average = ReduceOp.Average
Sum = ReduceOp.Sum
Adasum = ReduceOp.Adasum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product

# The keyword arguments of the last init() that made an engine.
_settings: dict[str, Any] = {}


def init(
    comm: Sequence[int] | None = None,
    process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None,
    **settings: Any,
) -> None:
    """Start Syrtos in this process; on all ranks, before anything else.

    Waits until all ranks have called it. Harmless if there is an engine already; one of which
    ranks were lost or have left is replaced.

    Parameters
    ----------
    comm : sequence of int, optional
        Global ranks that take part: all of them, in this version.
    process_sets : sequence of ProcessSet, or "dynamic", optional
        Sets to register at once, equal on all ranks. "dynamic" is accepted for Horovod's scripts:
        sets can be added and removed at any time anyway.
    **settings
        Fields of `syrtos.config.Settings` and ``log_level``; they win over ``SYRTOS_*`` and
        ``HOROVOD_*`` variables, which are read now and not at import.

    Raises
    ------
    InvalidRequestError
        A setting that is not allowed, or an incomplete launch.
    PeerLostError, CollectiveTimeout
        Other ranks did not come within ``start_timeout`` seconds.
    MismatchError
        Ranks have different versions or settings that must agree.

    Notes
    -----
    Without a launcher's variables this is a world of one. ``shutdown`` runs at exit by itself.

    Examples
    --------
    >>> import syrtos
    >>> syrtos.init()
    >>> syrtos.rank(), syrtos.size()
    (0, 1)
    """
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise InvalidRequestError(
            f"process_sets={process_sets!r}: give a list of ProcessSet, or 'dynamic'."
        )
    if comm is not None and (not isinstance(comm, Sequence) or isinstance(comm, str)):
        raise InvalidRequestError(
            f"comm={comm!r}: MPI communicators are not supported; give the list of all ranks."
        )
    global _settings
    is_new = _session.start(settings)
    if not is_new:
        return
    _settings = settings
    try:
        _finish_init(
            comm, () if process_sets is None or isinstance(process_sets, str) else process_sets
        )
    except BaseException:
        _session.stop()
        raise


def _finish_init(comm: Sequence[int] | None, static: Sequence[ProcessSet | Sequence[int]]) -> None:
    if comm and sorted(comm) != list(range(size())):
        raise InvalidRequestError(
            f"comm={list(comm)!r}: only the list of all ranks, from 0 to {size() - 1}, is "
            "supported. Use a ProcessSet to work with some of them."
        )
    process_sets.describe_world()
    process_sets.add_static(static)


def restart() -> None:
    """End Syrtos and start it anew with the same settings; on all ranks.

    Raises
    ------
    SyrtosError
        As `init`.
    """
    shutdown()
    init(None, None, **_settings)


def shutdown() -> None:
    """End Syrtos in this process; ``init`` may be called again afterwards.

    Operations still pending raise ``ShutdownError``. Harmless if there is no engine.
    """
    _session.stop()


def is_initialized() -> bool:
    """Return whether there is a live engine (False in a forked child)."""
    return _session.is_started()


def rank() -> int:
    """Return this process's number among all, from 0 to ``size() - 1``."""
    return _session.topology().rank


def size() -> int:
    """Return the number of processes."""
    return _session.topology().size


def local_rank() -> int:
    """Return this process's number on its host."""
    return _session.topology().local_rank


def local_size() -> int:
    """Return the number of processes on this host."""
    return _session.topology().local_size


def cross_rank() -> int:
    """Return the number of this host among those that have a process of this local rank."""
    return _session.topology().cross_rank


def cross_size() -> int:
    """Return the number of hosts that have a process of this local rank."""
    return _session.topology().cross_size


def is_homogeneous() -> bool:
    """Return whether all hosts have equally many processes."""
    return _session.current().homogeneous


def mpi_threads_supported() -> bool:
    """Raise, since there is no MPI in Syrtos; kept for Horovod's scripts.

    Raises
    ------
    NotInitializedError
        Before ``init``.
    InvalidRequestError
        Always else; also a ``ValueError``.
    """
    _session.current()
    raise InvalidRequestError("Syrtos works without MPI, so there are no MPI threads to ask for.")


def mpi_enabled() -> bool:
    """Return False: Syrtos works without MPI."""
    return False


def mpi_built(verbose: bool = False) -> bool:
    """Return False: Syrtos works without MPI."""
    return False


def gloo_enabled() -> bool:
    """Return whether Gloo can be used."""
    return gloo_built()


def gloo_built(verbose: bool = False) -> bool:
    """Return whether the Gloo plug-in was built and can be opened.

    Parameters
    ----------
    verbose : bool
        Also say why not.
    """
    from syrtos import _core, config

    settings = config.Settings(gloo_plugin_path=config.default_plugin())
    for name, usable, reason in _core.backends_available(settings.to_core()):
        if name == "gloo":
            if verbose and not usable:
                print(reason)
            return usable
    return False


def nccl_built(verbose: bool = False) -> int:
    """Return 0: NCCL is not in this version."""
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """Return False: IBM's DDL is not supported."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Return False: oneCCL is not supported."""
    return False


def cuda_built(verbose: bool = False) -> bool:
    """Return False: CUDA is not in this version."""
    return False


def rocm_built(verbose: bool = False) -> bool:
    """Return False: ROCm is not supported."""
    return False


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Start to record what the engine does, in Chrome's trace format.

    A recording that goes on is ended first. The file is a complete JSON array at any moment.

    Parameters
    ----------
    file_path : path
        The file. Rank 0 writes it, and other ranks may call this too; if ``{rank}`` is in it, each
        rank that calls writes a file of its own, with its number there.
    mark_cycles : bool
        Also mark the rounds of negotiation.

    Raises
    ------
    NotInitializedError
        Before ``init``; also a ``ValueError``.
    InvalidRequestError
        The file cannot be written; also a ``ValueError``. A recording that goes on is kept.
    """
    _session.current().engine.start_timeline(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """End the recording that ``start_timeline`` or ``SYRTOS_TIMELINE`` began, if there is one.

    Raises
    ------
    NotInitializedError
        Before ``init``; also a ``ValueError``.
    """
    _session.current().engine.stop_timeline()
