"""``syrtos.run``: a Python function on several ranks, its results as a list."""

from __future__ import annotations

import collections
import contextlib
import io
import marshal
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

from syrtos.errors import InvalidRequestError
from syrtos.launcher.hosts import (
    HostSlots,
    Place,
    assign,
    parse_hosts,
    read_hostfile,
    require_local,
)
from syrtos.launcher.job import JobOptions
from syrtos.launcher.launch import LocalJob, Program
from syrtos.launcher.outcome import raise_first, raise_timeout, read_outcome
from syrtos.launcher.output import OutputOptions
from syrtos.launcher.sink import Target, write_all
from syrtos.launcher.worker import STACKS_SIGNAL

T = TypeVar("T")

WORKER = str(Path(__file__).with_name("worker.py"))


def run(
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
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
    *,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> list[T]:
    """Run a function on several ranks of this machine and return their results.

    Each rank is a new Python process with the caller's interpreter, working folder, environment,
    ``sys.path`` and ``sys.argv``. What the ranks print appears with a prefix ``[rank]<stdout>:``.

    Parameters
    ----------
    func : callable
        The function; it and what it refers to are sent by cloudpickle.
    args : sequence, optional
        Its positional arguments, the same on every rank.
    kwargs : mapping, optional
        Its keyword arguments.
    num_proc, np : int, optional
        Number of ranks, 1 by default; `np` is Horovod's older name.
    hosts, hostfile : str, optional
        As ``-H`` and ``--hostfile`` of ``syrtosrun``: this machine only.
    start_timeout : float, optional
        Limit for all ranks to meet in ``init``, seconds.
    output_filename : str or path, optional
        Folder for copies of the output, as ``rank.<n>/stdout`` and ``stderr``.
    verbose : int, optional
        If 2 or more, the process ids are told.
    executable : str, optional
        Another Python interpreter.
    env : mapping, optional
        Environment variables to set on the ranks beside those of the caller.
    timeout : float, optional
        Limit for the whole call, seconds. When it has passed, all ranks are asked for their
        stacks, which are printed and go into the exception, and are killed.
    min_num_proc, max_num_proc, slots, reset_limit, cooldown_range, host_discovery_script, \
min_np, max_np, use_mpi, mpi_args : optional
        Known to Horovod, refused by this version if set.
    ssh_port, ssh_identity_file, disable_cache, use_gloo, network_interface, \
network_interfaces : optional
        Known to Horovod, without meaning on one machine.

    Returns
    -------
    list
        What `func` returned, in the order of the ranks.

    Raises
    ------
    Exception
        What the first failing rank raised; its ``__cause__`` has the remote traceback and lists
        the other ranks' failures.
    SyrtosError
        If a rank died, or raised what cannot be pickled; the text names it.
    CollectiveTimeout
        A ``TimeoutError``: `timeout` has passed. The text has the stacks of all ranks.
    InvalidRequestError
        If an argument is wrong; nothing is started.

    Examples
    --------
    >>> import syrtos
    >>> syrtos.run(lambda x: x + 1, args=(1,), np=2)  # doctest: +SKIP
    [2, 2]
    """
    given = dict(locals())
    _refuse([name for name in _NOT_YET if given[name]])
    count = _count(num_proc, np)
    places = _places(count, hosts, hostfile)
    settings = {**(env or {})}
    if start_timeout is not None:
        settings["SYRTOS_START_TIMEOUT"] = str(start_timeout)
    directory = None if output_filename is None else Path(output_filename)
    options = JobOptions(
        output=OutputOptions(directory=directory),
        verbose=(verbose or 0) >= 2,
        name="syrtos.run",
        report=False,
    )
    call = _pack(func, args, kwargs or {}, same_python=executable is None)
    return _run(call, executable or sys.executable, places, settings, options, timeout)


#: Parameters of Horovod's that would change what happens.
_NOT_YET = (
    *("min_num_proc", "max_num_proc", "min_np", "max_np", "slots", "reset_limit"),
    *("cooldown_range", "host_discovery_script", "use_mpi", "mpi_args"),
)


def _refuse(names: list[str]) -> None:
    if names:
        plural = "s are" if len(names) > 1 else " is"
        raise InvalidRequestError(
            f"syrtos.run: the argument{plural} not supported by this version: {', '.join(names)}"
        )


def _count(num_proc: int | None, np: int | None) -> int:
    if num_proc is not None and np is not None and num_proc != np:
        raise InvalidRequestError(f"syrtos.run: num_proc={num_proc} and np={np}: give one")
    count = num_proc if num_proc is not None else 1 if np is None else np
    if not isinstance(count, int) or count < 1:
        raise InvalidRequestError(f"syrtos.run: np={count!r} is not a number of ranks (1 or more)")
    return count


def _places(count: int, hosts: str | None, hostfile: str | os.PathLike[str] | None) -> list[Place]:
    if hosts is not None and hostfile is not None:
        raise InvalidRequestError("syrtos.run: hosts and hostfile exclude each other: give one")
    table = [HostSlots("localhost", count)]
    if hosts is not None:
        table = parse_hosts(hosts)
    elif hostfile is not None:
        table = read_hostfile(Path(hostfile))
    require_local(table)
    return assign(table, count)


def _reduce_code(code: types.CodeType) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
    return marshal.loads, (marshal.dumps(code),)


def _pack(
    func: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any], *, same_python: bool
) -> bytes:
    """Return what the workers read: how to import, then what to call."""
    import cloudpickle

    file = io.BytesIO()
    pickle.dump((list(sys.path), list(sys.argv)), file)

    class WithFileNames(cloudpickle.CloudPickler):  # type: ignore[misc]
        # cloudpickle drops the names of source files, and so the lines of code in tracebacks.
        dispatch_table = collections.ChainMap(
            {types.CodeType: _reduce_code}, cloudpickle.CloudPickler.dispatch_table
        )

    pickler = (WithFileNames if same_python else cloudpickle.CloudPickler)(file)
    try:
        pickler.dump((func, tuple(args), dict(kwargs)))
    except Exception as error:
        raise InvalidRequestError(
            f"syrtos.run: the function or its arguments cannot be pickled: {error}"
        ) from error
    return file.getvalue()


