"""What travels in place of a floating-point tensor: itself, float16 or bfloat16.

The casts are TensorFlow's own, so that gradients pass through them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from syrtos import compression
from syrtos.compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


def _narrow(tensor: Any, wire: str) -> tuple[Any, Any]:
    dtype = tensor.dtype.base_dtype
    return (tf.cast(tensor, wire) if dtype.is_floating else tensor), dtype


def _widen(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype is None or tensor.dtype == dtype else tf.cast(tensor, dtype)


class FP16Compressor(compression.FP16Compressor):
    """Sends floating-point tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return a float16 copy of a floating-point tensor, and its dtype."""
        return _narrow(tensor, "float16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the result in the dtype that `compress` saw."""
        return _widen(tensor, ctx)


class BF16Compressor(compression.BF16Compressor):
    """Sends floating-point tensors as bfloat16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return a bfloat16 copy of a floating-point tensor, and its dtype."""
        return _narrow(tensor, "bfloat16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the result in the dtype that `compress` saw."""
        return _widen(tensor, ctx)


class Compression(compression.Compression):
    """The choices for the argument ``compression``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
