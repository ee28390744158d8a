"""Horovod's helpers."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from syrtos import _basics
from syrtos.errors import InvalidRequestError

T = TypeVar("T")

#: The extensions that Horovod knows, and what must be there for ours.
EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def _cache(f: Callable[..., T]) -> Callable[..., T]:
    """Make a function compute each value once, by its arguments."""
    known: dict[Any, T] = {}

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        key = (args, frozenset(kwargs.items()))
        if key not in known:
            known[key] = f(*args, **kwargs)
        return known[key]

    return wrapper


def get_ext_suffix() -> str:
    """Return how the file names of this Python's extension modules end."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raise if a front end cannot be used.

    Parameters
    ----------
    ext_name : str
        Such as ``horovod.torch``.
    ext_env_var, pkg_path, *args : str
        No effect: Horovod finds its library by them.

    Raises
    ------
    ImportError
        There is no such front end, or its framework is not installed.
    """
    framework = ext_name.rpartition(".")[2]
    if not _is_installed(framework):
        raise ImportError(
            f"{ext_name} cannot be used: {framework} or syrtos.{framework} is missing"
        )


def _is_installed(framework: str) -> bool:
    names = (framework, f"syrtos.{framework}")
    return all(importlib.util.find_spec(name) is not None for name in names)


def _holds(code: str, verbose: bool) -> bool:
    """Return whether code runs through in a process of its own."""
    stream = None if verbose else subprocess.DEVNULL
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    return done.returncode == 0


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether a front end can be imported; tries it in a process of its own.

    Parameters
    ----------
    ext_base_name : str
        ``torch``, ``tensorflow``.
    verbose : bool
        Show why not.
    """
    if ext_base_name not in EXTENSIONS or not _is_installed(ext_base_name):
        return False
    return _holds(f"import horovod.{ext_base_name}", verbose)


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether a framework sees a GPU; asks it in a process of its own.

    Parameters
    ----------
    ext_base_name : str
        ``torch`` or ``tensorflow``.
    verbose : bool
        Show why not.
    """
    tests = {
        "torch": "import torch; raise SystemExit(not torch.cuda.is_available())",
        "tensorflow": "import tensorflow as tf; "
        "raise SystemExit(not tf.config.list_physical_devices('GPU'))",
    }
    if ext_base_name not in tests or not _is_installed(ext_base_name):
        return False
    return _holds(tests[ext_base_name], verbose)


def mpi_built(verbose: bool = False) -> bool:
    """Return False: Syrtos works without MPI."""
    return _basics.mpi_built(verbose)


def gloo_built(verbose: bool = False) -> bool:
    """Return whether Gloo can be used."""
    return _basics.gloo_built(verbose)


def nccl_built(verbose: bool = False) -> int:
    """Return NCCL's version code, 0 without NCCL."""
    return _basics.nccl_built(verbose)


def ddl_built(verbose: bool = False) -> bool:
    """Return False: IBM's DDL is not supported."""
    return _basics.ddl_built(verbose)


def ccl_built(verbose: bool = False) -> bool:
    """Return False: oneCCL is not supported."""
    return _basics.ccl_built(verbose)


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Set environment variables for the duration of a block.

    Parameters
    ----------
    **kwargs : str or None
        Values by name; None leaves a variable alone.
    """
    wanted = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(
    reduce_ops: Any,
) -> Callable[[Any, bool | None], Any]:
    """Return the function that chooses between the arguments ``op`` and ``average``.

    Parameters
    ----------
    reduce_ops : object
        Has the attributes ``Average`` and ``Sum``.

    Returns
    -------
    callable
        ``choose(op, average)``; ValueError if both are given, Average if neither is.
    """

    def choose(op: Any, average: bool | None) -> Any:
        if op is not None and average is not None:
            raise ValueError(f"op={op!r} and average={average!r}: give op only.")
        if average is not None:
            warnings.warn("average= is deprecated: use op=", DeprecationWarning, stacklevel=3)
            return reduce_ops.Average if average else reduce_ops.Sum
        return reduce_ops.Average if op is None else op

    return choose


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether a number is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[T], n: int) -> list[Sequence[T]]:
    """Cut a list into n parts whose lengths differ by at most one, the longer ones first."""
    length, longer = divmod(len(items), n)
    ends = [length * i + min(i, longer) for i in range(n + 1)]
    return [items[start:end] for start, end in zip(ends, ends[1:], strict=False)]


def is_iterable(x: Any) -> bool:
    """Return whether ``iter(x)`` works."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


@_cache
def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compare two versions.

    Parameters
    ----------
    ver : str
        Any version.
    target : str
        Of the form ``major.minor.patch``.

    Raises
    ------
    ValueError
        An argument is no string, or `target` has another form.
    """
    from packaging import version

    for name, value in (("ver", ver), ("target", target)):
        if not isinstance(value, str):
            raise InvalidRequestError(f"{name}={value!r}: give a version as a string.")
    if target.count(".") != 2:
        raise InvalidRequestError(f"target={target!r}: give a version such as 2.4.0.")
    return version.parse(ver) >= version.parse(target)


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Do nothing: Syrtos is not built for one version of a framework.

    Parameters
    ----------
    name, version : str
        The framework.
    exception : Exception, optional
        Raised if given: the reason why its extension could not be loaded.
    """
    if exception is not None:
        raise exception