@contextlib.contextmanager
def _memory_files(call: bytes, count: int) -> Iterator[tuple[int, list[int]]]:
    """Make the file that all ranks read and those that each writes; closed at the end."""
    fds: list[int] = []
    try:
        for name in ("syrtos-call", *["syrtos-outcome"] * count):
            fds.append(os.memfd_create(name))
        write_all(fds[0], call)
        yield fds[0], fds[1:]
    finally:
        for fd in fds:
            os.close(fd)


def _target(stream: TextIO | None, original: TextIO | None, fd: int) -> Target:
    """Write straight to the descriptor, unless the caller has replaced ``sys.stdout``."""
    if stream is None:
        return Target(None)
    with contextlib.suppress(OSError, ValueError):
        stream.flush()  # what was printed before comes before
        if stream is original and stream.fileno() == fd:
            return Target(fd)
    return Target(None, stream)


def _run(
    call: bytes,
    executable: str,
    places: Sequence[Place],
    settings: Mapping[str, str],
    options: JobOptions,
    timeout: float | None,
) -> list[Any]:
    targets = (_target(sys.stdout, sys.__stdout__, 1), _target(sys.stderr, sys.__stderr__, 2))
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    expired = False
    with (
        _memory_files(call, len(places)) as (call_fd, outcome_fds),
        LocalJob(places, os.environ) as local,
    ):
        program = Program(
            argv=(executable, *flags, WORKER),
            extra_fds=lambda rank: (call_fd, outcome_fds[rank]),
            ignore_signals=(STACKS_SIGNAL,),
        )
        job = local.make(settings, program, targets, options)

        def expire() -> None:
            nonlocal expired
            expired = job.dump_stacks_and_kill(STACKS_SIGNAL)

        if timeout is not None:
            job.loop.call_later(timeout, expire)
        result = job.run()
        values, failures = [], []
        for fd, state in zip(outcome_fds, result.ranks.values(), strict=True):
            value, failure = read_outcome(fd, state)
            values.append(value)
            failures += [failure] if failure is not None else []
    if expired and failures:
        raise_timeout(result, [failure.rank for failure in failures], timeout or 0.0)
    if failures:
        raise_first(failures)
    return values
