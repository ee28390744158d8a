"""The one place that asks which backend Keras runs on.

Everything else in `syrtos.keras` takes the collectives, and what it must know of variables, from
`current`, and imports no framework but Keras.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

import keras

if TYPE_CHECKING:
    from syrtos.keras.backends import Backend

__all__ = ["NAME", "WORKING", "current"]

#: Backends on which `syrtos.keras` works: the modules of `syrtos.keras.backends`.
WORKING = ("tensorflow", "torch", "jax")
NAME = str(keras.backend.backend())


def check(name: str) -> None:
    """Raise ImportError unless `syrtos.keras` works on this backend of Keras.

    Parameters
    ----------
    name : str
        As ``keras.backend.backend()`` gives it.
    """
    if name not in WORKING:
        raise ImportError(
            f"syrtos.keras works with the Keras backends {', '.join(WORKING[:-1])} and "
            f"{WORKING[-1]}; this process uses {name}. Set KERAS_BACKEND to one of them in the "
            "environment before Keras is imported."
        )


check(NAME)
#: The module of this process's backend.
current = cast("Backend", importlib.import_module(f"syrtos.keras.backends.{NAME}"))
