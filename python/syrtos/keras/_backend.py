"""The one place that asks which backend Keras runs on.

Everything else in `syrtos.keras` takes `reducer_type`, `functions` and `reductions` from here.
"""

from __future__ import annotations

import keras

__all__ = ["NAME", "WORKING"]

#: Backends on which `syrtos.keras` works.
WORKING = ("tensorflow",)
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
            f"syrtos.keras works with the Keras backend {' and '.join(WORKING)}; this process uses "
            f"{name}. Set KERAS_BACKEND={WORKING[0]} in the environment before Keras is imported."
        )


check(NAME)
