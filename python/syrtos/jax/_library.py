"""Loads ``syrtos/_jax.so`` and registers its handler with the XLA of the JAX that is installed.

The library is built without jaxlib and gets XLA's functions from each call, so one file serves all
releases from `OLDEST` on. There is no slower way that would be taken in silence: what cannot work
is an `ImportError` that says what to do.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import jax

__all__ = ["OLDEST", "PATH", "TARGET", "check_version", "failures", "load"]

#: The first minor release whose XLA has the functions of futures where the library looks for them.
OLDEST = (0, 5)
#: CMake puts the library beside the core, where it finds ``libsyrtos.so``.
PATH = Path(__file__).parent.parent / "_jax.so"
#: The name under which compiled programs call the handler.
TARGET = "syrtos_jax_collective"


_count: list[Callable[[], int]] = []


def failures() -> int:
    """Return how many collectives of compiled programs have failed so far."""
    return _count[-1]()


def check_version(version: str) -> None:
    """Raise ImportError unless this JAX is new enough.

    Parameters
    ----------
    version : str
        As in ``jax.__version__``: "0.10.2", "0.6.0.dev20250101".
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) >= OLDEST:
        return
    oldest = ".".join(map(str, OLDEST))
    raise ImportError(
        f"syrtos.jax works with JAX {oldest} and newer, but {version} is installed: "
        f"pip install 'jax>={oldest}'."
    )


def load(path: Path = PATH) -> None:
    """Load the library and register its handler.

    Parameters
    ----------
    path : Path
        Where the library is.

    Raises
    ------
    ImportError
        If this JAX or the library cannot be used; the text says what to do.
    """
    check_version(jax.__version__)
    if not path.exists():
        raise ImportError(
            f"syrtos.jax: {path} is missing, so this Syrtos was installed without its C++ core. "
            "Reinstall it (pip install --force-reinstall syrtos), or in a checkout run ./dev build."
        )
    try:
        library = ctypes.CDLL(str(path))
        handler, count = library.syrtos_jax_collective, library.syrtos_jax_failures
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"syrtos.jax: {path} cannot be used: {error}. Reinstall Syrtos, so that _jax.so and "
            "libsyrtos.so come from one build."
        ) from error
    count.restype = ctypes.c_uint64
    _count.append(count)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform="cpu")
