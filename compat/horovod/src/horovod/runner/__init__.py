"""Horovod's launcher, carried out by Syrtos' (`syrtos.launcher`)."""

from __future__ import annotations

import argparse
import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

T = TypeVar("T")

__all__ = ["run"]

#: What the command line and `run` can say, by the names of `horovodrun`'s arguments.
_NAMES = (
    *("check_build", "ssh_port", "ssh_identity_file", "disable_cache", "start_timeout", "nic"),
    *("output_filename", "verbose", "command", "run_func", "config_file", "nics", "executable"),
    *("fusion_threshold_mb", "cycle_time_ms", "cache_capacity", "hierarchical_allreduce"),
    *("hierarchical_allgather", "torus_allreduce", "autotune", "autotune_log_file"),
    *("autotune_warmup_samples", "autotune_steps_per_sample", "autotune_bayes_opt_max_samples"),
    *("autotune_gaussian_process_noise", "min_num_proc", "max_num_proc", "slots"),
    *("elastic_timeout", "reset_limit", "cooldown_range", "timeline_filename"),
    *("timeline_mark_cycles", "no_stall_check", "stall_check_warning_time_seconds"),
    *("stall_check_shutdown_time_seconds", "mpi_threads_disable", "mpi_args", "tcp_flag"),
    *("binding_args", "num_nccl_streams", "thread_affinity", "gloo_timeout_seconds"),
    *("log_level", "log_with_timestamp", "prefix_output_with_timestamp", "hosts", "hostfile"),
    *("host_discovery_script", "use_gloo", "use_mpi", "use_jsrun"),
)


class _HorovodArgs(argparse.Namespace):
    """All that a job can be told, as attributes; None where nothing is said."""

    def __init__(self) -> None:
        super().__init__(num_proc=1, **dict.fromkeys(_NAMES))


def run(
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[float] | None = None,
    hosts: str | None = None,
    hostfile: str | os.PathLike[str] | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | os.PathLike[str] | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[T]:
    """Run a function on several ranks and return their results in the order of the ranks.

    Parameters
    ----------
    func, args, kwargs
        What to call; sent by cloudpickle.
    num_proc : int
        Number of ranks. `np`, `min_np`, `max_np` and `network_interface` are older spellings.
    min_num_proc, max_num_proc : int, optional
        Must equal `num_proc`: the number of ranks does not change.
    hosts, hostfile, start_timeout, output_filename, verbose, executable
        As for `syrtos.run`.
    slots, reset_limit, cooldown_range, host_discovery_script
        Refused: there are no elastic jobs in this version.
    ssh_port, ssh_identity_file, disable_cache, use_mpi, mpi_args, network_interfaces
        Accepted without effect; a warning names them.
    use_gloo
        Accepted: that is what is used.

    Returns
    -------
    list
        What `func` returned on each rank.

    Raises
    ------
    RuntimeError
        A rank failed; the text has Horovod's first words and tells which and why. What the rank
        raised is the ``__cause__``.
    InvalidRequestError
        An argument is wrong; also a ``ValueError``.

    Examples
    --------
    >>> import horovod
    >>> horovod.run(lambda x: x + 1, args=(1,), num_proc=2)  # doctest: +SKIP
    [2, 2]
    """
    given = dict(locals())
    from horovod.runner.launch import _run

    bag = _HorovodArgs()
    for name in set(_NAMES) & set(given):
        setattr(bag, name, given[name])
    bag.num_proc = num_proc
    for old, new in (("np", "num_proc"), ("min_np", "min_num_proc"), ("max_np", "max_num_proc")):
        if given[old] is not None:
            _deprecated(old, new)
            setattr(bag, new, given[old])
    if network_interface is not None:
        _deprecated("network_interface", "network_interfaces")
    bag.nics = network_interfaces or network_interface
    bag.run_func = functools.partial(func, *args, **(kwargs or {}))
    return cast("list[T]", _run(bag))


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"horovod.run({old}=...) is deprecated: use {new}", DeprecationWarning, 3)
