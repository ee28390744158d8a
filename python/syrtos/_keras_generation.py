"""Which Keras this process uses: Keras 3, or Keras 2 (the package tf-keras)."""

from __future__ import annotations

import os

__all__ = ["uses_keras_2"]


def uses_keras_2() -> bool:
    """Whether ``TF_USE_LEGACY_KERAS`` makes ``tf.keras`` Keras 2, read as TensorFlow reads it."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")
