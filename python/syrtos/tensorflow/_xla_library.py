"""Loads ``syrtos/_tensorflow_xla.so`` and registers its handlers with TensorFlow's own XLA.

XLA has two interfaces for foreign functions. From TensorFlow 2.18 on it is the typed one, which
takes a future: no thread waits for other ranks. Before, it is a plain function that waits on the
thread it is called on.

The library is built without TensorFlow, so it relies on the places of fields in XLA's structures,
which were checked for each release up to `_library.NEWEST`. Programs of a newer one are refused.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import tensorflow as tf

from syrtos.errors import BackendUnavailableError
from syrtos.tensorflow import _library

__all__ = ["PATH", "TYPED_SINCE", "is_typed", "load_typed", "load_untyped", "minor_of"]

#: CMake puts the library beside the core, where it finds ``libsyrtos.so``.
PATH = Path(__file__).parent.parent / "_tensorflow_xla.so"
#: The first minor release whose typed interface has futures, and the only one that has them one
#: place earlier than all later ones.
TYPED_SINCE = (2, 18)

_REMEDY = (
    "Use jit_compile=False in tf.function(...) or model.compile(...); all collectives work there."
)


def minor_of(version: str) -> tuple[int, int]:
    """Return the numbers of a minor release: (2, 21) of "2.21.0-rc1"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def is_typed(version: str) -> bool:
    """Whether the XLA of this TensorFlow has the typed interface with futures.

    Parameters
    ----------
    version : str
        As in ``tf.__version__``.

    Raises
    ------
    BackendUnavailableError
        This Syrtos does not know its XLA.
    """
    minor = minor_of(version)
    if minor > _library.NEWEST:
        raise BackendUnavailableError(
            f"syrtos: collectives inside programs that XLA compiles were tested up to TensorFlow "
            f"{_library.NEWEST[0]}.{_library.NEWEST[1]}, and {version} is installed. {_REMEDY}"
        )
    return minor >= TYPED_SINCE


def _registered(function: str, *arguments: Any, path: Path = PATH) -> None:
    """Call one of the two functions of the library that register handlers."""
    try:
        library = ctypes.CDLL(str(path))
        register = getattr(library, function)
    except (OSError, AttributeError) as error:
        raise BackendUnavailableError(
            f"syrtos: {path} cannot be used: {error}. Reinstall Syrtos, so that all its libraries "
            "come from one build."
        ) from error
    register.restype = ctypes.c_char_p
    problem: str = register(*arguments).decode()
    if problem:
        raise BackendUnavailableError(
            f"syrtos: the XLA of TensorFlow {tf.__version__} takes no collectives: {problem}. "
            f"{_REMEDY}"
        )


@functools.cache
def load_typed() -> None:
    """Register the handlers of the typed interface; once, however often it is called.

    Raises
    ------
    BackendUnavailableError
        It cannot be done; the text says why.
    """
    early = minor_of(tf.__version__) == TYPED_SINCE
    _registered("syrtos_tensorflow_xla_register_typed", ctypes.c_bool(early))


@functools.cache
def load_untyped() -> None:
    """Register the handlers of the older interface; once, however often it is called.

    Raises
    ------
    BackendUnavailableError
        It cannot be done; the text says why.
    """
    _registered("syrtos_tensorflow_xla_register_untyped")
