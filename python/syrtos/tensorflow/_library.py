"""Loads the op library ``syrtos/_tensorflow.so`` into the TensorFlow that is installed.

It exists a second time, with the same ops under the names that scripts written for Horovod look for
in graphs (``tensor.op.type.startswith("Horovod")``).

The library is built without TensorFlow and finds TensorFlow's C functions when it is loaded, so one
file serves all releases from `OLDEST` to `NEWEST`, and newer ones that still have these functions.
There is no slower way that would be taken in silence: what cannot work is an `ImportError` that
says what to do.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import tensorflow as tf

__all__ = ["NEWEST", "OLDEST", "OPS", "PATH", "PATHS", "load"]

_log = logging.getLogger("syrtos")

#: First and last minor release that the library was tested with.
OLDEST = (2, 16)
NEWEST = (2, 21)
#: CMake puts the library beside the core, where it finds ``libsyrtos.so``.
PATH = Path(__file__).parent.parent / "_tensorflow.so"
#: The libraries by the word with which the types of their ops begin.
PATHS = {"Syrtos": PATH, "Horovod": PATH.with_name("_tensorflow_horovod.so")}
#: How the types of the ops end.
OPS = ("Allreduce", "Allgather", "Broadcast", "Alltoall", "Reducescatter", "Barrier", "Group")


def check_version(version: str) -> None:
    """Raise ImportError if this TensorFlow is too old, and warn of one that was never tested.

    Parameters
    ----------
    version : str
        As in ``tf.__version__``: "2.21.0", "2.20.0-rc1".
    """
    minor = tuple(int(part) for part in version.split(".")[:2])
    wanted = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    if minor < OLDEST:
        raise ImportError(
            f"syrtos.tensorflow works with TensorFlow {wanted}, but {version} is installed: "
            f"pip install 'tensorflow=={NEWEST[0]}.{NEWEST[1]}.*'."
        )
    if minor > NEWEST:
        _log.warning(
            "syrtos.tensorflow was tested with TensorFlow %s, and %s is installed. Collectives are "
            "not possible there inside programs that XLA compiles.",
            wanted,
            version,
        )


def _registration_problem(path: Path) -> str:
    library = ctypes.CDLL(str(path))  # the same handle: it is loaded already
    library.syrtos_tensorflow_problem.restype = ctypes.c_char_p
    text: bytes = library.syrtos_tensorflow_problem()
    return text.decode()


def load(path: Path = PATH, prefix: str = "Syrtos") -> Any:
    """Load the op library and return its module of Python wrappers.

    Parameters
    ----------
    path : Path
        Where the library is.
    prefix : str
        How the types of its ops begin.

    Raises
    ------
    ImportError
        If this TensorFlow or the library cannot be used; the text says what to do.
    """
    check_version(tf.__version__)
    if not path.exists():
        raise ImportError(
            f"syrtos.tensorflow: {path} is missing, so this Syrtos was installed without its C++ "
            "core. Reinstall it (pip install --force-reinstall syrtos), or in a checkout run "
            "./dev build."
        )
    try:
        module = tf.load_op_library(str(path))
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        raise ImportError(
            f"syrtos.tensorflow: TensorFlow {tf.__version__} could not load {path}: {error}. "
            "Reinstall Syrtos, so that _tensorflow.so and libsyrtos.so come from one build."
        ) from error
    problem = _registration_problem(path)
    names = [f"{prefix}_{op}".lower() for op in OPS]
    missing = [name for name in names if not hasattr(module, name)]
    if problem or missing:
        reason = problem or (
            "something else had loaded it before TensorFlow did; import syrtos.tensorflow before "
            "that"
        )
        raise ImportError(f"syrtos.tensorflow: the ops of {path} are not usable: {reason}.")
    return module
